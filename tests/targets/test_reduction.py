"""Reductions, windows, and kernels of several stages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import te, tirx
from tvm.ir import Expr

from rten_aot.dialect import vector_math
from rten_aot.targets import Machine
from tests.targets.generic import (
    AVX2,
    MACHINES,
    Array,
    Compiled,
    axis,
    build,
    compute,
    f32,
    i64,
    largest,
    normal_cdf,
    placeholder,
    random,
)


def reduction(
    extents: Sequence[int],
    axes: Sequence[int],
    *,
    kind: str = "sum",
    dtype: str = "float32",
    symbolic: Sequence[int] = (),
    machine: Machine = AVX2,
) -> tuple[Compiled, dict[tirx.Var, int]]:
    names = {d: tirx.Var(f"d{d}", "int64") for d in symbolic}
    shape = [names.get(d, i64(e)) for d, e in enumerate(extents)]
    x = te.placeholder(shape, dtype, name="x")
    reduced = {d: axis(shape[d], f"k{d}") for d in axes}
    kept = [d for d in range(len(extents)) if d not in axes]

    def body(*i: Expr) -> Expr:
        at = dict(zip(kept, i, strict=True))
        value = x(*[reduced[d].var if d in axes else at[d] for d in range(len(extents))])
        over = list(reduced.values())
        return te.sum(value, axis=over) if kind == "sum" else largest(value, axis=over)

    y = te.compute([shape[d] for d in kept], body, name="y")
    return build([x], y, machine), {v: extents[d] for d, v in names.items()}


CASES = [
    ((7, 33), (1,), ()),
    ((33, 7), (0,), ()),
    ((33, 100), (0,), (0, 1)),
    ((5, 9, 31), (1,), (0,)),
    ((5, 9, 31), (0, 2), (1,)),
    ((4, 5, 6, 7), (1, 3), ()),
    ((3, 5, 31), (1, 2), (0, 1, 2)),
    ((1000,), (0,), ()),
    ((1000,), (0,), (0,)),
    ((2, 3), (0, 1), ()),
    ((3, 1, 5), (1,), ()),
    ((300, 3), (0,), ()),
    ((2, 8, 8, 20), (1, 2), ()),
]


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize(("extents", "axes", "symbolic"), CASES)
def test_sum(
    extents: tuple[int, ...], axes: tuple[int, ...], symbolic: tuple[int, ...], dtype: str
) -> None:
    kernel, sizes = reduction(extents, axes, dtype=dtype, symbolic=symbolic)
    if dtype == "float32":
        a: Array = random(*extents)
        expected = a.astype(np.float64).sum(axes)
        np.testing.assert_allclose(kernel(a, sizes=sizes)[0], expected, rtol=1e-5, atol=1e-5)
        return
    info = np.iinfo(np.int32)
    a = np.random.default_rng(0).integers(info.min, info.max, extents, np.int32)
    np.testing.assert_array_equal(kernel(a, sizes=sizes)[0], a.sum(axes, dtype=np.int32))


@pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))
@pytest.mark.parametrize("n", [1, 3, 7, 8, 9, 15, 31, 33, 65])
@pytest.mark.parametrize("where", [0, 1])
def test_sizes_around_vectors(n: int, where: int, machine: Machine) -> None:
    extents = (n, 5) if where == 0 else (5, n)
    kernel, _ = reduction(extents, (where,), machine=machine)
    a = random(*extents)
    np.testing.assert_allclose(kernel(a)[0], a.sum(where), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))
@pytest.mark.parametrize("symbolic", [(), (1,)])
def test_wide_temporaries_stay_on_the_stack(symbolic: tuple[int, ...], machine: Machine) -> None:
    """A vector of results has eight times as many bytes in the type that terms are computed in."""
    names = {d: tirx.Var(f"d{d}", "int64") for d in symbolic}
    shape = [names.get(d, i64(e)) for d, e in enumerate((5, 1100))]
    x, k = te.placeholder(shape, "uint8", name="x"), axis(5)

    def term(column: Expr) -> Expr:
        wide = tirx.Cast("int64", x(k.var, column))
        return tirx.Cast("uint8", tirx.bitwise_and(wide * wide, tirx.const(255, "int64")))

    y = te.compute(shape[1:], lambda c: te.sum(term(c), axis=k), name="y")
    kernel = build([x], y, machine)
    a = np.random.default_rng(0).integers(0, 255, (5, 1100), np.uint8)
    sizes = {v: 1100 for v in names.values()}
    np.testing.assert_array_equal(kernel(a, sizes=sizes)[0], (a * a).sum(0, dtype=np.uint8))
    assert "AllocWorkspace" not in kernel.assembly


@pytest.mark.parametrize(("extents", "axes"), [((7, 33), (1,)), ((33, 70), (0,)), ((9, 4), (1,))])
def test_nan_survives_the_maximum(extents: tuple[int, int], axes: tuple[int]) -> None:
    kernel, _ = reduction(extents, axes, kind="max")
    for position in range(0, extents[0] * extents[1], 11):
        a = random(*extents)
        a.flat[position] = np.nan
        np.testing.assert_array_equal(kernel(a)[0], a.max(axes))


@pytest.mark.parametrize("symbolic", [(), (0, 1)])
def test_empty_reductions_give_the_initial_value(symbolic: tuple[int, ...]) -> None:
    empty = np.zeros((33, 0), np.float32)
    for kind, value in (("sum", 0.0), ("max", -np.inf)):
        kernel, sizes = reduction((33, 0), (1,), kind=kind, symbolic=symbolic)
        result = kernel(empty, sizes=sizes)[0]
        np.testing.assert_array_equal(result, np.full(33, value, np.float32))
    kernel, sizes = reduction((0, 7), (1,), symbolic=symbolic)
    assert kernel(np.zeros((0, 7), np.float32), sizes=sizes)[0].shape == (0,)


@pytest.mark.parametrize("columns", [0, 1, 40])
def test_what_is_no_reduction_to_the_schedules_is_initialised_too(columns: int) -> None:
    """TVM widens the comparison of positions, so that accumulator and term have two types there."""
    n = tirx.Var("n", "int64")
    x = placeholder(3, n, dtype="int32")
    k = axis(n)
    least = te.comm_reducer(
        lambda a, b: tirx.Select(a < b, a, b), lambda dtype: tirx.const(77, dtype), name="least"
    )

    def first(i: Expr) -> Expr:
        found = tirx.EQ(x[i, k], tirx.const(1, "int32"))
        place = tirx.Select(found, tirx.Cast("int32", k.var), tirx.const(99, "int32"))
        return least(place, axis=[k])

    kernel = build([x], te.compute([i64(3)], first, name="first"))
    assert kernel.notes == ["loops taken as they are"]
    data = np.zeros((3, columns), np.int32)
    data[1:, columns // 2 :] = 1
    (got,) = kernel(data, sizes={n: columns})
    np.testing.assert_array_equal(got, [77, *[columns // 2 if columns else 77] * 2])


def test_producer_and_epilogue_need_no_memory() -> None:
    x, bias = placeholder(6, 33), placeholder(6, name="bias")
    k = axis(33)
    squared = compute([6, 33], lambda i, j: x[i, j] * x[i, j], "squared")
    total = compute([6], lambda i: te.sum(squared[i, k], axis=[k]), "total")
    root = compute([6], lambda i: tirx.sqrt(total[i]) + bias[i], "root")
    kernel = build([x, bias], [root, total])
    a, b = random(6, 33), random(6, seed=1)
    results = kernel(a, b)
    np.testing.assert_allclose(results[0], np.sqrt((a * a).sum(1)) + b, rtol=1e-6)
    np.testing.assert_allclose(results[1], (a * a).sum(1), rtol=1e-6)
    assert kernel.scratch == 0


WINDOWS = [
    (9, 11, 19, 3, 2, 1),
    (9, 9, 33, 2, 2, 0),
    (5, 6, 8, 5, 1, 2),
    (1, 1, 3, 3, 1, 1),
    (12, 7, 64, 3, 3, 0),
]


@pytest.mark.parametrize("kind", ["max", "sum"])
@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize(("h", "w", "c", "size", "step", "pad"), WINDOWS)
def test_windows(
    h: int, w: int, c: int, size: int, step: int, pad: int, channels_last: bool, kind: str
) -> None:
    out = [(h + 2 * pad - size) // step + 1, (w + 2 * pad - size) // step + 1]
    x = placeholder(2, h, w, c) if channels_last else placeholder(2, c, h, w)
    ky, kx = axis(size, "ky"), axis(size, "kx")

    def element(n: Expr, i: Expr, j: Expr, q: Expr) -> Expr:
        y, z = i * step + ky.var - pad, j * step + kx.var - pad
        value = x[n, y, z, q] if channels_last else x[n, q, y, z]
        outside = f32(-np.inf if kind == "max" else 0.0)
        guarded = tirx.if_then_else(tirx.all(y >= 0, y < h, z >= 0, z < w), value, outside)
        return (largest if kind == "max" else te.sum)(guarded, axis=[ky, kx])

    if channels_last:
        result = compute([2, *out, c], element)
    else:
        result = compute([2, c, *out], lambda n, q, i, j: element(n, i, j, q))
    a = random(2, h, w, c)
    fill = -np.inf if kind == "max" else 0
    padded = np.pad(a, ((0, 0), (pad, pad), (pad, pad), (0, 0)), constant_values=fill)
    parts = [
        padded[:, i : i + step * (out[0] - 1) + 1 : step, j : j + step * (out[1] - 1) + 1 : step]
        for i in range(size)
        for j in range(size)
    ]
    expected = np.max(parts, 0) if kind == "max" else np.sum(parts, 0)
    given = a if channels_last else a.transpose(0, 3, 1, 2)
    got = build([x], result)(given)[0]
    got = got if channels_last else got.transpose(0, 2, 3, 1)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def softmax(rows: int | tirx.Var, columns: int) -> Compiled:
    x = placeholder(rows, columns)
    k, k2 = axis(columns), axis(columns)
    top = compute([rows], lambda i: largest(x[i, k], axis=[k]), "top")
    raised = compute([rows, columns], lambda i, j: vector_math.exp(x[i, j] - top[i]), "raised")
    total = compute([rows], lambda i: te.sum(raised[i, k2], axis=[k2]), "total")
    return build([x], compute([rows, columns], lambda i, j: raised[i, j] / total[i]))


@pytest.mark.parametrize("columns", [1, 7, 8, 33, 100])
def test_softmax_is_one_loop_over_rows(columns: int) -> None:
    n = tirx.Var("n", "int64")
    kernel = softmax(n, columns)
    for rows in (1, 5):
        a = random(rows, columns)
        a[0, 0] = np.nan if rows == 5 else 50
        raised = np.exp(a.astype(np.float64) - a.max(1, keepdims=True))
        expected = raised / raised.sum(1, keepdims=True)
        np.testing.assert_allclose(kernel(a, sizes={n: rows})[0], expected, rtol=2e-6)
    if columns > 1:
        assert kernel.notes == ["4 nests in one loop over 1 common axes"]
        assert kernel.scratch == 2, "the powers are kept where the result goes"


def test_softmax_over_the_middle_axis() -> None:
    x = placeholder(2, 5, 33)
    k, k2 = axis(5), axis(5)
    top = compute([2, 33], lambda n, i: largest(x[n, k, i], axis=[k]), "top")
    raised = compute([2, 5, 33], lambda n, c, i: vector_math.exp(x[n, c, i] - top[n, i]), "raised")
    total = compute([2, 33], lambda n, i: te.sum(raised[n, k2, i], axis=[k2]), "total")
    kernel = build([x], compute([2, 5, 33], lambda n, c, i: raised[n, c, i] / total[n, i]))
    a = random(2, 5, 33)
    raised_ = np.exp(a.astype(np.float64) - a.max(1, keepdims=True))
    np.testing.assert_allclose(kernel(a)[0], raised_ / raised_.sum(1, keepdims=True), rtol=2e-6)


@pytest.mark.parametrize(("rows", "columns"), [(10, 31), (3, 768), (5, 1)])
def test_layer_norm(rows: int, columns: int) -> None:
    x, gain = placeholder(rows, columns), placeholder(columns, name="gain")
    k, k2 = axis(columns), axis(columns)
    total = compute([rows, 1], lambda i, _: te.sum(x[i, k], axis=[k]), "total")
    mean = compute([rows, 1], lambda i, j: total[i, j] / f32(columns), "mean")
    gap = compute([rows, columns], lambda i, j: x[i, j] - mean[i, i64(0)], "gap")
    spread = compute([rows, 1], lambda i, _: te.sum(gap[i, k2] * gap[i, k2], axis=[k2]), "spread")
    scale = compute(
        [rows, 1],
        lambda i, j: f32(1.0) / tirx.sqrt(spread[i, j] / f32(columns) + f32(1e-5)),
        "scale",
    )
    y = compute([rows, columns], lambda i, j: gap[i, j] * scale[i, i64(0)] * gain[j])
    kernel = build([x, gain], y)
    a, g = random(rows, columns), random(columns, seed=1)
    wide = a.astype(np.float64)
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * g
    np.testing.assert_allclose(kernel(a, g)[0], expected, rtol=1e-4, atol=1e-5)


def test_costly_value_of_two_users_is_stored_once() -> None:
    x = placeholder(6, 33)
    raised = compute([6, 33], lambda i, j: vector_math.gelu_erf(x[i, j]), "raised")
    k, k2 = axis(33), axis(6)
    rows = compute([6], lambda i: te.sum(raised[i, k], axis=[k]), "rows")
    columns = compute([33], lambda j: te.sum(raised[k2, j], axis=[k2]), "columns")
    kernel = build([x], [rows, columns])
    assert kernel.scratch == 1
    a = random(6, 33)
    values = a * normal_cdf(a)
    results = kernel(a)
    np.testing.assert_allclose(results[0], values.sum(1), rtol=1e-5)
    np.testing.assert_allclose(results[1], values.sum(0), rtol=1e-5)


def test_output_that_a_reduction_reads() -> None:
    x = placeholder(6, 33)
    y = compute([6, 33], lambda i, j: vector_math.silu(x[i, j]), "activated")
    k = axis(33)
    total = compute([6], lambda i: te.sum(y[i, k], axis=[k]), "total")
    z = compute([6, 33], lambda i, j: y[i, j] / total[i], "z")
    a = random(6, 33)
    results = build([x], [y, z])(a)
    wide = a.astype(np.float64)
    activated = wide / (1 + np.exp(-wide))
    np.testing.assert_allclose(results[0], activated, rtol=2e-6)
    np.testing.assert_allclose(
        results[1], activated / activated.sum(1, keepdims=True), rtol=1e-4, atol=1e-6
    )


def test_matrix_product_without_a_rule() -> None:
    a, b = placeholder(9, 20, name="a"), placeholder(20, 33, name="b")
    k = axis(20)
    y = compute([9, 33], lambda i, j: te.sum(a[i, k] * b[k, j], axis=[k]))
    left, right = random(9, 20), random(20, 33, seed=1)
    np.testing.assert_allclose(build([a, b], y)(left, right)[0], left @ right, rtol=1e-4, atol=1e-5)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
    st.sets(st.integers(0, 3)),
    st.booleans(),
)
def test_any_axes(extents: list[int], axes: set[int], symbolic: bool) -> None:
    over = tuple(sorted(a for a in axes if a < len(extents)))
    if not over:
        over = (0,)
    names = range(len(extents)) if symbolic else ()
    kernel, sizes = reduction(extents, over, symbolic=names)
    a = random(*extents)
    np.testing.assert_allclose(kernel(a, sizes=sizes)[0], a.sum(over), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kept", [0, 1])
def test_terms_that_are_broadcast_at_run_time(kept: int) -> None:
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    x, y = placeholder(n, 9), placeholder(m, 9, name="y")
    rows = tirx.Select(tirx.EQ(n, i64(1)), m, n)
    k = axis(9 if kept == 0 else rows)

    def term(i: Expr, j: Expr) -> Expr:
        first = tirx.Select(tirx.EQ(n, i64(1)), i64(0), i)
        second = tirx.Select(tirx.EQ(m, i64(1)), i64(0), i)
        return x[first, j] * y[second, j]

    def body(i: Expr) -> Expr:
        return te.sum(term(i, k.var) if kept == 0 else term(k.var, i), axis=k)

    kernel = build([x, y], compute([rows if kept == 0 else 9], body))
    for first, second in [(1, 1), (1, 7), (7, 1), (20, 20)]:
        a, b = random(first, 9), random(second, 9, seed=1)
        result = kernel(a, b, sizes={n: first, m: second})[0]
        np.testing.assert_allclose(result, (a * b).sum(1 - kept), rtol=1e-5, atol=1e-5)
    assert len(kernel.notes) == 1
