"""How fused kernels are taken apart, computed in place, and shared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import TensorLoad

from rten_aot.dialect import vector_math
from rten_aot.dialect.direct import direct
from rten_aot.targets.common.context import Context
from rten_aot.targets.common.expr import canonical, loads, walk
from rten_aot.targets.common.loops import Loops, seq, split_exactly, tile
from rten_aot.targets.common.sharing import share
from rten_aot.targets.common.stages import Kernel, parse
from tests.targets.generic import (
    AVX2,
    axis,
    build,
    compute,
    f32,
    i64,
    largest,
    mapped,
    placeholder,
    prim_func,
    random,
    shape,
)


def kernel_of(inputs: list[te.Tensor], outputs: list[te.Tensor]) -> Kernel:
    kernel = parse(prim_func(inputs, outputs))
    assert kernel is not None
    return kernel


def test_parse_finds_stages_axes_and_reducers() -> None:
    n = tirx.Var("n", "int64")
    x = placeholder(n, 8)
    k = axis(8)
    doubled = compute([n, 8], lambda i, j: x[i, j] * f32(2.0), "doubled")
    total = te.compute(
        shape(n), lambda i: te.sum(doubled[i, k], axis=[k]), "total", attrs={"rten.anchor": "gemm"}
    )
    top = compute([n], lambda i: largest(doubled[i, k], axis=[k]), "top")
    kernel = kernel_of([x], [total, top])
    assert [s.name for s in kernel.stages] == ["doubled", "total", "top"]
    first, second, third = kernel.stages
    assert first.reducer is None
    assert [len(s.spatial) for s in kernel.stages] == [2, 1, 1]
    assert second.reducer is not None
    assert second.reducer.is_sum
    assert second.anchor == "gemm"
    assert [int(a.extent) for a in second.reduce] == [8]
    assert third.reducer is not None
    assert isinstance(third.reducer.term, TensorLoad)
    assert [b.name for b in kernel.outputs] == ["total", "top"]
    assert [s.name for s in kernel.consumers(first.buffer)] == ["total", "top"]


@pytest.mark.parametrize("reduced", [False, True])
def test_parse_scalar_result(reduced: bool) -> None:
    x = placeholder(8) if reduced else placeholder()
    k = axis(8)
    y = (
        te.compute((), lambda: te.sum(x[k], axis=[k]), "y")
        if reduced
        else te.compute((), lambda: x() + f32(1.0), "y")
    )
    (stage,) = kernel_of([x], [y]).stages
    assert stage.spatial == ()
    assert len(stage.reduce) == int(reduced)


def test_parse_leaves_opaque_kernels_alone() -> None:
    x = placeholder(8)
    copied = direct(
        [shape(8)],
        [x],
        lambda ins, outs: tirx.BufferStore(outs[0], tirx.BufferLoad(ins[0], [i64(0)]), [i64(0)]),
        ["float32"],
        "opaque",
    )
    assert parse(prim_func([x], [copied])) is None


def test_opaque_kernel_keeps_its_loops_and_computes_formulas_once() -> None:
    x = placeholder(16)

    def body(ins: Sequence[tirx.Var], outs: Sequence[tirx.Var]) -> tirx.Stmt:
        v = tirx.Var("v", "int64")
        formula = vector_math.tanh(vector_math.tanh(vector_math.exp(tirx.BufferLoad(ins[0], [v]))))
        stmt = tirx.BufferStore(outs[0], formula, [v])
        return tirx.For(v, i64(0), i64(16), tirx.ForKind.VECTORIZED, stmt)

    kernel = build([x], direct([shape(16)], [x], body, ["float32"], "opaque"))
    assert kernel.notes == ["loops taken as they are"]
    values = random(16)
    np.testing.assert_allclose(kernel(values)[0], np.tanh(np.tanh(np.exp(values))), rtol=1e-6)


def test_elements_of_producers_are_computed_in_place() -> None:
    x = placeholder(4, 6)
    turned = compute([6, 4], lambda i, j: x[j, i] + f32(1.0), "turned")
    y = compute([24], lambda i: turned[i // 4, i % 4] * f32(2.0))
    kernel = kernel_of([x], [y])
    ctx = Context(kernel, AVX2, lambda _: None)
    buffer = kernel.stages[0].buffer
    value = ctx.values.load(buffer, [5, 3])
    (load,) = loads(value)
    assert load.source.same_as(kernel.inputs[0])
    assert [int(i) for i in load.indices] == [3, 5]
    assert ctx.values.load(buffer, [5, 3]).same_as(value)


def test_shared_parts_are_computed_once() -> None:
    x = placeholder(8)
    value = x
    for step in range(12):
        value = mapped(value, lambda v: v * vector_math.sigmoid(v) + v, f"step{step}")
    kernel = kernel_of([x], [value])
    ctx = Context(kernel, AVX2, lambda _: None)
    stage = kernel.stages[-1]
    formula = ctx.values.value(stage, [i64(3)])
    binds, (result,) = share([formula])
    size = sum(1 for _ in walk([result])) + len(binds)
    assert size < 12 * 40, "as a tree the formula has more than 2**24 nodes"


def test_conditional_parts_stay_behind_their_condition() -> None:
    x = placeholder(8)
    y = compute(
        [16],
        lambda i: tirx.if_then_else(
            i < 8, vector_math.silu(vector_math.silu(x[tirx.Min(i, i64(7))])), f32(0.0)
        ),
    )
    kernel = kernel_of([x], [y])
    ctx = Context(kernel, AVX2, lambda _: None)
    index = tirx.Var("i", "int64")
    binds, _ = share([ctx.values.value(kernel.stages[0], [index])])
    assert any(isinstance(s, tirx.IfThenElse) for s in binds)
    assert not any(isinstance(s, tirx.Bind) for s in binds), "a load left its branch"


@pytest.mark.parametrize("order", ["nhwc", "transposed", "flat"])
def test_epilogue_follows_its_anchor(order: str) -> None:
    x, bias = placeholder(4, 6, 3), placeholder(6, name="bias")
    k = axis(3)
    total = compute([4, 6], lambda i, j: te.sum(x[i, j, k], axis=[k]), "total")
    biased = compute([4, 6], lambda i, j: total[i, j] + bias[j], "biased")
    if order == "nhwc":
        y = compute([1, 4, 6], lambda n, i, j: biased[i, j] * f32(2.0))
    elif order == "transposed":
        y = compute([6, 4], lambda j, i: biased[i, j] * f32(2.0))
    else:
        y = compute([24], lambda i: biased[i // 6, i % 6] * f32(2.0))
    kernel = kernel_of([x, bias], [y])
    ctx = Context(kernel, AVX2, lambda _: None)
    epilogue = ctx.epilogue(kernel.stages[0])
    assert [s.name for s in epilogue.absorbed] == ["total", "biased", "y"]
    assert [s.name for s in epilogue.stored] == ["y"]
    store = epilogue.emit(tirx.Var("acc", "float32"), [2, 5])[-1]
    places = {"nhwc": [0, 2, 5], "transposed": [5, 2], "flat": [17]}
    assert [int(i) for i in store.indices] == places[order]


def test_epilogue_stops_where_an_element_is_used_twice() -> None:
    x = placeholder(4, 6, 3)
    k = axis(3)
    total = compute([4, 6], lambda i, j: te.sum(x[i, j, k], axis=[k]), "total")
    halved = compute([4, 6], lambda i, j: total[i, j] * f32(0.5), "halved")
    y = compute([4, 6], lambda i, j: halved[i, j] + halved[i, i64(0)])
    kernel = kernel_of([x], [y])
    epilogue = Context(kernel, AVX2, lambda _: None).epilogue(kernel.stages[0])
    assert [s.name for s in epilogue.stored] == ["halved"]


def test_canonical_forms_of_nan_tests() -> None:
    a, b = tirx.Var("a", "float32"), tirx.Var("b", "float32")
    kept = tirx.Select(tirx.Or(a > b, tirx.isnan(a)), a, b)
    for formula in (kept, tirx.Select(tirx.isnan(a), b, a), tirx.isnan(a)):
        names = {type(e).__name__ for e in walk([canonical(formula)])}
        assert names <= {
            "Select", "Var", "FloatImm", "IntImm", "Call", "LE", "GT", "BitwiseAnd",
        }  # fmt: skip
        assert "isnan" not in str(canonical(formula))


@pytest.mark.parametrize("extent", range(1, 40))
def test_split_exactly_covers(extent: int) -> None:
    parts = split_exactly(extent, 6)
    assert sum(rows * count for rows, count in parts) == extent
    if extent >= 20:
        assert {rows for rows, _ in parts} <= {5, 6}


def test_register_tiles_are_small() -> None:
    tile([6, 16], "float32")
    with pytest.raises(ValueError, match="larger than 1023 bytes"):
        tile([16, 16], "float32")


def test_loops_leave_out_what_does_nothing() -> None:
    loops = Loops()
    buffer = tile([4], "float32")
    assert "for" not in str(loops.serial("i", 1, lambda i: tirx.BufferStore(buffer, f32(0), [i])))
    nothing = loops.serial("i", 0, lambda i: tirx.BufferStore(buffer, f32(0), [i]))
    assert isinstance(seq(nothing, None, []), tirx.Evaluate)
