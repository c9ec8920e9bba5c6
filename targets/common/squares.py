"""Transpositions in registers: squares as wide as a vector, turned by shuffles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm import tirx
from tvm.ir import Expr, TensorLoad
from tvm.tirx import Stmt

from rten_aot.targets.common.access import Nest
from rten_aot.targets.common.expr import constant_int, element_bits, i64
from rten_aot.targets.common.loops import seq
from rten_aot.targets.common.stages import Axis

_SMALLEST = 4
"""Smaller squares are not worth shuffling."""


def square_side(nest: Nest, other: int, lanes: int) -> int | None:
    """The side of the squares for a nest whose source lies along axis ``other``.

    None if the nest does more than move elements, or is too narrow for a square.
    """
    if len(nest.values) != 1 or not isinstance(nest.values[0], TensorLoad):
        return None
    (source,), (target,) = nest.loads, nest.stores
    if any(stride is None for stride in (*source.strides, *target.strides)):
        return None
    if constant_int(source.strides[other]) != 1 or constant_int(target.strides[-1]) != 1:
        return None
    if element_bits(str(source.buffer.ty.dtype)) != 32:
        return None
    side = lanes
    for axis in (nest.axes[other], nest.axes[-1]):
        known = constant_int(axis.extent)
        while known is not None and known < side:
            side //= 2
    return side if side >= _SMALLEST else None


def square(
    nest: Nest, at: Mapping[tirx.Var, Expr], along: Axis, base: Expr, start: Expr, side: int
) -> Stmt:
    """One square, which begins at ``base`` of axis ``along`` and ``start`` of the innermost one."""
    inner = nest.axes[-1]
    dtype = f"{nest.loads[0].buffer.ty.dtype}x{side}"
    stmts: list[Stmt] = []

    def bound(value: Expr) -> Expr:
        var = tirx.Var("row", dtype)
        stmts.append(tirx.Bind(var, value))
        return var

    rows = []
    for i in range(side):
        (value,), _ = nest.at({**at, along.var: base, inner.var: start + i64(i)})
        rows.append(bound(tirx.BufferLoad(value.source, _from(value.indices, side))))
    step = side // 2
    while step:
        for i in range(side):
            if not i & step:
                pair = [rows[i], rows[i + step]]
                low, high = _exchanged(side, step)
                rows[i], rows[i + step] = (
                    bound(tirx.Shuffle(pair, low)),
                    bound(tirx.Shuffle(pair, high)),
                )
        step //= 2
    for i, row in enumerate(rows):
        _, (place,) = nest.at({**at, along.var: base + i64(i), inner.var: start})
        stmts.append(tirx.BufferStore(nest.buffers[0], row, _from(place, side)))
    return seq(stmts)


def _from(indices: Sequence[Expr], lanes: int) -> list[Expr]:
    """The indices of ``lanes`` consecutive elements."""
    return [*indices[:-1], tirx.Ramp(indices[-1], i64(1), lanes)]


def _exchanged(side: int, step: int) -> tuple[list[Expr], list[Expr]]:
    """Lanes of two rows that are ``step`` apart: the blocks of ``step`` on the diagonal stay."""
    low = [lane + side - step if lane & step else lane for lane in range(side)]
    high = [lane + side if lane & step else lane + step for lane in range(side)]
    return [_i32(lane) for lane in low], [_i32(lane) for lane in high]


def _i32(value: int) -> Expr:
    """A lane number as Shuffle takes it."""
    return tirx.IntImm("int32", value)
