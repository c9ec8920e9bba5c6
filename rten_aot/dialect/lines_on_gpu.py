"""Operators that go along an axis step by step, on GPUs: a thread for each line along the axis.

Lines do not depend on each other, and the steps of one are those of the CPU, in their order. A few
lines alone are left to the CPU.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tvm import te, tirx
from tvm.tirx import Buffer, Expr, IfThenElse, Stmt

from rten_aot.dialect import reduce, scatter
from rten_aot.dialect.direct import direct
from rten_aot.dialect.gpu_loops import each_thread
from rten_aot.dialect.loops import flat_load, flat_store, int64, loop, product, seq, static
from rten_aot.dialect.registry import Pattern, define_on_gpu
from rten_aot.dialect.scalar import add

_FEWEST = 32
"""Lines that are worth a GPU."""


@define_on_gpu("cumsum", pattern=Pattern.OPAQUE)
def cumsum(x: te.Tensor, *, axis: int) -> te.Tensor:
    """The running sum along an axis."""
    shape = list(x.shape)
    outer, extent, inner = product(shape[:axis]), shape[axis], product(shape[axis + 1 :])
    if _are_few(outer * inner):
        return reduce.cumsum(x, axis=axis)

    def body(inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> Stmt:
        source, target = inputs[0], outputs[0]

        def line(number: Expr) -> Stmt:
            start = tirx.floordiv(number, inner) * extent * inner + tirx.floormod(number, inner)

            def step(k: Expr) -> Stmt:
                here = start + k * inner
                value = flat_load(source, here)
                return IfThenElse(
                    tirx.EQ(k, int64(0)),
                    flat_store(target, here, value),
                    flat_store(target, here, add(flat_load(target, here - inner), value)),
                )

            return loop(extent, step)

        return each_thread(outer * inner, line)

    return direct([shape], [x], body, [str(x.dtype)], "cumsum")


@define_on_gpu("scatter_elements", pattern=Pattern.OPAQUE)
def scatter_elements(
    x: te.Tensor,
    indices: te.Tensor,
    updates: te.Tensor,
    *,
    axis: int,
    reduction: str,
    node: int,
) -> te.Tensor:
    """``x`` with single elements replaced."""
    others = [d for d in range(len(x.shape)) if d != axis]
    lines = product([x.shape[d] for d in others])
    if _are_few(lines):
        return scatter.scatter_elements(
            x, indices, updates, axis=axis, reduction=reduction, node=node
        )
    write = scatter.element_writer(axis, reduction, node)

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        source, out = ins[0], outs[0]

        def line(number: Expr) -> Stmt:
            found = _coordinates(number, [x.shape[d] for d in others])
            where = dict(zip(others, found, strict=True))

            def at(k: Expr) -> list[Expr]:
                return [k if d == axis else where[d] for d in range(len(x.shape))]

            copy = loop(
                x.shape[axis],
                lambda k: tirx.BufferStore(out, tirx.BufferLoad(source, at(k)), at(k)),
            )
            updated = loop(indices.shape[axis], lambda k: write(ins, out, at(k)))
            inside = functools.reduce(tirx.And, [where[d] < indices.shape[d] for d in others])
            return seq(copy, IfThenElse(inside, updated, None))

        return each_thread(lines, line)

    return direct([list(x.shape)], [x, indices, updates], body, [str(x.dtype)], "scatter_elements")


def _are_few(lines: Expr) -> bool:
    count = static(lines)
    return count is not None and count < _FEWEST


def _coordinates(number: Expr, shape: Sequence[Expr]) -> list[Expr]:
    """The index of the element with this number in memory order."""
    found: list[Expr] = []
    for size in reversed(shape):
        found.insert(0, tirx.floormod(number, size))
        number = tirx.floordiv(number, size)
    return found
