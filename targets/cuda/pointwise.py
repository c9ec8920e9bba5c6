"""Spatial stages: every element of the results is an expression of its indices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import tirx
from tvm.ir import Expr

from rten_aot.targets.common.access import Nest
from rten_aot.targets.common.context import Context
from rten_aot.targets.common.elementwise import step_values
from rten_aot.targets.common.expr import Buffer, constant_int, i64
from rten_aot.targets.common.nests import product, split_index
from rten_aot.targets.common.stages import Axis, Stage
from rten_aot.targets.cuda.kernel import Launch, grid, indices, launch
from rten_aot.targets.cuda.lanes import LANES, is_wide, wide_store, wide_values
from rten_aot.targets.cuda.text import Writer
from rten_aot.targets.cuda.turned import turned

THREADS = 256
_WORTH_LANES = 1 << 17
"""With fewer elements there are better more threads than longer accesses."""


def pointwise(ctx: Context, stages: Sequence[Stage], storages: Sequence[Buffer]) -> Launch:
    """The kernel that computes spatial stages of one shape into memory, a thread for each element.

    Where rows are contiguous a thread takes four elements.
    """
    first = stages[0]
    axes = [Axis(ctx.loops.var(a.var.name, a.extent), a.extent) for a in first.spatial]
    where = [a.var for a in axes]
    nest = Nest(axes, step_values(ctx, stages, where), [(b, where) for b in storages], ctx.loops)
    transposed = turned(ctx, nest)
    if transposed is not None:
        return transposed
    writer = Writer(ctx.loops, indices(ctx.kernel))
    lanes = _lanes(nest)
    ctx.note(f"elementwise, {lanes} element{'s' if lanes > 1 else ''} a thread")
    count = decode(ctx, writer, nest.axes, lanes)
    if lanes == 1:
        values = writer.values(nest.values)
        for buffer, place, value in zip(nest.buffers, nest.places, values, strict=True):
            writer.store(buffer, place, value)
    else:
        by_lane = wide_values(writer, nest.values, nest.axes, {})
        for index, (buffer, place) in enumerate(zip(nest.buffers, nest.places, strict=True)):
            wide_store(writer, buffer, place, [values[index] for values in by_lane])
    blocks = ctx.loops.simplify(tirx.floordiv(count + i64(THREADS - 1), i64(THREADS)))
    return launch(writer, grid(blocks), THREADS)


def decode(ctx: Context, writer: Writer, axes: Sequence[Axis], lanes: int) -> Expr:
    """Have each thread find its indices; returns the number of threads."""
    loops = ctx.loops
    if not axes:
        writer.add("if (blockIdx.x != 0 || threadIdx.x != 0) return;")
        return i64(1)
    shorter = list(axes)
    if lanes > 1:
        extent = loops.simplify(tirx.floordiv(axes[-1].extent, i64(lanes)))
        shorter[-1] = Axis(loops.var("quad", extent), extent)
    count = product(loops, shorter)
    flat = loops.var("at", count)
    index = writer.index
    writer.add(f"const {index} at = ({index})blockIdx.x * {THREADS} + threadIdx.x;")
    writer.name(flat, "at")
    (limit,) = writer.values([count])
    writer.add(f"if (at >= {limit}) return;")
    found = split_index(loops, flat, shorter)
    texts = writer.values([found[a.var] for a in shorter])
    for position, (axis, text) in enumerate(zip(axes, texts, strict=True)):
        name = writer.fresh("i")
        scaled = f"{text} * {lanes}" if lanes > 1 and position == len(axes) - 1 else text
        writer.add(f"const {index} {name} = {scaled};")
        writer.name(axis.var, name)
    return count


def _lanes(nest: Nest) -> int:
    """How many neighbouring elements a thread computes."""
    if not nest.axes:
        return 1
    extent = constant_int(nest.axes[-1].extent)
    total = math.prod(constant_int(a.extent) or _WORTH_LANES for a in nest.axes)
    if extent is None or extent % LANES or total < _WORTH_LANES:
        return 1
    if not all(is_wide(a, nest.axes) for a in nest.stores):
        return 1
    return LANES if not nest.loads or any(is_wide(a, nest.axes) for a in nest.loads) else 1
