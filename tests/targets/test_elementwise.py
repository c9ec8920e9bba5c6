"""Kernels whose results are expressions of their indices."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import te, tirx
from tvm.ir import Expr

from rten_aot.dialect import vector_math
from rten_aot.targets import Machine
from rten_aot.targets.common.expr import free_vars, loads, walk
from rten_aot.targets.common.stmts import rewrite_stmt
from tests.targets.generic import (
    AVX2,
    MACHINES,
    Array,
    build,
    compute,
    f32,
    i64,
    mapped,
    placeholder,
    random,
)

STRADDLING = [1, 7, 8, 9, 31, 33, 100]


def silu(x: Array) -> npt.NDArray[np.float64]:
    wide = x.astype(np.float64)
    result: npt.NDArray[np.float64] = wide / (1 + np.exp(-wide))
    return result


@pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))
@pytest.mark.parametrize("n", STRADDLING)
def test_flat(n: int, machine: Machine) -> None:
    x, y = placeholder(n, 3), placeholder(n, 3, name="y")
    kernel = build([x, y], compute([n, 3], lambda i, j: x[i, j] + y[i, j]), machine)
    a, b = random(n, 3), random(n, 3, seed=1)
    np.testing.assert_array_equal(kernel(a, b)[0], a + b)
    assert "T.grid" not in kernel.text, "the axes are one loop"


def test_symbolic_sizes() -> None:
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    x, y = placeholder(n, m), placeholder(m, name="y")
    kernel = build([x, y], compute([n, m], lambda i, j: vector_math.silu(x[i, j] + y[j])))
    for rows, columns in [(0, 5), (5, 0), (1, 1), (3, 7), (2, 8), (5, 31), (4, 33), (2, 100)]:
        a, b = random(rows, columns), random(columns, seed=1)
        result = kernel(a, b, sizes={n: rows, m: columns})[0]
        np.testing.assert_allclose(result, silu(a + b), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("columns", [3, 40])
def test_two_symbolic_outer_axes(columns: int) -> None:
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    x, y = placeholder(n, m, columns), placeholder(n, columns, name="y")
    kernel = build([x, y], compute([n, m, columns], lambda i, j, k: x[i, j, k] * y[i, k]))
    for first, second in [(1, 1), (3, 5), (2, 700), (700, 2), (0, 4), (4, 0), (5, 257)]:
        a, b = random(first, second, columns), random(first, columns, seed=1)
        result = kernel(a, b, sizes={n: first, m: second})[0]
        np.testing.assert_array_equal(result, a * b[:, None])


Index = Callable[..., Sequence[Expr]]
BROADCASTS: dict[str, tuple[list[int], Index]] = {
    "last": ([33], lambda i, j, k: [k]),
    "middle": ([5, 1], lambda i, j, k: [j, i64(0)]),
    "first": ([3, 1, 1], lambda i, j, k: [i, i64(0), i64(0)]),
    "scalar": ([], lambda i, j, k: []),
    "outer two": ([3, 5, 1], lambda i, j, k: [i, j, i64(0)]),
    "inner two": ([5, 33], lambda i, j, k: [j, k]),
}


@pytest.mark.parametrize("case", BROADCASTS)
def test_broadcast(case: str) -> None:
    extents, index = BROADCASTS[case]
    x, y = placeholder(3, 5, 33), placeholder(*extents, name="y")
    kernel = build([x, y], compute([3, 5, 33], lambda *i: x(*i) * y(*index(*i))))
    a, b = random(3, 5, 33), random(*extents, seed=1)
    np.testing.assert_array_equal(kernel(a, np.asarray(b))[0], a * b)


def test_broadcast_that_is_decided_at_run_time() -> None:
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    x, y = placeholder(n, 20), placeholder(m, 20, name="y")

    def pick(size: Expr, index: Expr) -> Expr:
        return tirx.Select(tirx.EQ(size, i64(1)), i64(0), index)

    rows = tirx.Select(tirx.EQ(n, i64(1)), m, n)
    kernel = build([x, y], compute([rows, 20], lambda i, j: x[pick(n, i), j] + y[pick(m, i), j]))
    for first, second in [(5, 1), (1, 5), (4, 4), (1, 1)]:
        a, b = random(first, 20), random(second, 20, seed=1)
        result = kernel(a, b, sizes={n: first, m: second})[0]
        np.testing.assert_array_equal(result, a + b)


def choice(size: Expr, index: Expr) -> Expr:
    return tirx.Select(tirx.EQ(size, i64(1)), i64(0), index)


def uneven_loads(stmt: tirx.Stmt, lane: tirx.Var | None = None) -> list[str]:
    """The indices of loads in vector loops that are choices or divisions of the lane."""
    found: list[str] = []

    def on_expr(expr: Expr) -> Expr:
        for node in (n for x in loads(expr) for n in walk(x.indices)):
            if isinstance(node, (tirx.Select, tirx.FloorMod)) and lane in free_vars(node):
                found.append(str(node))
        return expr

    def on_stmt(node: tirx.Stmt) -> tirx.Stmt | None:
        if not isinstance(node, tirx.For) or node.kind != tirx.ForKind.VECTORIZED:
            return None
        found.extend(uneven_loads(node.body, node.loop_var))
        return node

    rewrite_stmt(stmt, on_expr, on_stmt)
    return found


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("columns", [None, 1, 3, 20])
def test_run_time_broadcast_has_two_versions(columns: int | None, dtype: str) -> None:
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    trailing = [] if columns is None else [columns]
    x, y = placeholder(n, *trailing, dtype=dtype), placeholder(m, *trailing, dtype=dtype, name="y")
    z = placeholder(1, *trailing, dtype=dtype, name="z")
    rows = tirx.Select(tirx.EQ(n, i64(1)), m, n)

    def body(i: Expr, *j: Expr) -> Expr:
        return x(choice(n, i), *j) + y(choice(m, i), *j) * z(i64(0), *j)

    kernel = build([x, y, z], compute([rows, *trailing], body))
    for first, second in [(1, 1), (1, 0), (1, 5), (5, 1), (4, 4), (300, 300), (1, 300), (0, 0)]:
        a, b, c = (
            (random(k, *trailing, seed=s) * 9).astype(dtype)
            for s, k in enumerate((first, second, 1))
        )
        result = kernel(a, b, c, sizes={n: first, m: second})[0]
        np.testing.assert_allclose(result, a + b * c, rtol=1e-6, atol=1e-6)
    assert "vectorized" in kernel.text
    assert not uneven_loads(kernel.func.body)
    assert kernel.text.count("for ") < 40, "two versions, not one for every choice"


def test_choices_in_both_axes() -> None:
    sizes = [tirx.Var(name, "int64") for name in "nmpq"]
    n, m, p, q = sizes
    x, y = placeholder(n, p), placeholder(m, q, name="y")
    rows = tirx.Select(tirx.EQ(n, i64(1)), m, n)
    columns = tirx.Select(tirx.EQ(p, i64(1)), q, p)
    kernel = build(
        [x, y],
        compute(
            [rows, columns],
            lambda i, j: x[choice(n, i), choice(p, j)] - y[choice(m, i), choice(q, j)],
        ),
    )
    for left, right in [
        ((1, 1), (1, 1)),
        ((3, 1), (1, 40)),
        ((1, 40), (3, 40)),
        ((5, 70), (5, 70)),
    ]:
        a, b = random(*left), random(*right, seed=1)
        values = (left[0], right[0], left[1], right[1])
        result = kernel(a, b, sizes=dict(zip(sizes, values, strict=True)))[0]
        np.testing.assert_array_equal(result, a - b)
    assert not uneven_loads(kernel.func.body)


def test_divisions_by_unknown_sizes_are_no_gathers() -> None:
    n = tirx.Var("n", "int64")
    x = placeholder(n)
    kernel = build([x], compute([n * 3], lambda i: x[tirx.floormod(i, n)] * f32(2.0)))
    for size in (1, 5, 700):
        a = random(size)
        np.testing.assert_array_equal(kernel(a, sizes={n: size})[0], np.tile(a * 2, 3))
    assert not uneven_loads(kernel.func.body)


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (0, 2, 1, 3)])
@pytest.mark.parametrize("extents", [(2, 17, 5, 9), (1, 3, 20, 30)])
def test_transposition(order: tuple[int, ...], extents: tuple[int, ...]) -> None:
    x = placeholder(*extents)

    def body(*i: Expr) -> Expr:
        source = dict(zip(order, i, strict=True))
        return x(*[source[d] for d in range(4)]) * f32(2.0)

    kernel = build([x], compute([extents[d] for d in order], body))
    a = random(*extents)
    np.testing.assert_array_equal(kernel(a)[0], a.transpose(order) * 2)


def test_reshape_is_a_flat_loop() -> None:
    x = placeholder(6, 35)
    y = compute([14, 15], lambda i, j: x[(i * 15 + j) // 35, (i * 15 + j) % 35] * f32(2.0))
    kernel = build([x], y)
    a = random(6, 35)
    np.testing.assert_array_equal(kernel(a)[0], a.reshape(14, 15) * 2)
    assert "//" not in kernel.text
    assert "%" not in kernel.text


@pytest.mark.parametrize("columns", [5, 30, 70])
def test_padding(columns: int) -> None:
    x = placeholder(4, columns)
    kernel = build(
        [x],
        compute(
            [8, columns + 7],
            lambda i, j: tirx.if_then_else(
                tirx.all(i >= 2, i < 6, j >= 3, j < columns + 3), x[i - 2, j - 3], f32(0.5)
            ),
        ),
    )
    a = random(4, columns)
    expected = np.pad(a, ((2, 2), (3, 4)), constant_values=0.5)
    np.testing.assert_array_equal(kernel(a)[0], expected)
    assert "vectorized" in kernel.text, "the guard on the innermost axis is gone"


@pytest.mark.parametrize(("first", "second"), [(30, 11), (64, 64), (1, 7), (3, 200)])
def test_concatenation_with_a_formula(first: int, second: int) -> None:
    x, y = placeholder(4, first), placeholder(4, second, name="y")
    joined = compute(
        [4, first + second],
        lambda i, j: tirx.if_then_else(j < first, x[i, j], y[i, j - first]),
        "joined",
    )
    kernel = build(
        [x, y], compute([4, first + second], lambda i, j: vector_math.silu(joined[i, j]))
    )
    a, b = random(4, first), random(4, second, seed=1)
    expected = silu(np.concatenate([a, b], 1))
    np.testing.assert_allclose(kernel(a, b)[0], expected, rtol=2e-6)


def test_long_guarded_vector_in_parallel_pieces() -> None:
    n = 100_003
    x = placeholder(n)
    y = compute([n + 9], lambda i: tirx.if_then_else(i < n, vector_math.exp(x[i]), f32(-1.0)))
    kernel = build([x], y)
    a = random(n)
    expected = np.concatenate([np.exp(a), np.full(9, -1, np.float32)])
    np.testing.assert_allclose(kernel(a)[0], expected, rtol=2e-6)
    assert "parallel" in kernel.text


@pytest.mark.parametrize("inner", [1, 19, 64])
def test_gather_of_rows(inner: int) -> None:
    x, index = placeholder(4, inner), placeholder(5, dtype="int32", name="index")

    def row(i: Expr) -> Expr:
        value = tirx.Cast("int64", index[i])
        return tirx.Select(value < 0, value + 4, value)

    kernel = build([x, index], compute([5, inner], lambda i, j: x[row(i), j]))
    a, which = random(4, inner), np.array([3, 0, 2, -1, -4], np.int32)
    np.testing.assert_array_equal(kernel(a, which)[0], a[which])


def test_checked_gather_copies_rows_as_vectors() -> None:
    x, index = placeholder(4, 64), placeholder(5, dtype="int32", name="index")

    def row(i: Expr) -> Expr:
        value = index[i]
        inside = tirx.And(value >= 0, value < 4)
        failed = tirx.call_extern("int32", "abs", value)
        return tirx.Cast("int64", tirx.if_then_else(inside, value, failed & 3))

    kernel = build([x, index], compute([5, 64], lambda i, j: x[row(i), j]))
    a, which = random(4, 64), np.array([3, 0, 2, -5, 1], np.int32)
    np.testing.assert_array_equal(kernel(a, which)[0], a[[3, 0, 2, 1, 1]])
    inner = kernel.text.split("vectorized", 1)[1]
    assert "abs" not in inner, "the check is made once for each row"


def test_gather_of_elements() -> None:
    x, index = placeholder(4, 19), placeholder(4, 19, dtype="int32", name="index")
    y = compute([4, 19], lambda i, j: x[i, tirx.Cast("int64", index[i, j])])
    which = np.random.default_rng(0).integers(0, 19, (4, 19)).astype(np.int32)
    a = random(4, 19)
    result = build([x, index], y)(a, which)[0]
    np.testing.assert_array_equal(result, np.take_along_axis(a, which.astype(np.int64), 1))


def test_several_results_of_mixed_types() -> None:
    x = placeholder(9, 33)
    scaled = compute([9, 33], lambda i, j: x[i, j] * f32(3.0), "scaled")
    rounded = compute(
        [9, 33], lambda i, j: tirx.Cast("int8", tirx.nearbyint(scaled[i, j])), "rounded"
    )
    turned = compute([33, 9], lambda i, j: scaled[j, i] + f32(1.0), "turned")
    kernel = build([x], [scaled, rounded, turned])
    a = random(9, 33)
    results = kernel(a)
    np.testing.assert_array_equal(results[0], a * 3)
    np.testing.assert_array_equal(results[1], np.rint(a * 3).astype(np.int8))
    np.testing.assert_array_equal(results[2], (a * 3 + 1).T)
    assert kernel.scratch == 0


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8"])
@pytest.mark.parametrize("n", [1, 31, 33, 257])
def test_integers_wrap(dtype: str, n: int) -> None:
    x, y = placeholder(n, dtype=dtype), placeholder(n, dtype=dtype, name="y")
    kernel = build([x, y], compute([n], lambda i: x[i] * y[i] + x[i]))
    rng = np.random.default_rng(0)
    info = np.iinfo(dtype)
    a = rng.integers(info.min, info.max, n, dtype, endpoint=True)
    b = rng.integers(info.min, info.max, n, dtype, endpoint=True)
    np.testing.assert_array_equal(kernel(a, b)[0], a * b + a)


def test_scalar() -> None:
    x = placeholder()
    result = build([x], te.compute((), lambda: x() + f32(1.0), "y"))(np.float32(2))[0]
    assert result.shape == ()
    assert result == 3


def test_deep_chain_stays_small() -> None:
    x = placeholder(33)
    value = x
    for step in range(10):
        value = mapped(value, lambda v: v - f32(0.1) * vector_math.tanh(v) * v, f"s{step}")
    kernel = build([x], value)
    a = random(33)
    expected = a.astype(np.float64)
    for _ in range(10):
        expected = expected - 0.1 * np.tanh(expected) * expected
    np.testing.assert_allclose(kernel(a)[0], expected, rtol=1e-5, atol=1e-6)
    assert len(kernel.text) < 120_000


def test_many_symbolic_axes_are_divided_without_regard_to_signs() -> None:
    sizes = [tirx.Var(f"n{axis}", "int64") for axis in range(6)]
    x, y = placeholder(*sizes), placeholder(*sizes[1::2], name="y")
    kernel = build([x, y], compute(sizes, lambda *i: x(*i) + y(*i[1::2])))
    shape = [2, 3, 1, 4, 5, 33]
    a, b = random(*shape), random(*shape[1::2], seed=1)
    result = kernel(a, b, sizes=dict(zip(sizes, shape, strict=True)))[0]
    np.testing.assert_array_equal(result, a + b.reshape(3, 1, 4, 1, 33))
    assert not re.search(r"(//|%) n\d", kernel.text), "the code would grow exponentially"


def test_formulas_are_vector_code() -> None:
    x = placeholder(4096)
    names = ("exp", "log", "sigmoid", "tanh", "erf", "softplus", "gelu_erf", "mish")
    results = [mapped(x, getattr(vector_math, n), n) for n in names]
    kernel = build([x], results)
    called = set(re.findall(r"call\w*\s+\*?(\w+)", kernel.assembly))
    assert not {c for c in called if re.match(r"_?(exp|log|tanh|erf|pow)\w*$", c)}
    assert "ymm" in kernel.assembly


def test_small_kernels_use_one_thread() -> None:
    for n, expected in ((1000, False), (1_000_000, True)):
        x = placeholder(n)
        kernel = build([x], mapped(x, lambda v: v + f32(1.0)))
        assert ("parallel" in kernel.text) == expected


def test_threads_are_a_choice_of_the_run_if_sizes_are() -> None:
    n = tirx.Var("n", "int64")
    x = placeholder(n, 32)
    kernel = build([x], mapped(x, lambda v: v + f32(1.0)))
    assert kernel.text.count("parallel") == 1
    assert "if n * T.int64(" in kernel.text
    for rows in (1, 100, 5000):
        a = random(rows, 32)
        np.testing.assert_array_equal(kernel(a, sizes={n: rows})[0], a + 1)


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=4),
    st.lists(st.booleans(), min_size=4, max_size=4),
    st.booleans(),
)
def test_any_broadcast(extents: list[int], ones: list[bool], symbolic: bool) -> None:
    other = [1 if one else e for e, one in zip(extents, ones, strict=False)]
    first = tirx.Var("n", "int64") if symbolic else extents[0]
    x = placeholder(first, *extents[1:])
    y = placeholder(1 if other[0] == 1 else first, *other[1:], name="y")

    def body(*i: Expr) -> Expr:
        at = [i64(0) if e == 1 else v for e, v in zip(other, i, strict=True)]
        return x(*i) * y(*at) + f32(1.0)

    kernel = build([x, y], compute([first, *extents[1:]], body), AVX2)
    a, b = random(*extents), random(*other, seed=1)
    sizes = {first: extents[0]} if isinstance(first, tirx.Var) else {}
    np.testing.assert_allclose(kernel(a, b, sizes=sizes)[0], a * b + 1, rtol=1e-6, atol=1e-6)
