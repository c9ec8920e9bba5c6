"""Slice: https://onnx.ai/onnx/operators/onnx__Slice.html."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt
from tvm import relax

import rten_aot.dialect.movement  # noqa: F401  (defines what is emitted here)
from rten_aot.importer.context import Integers, OpContext, Size
from rten_aot.importer.known import never_negative, numbers_of
from rten_aot.importer.registry import op
from rten_aot.importer.runtime_sizes import counted, measured
from rten_aot.importer.sizes import ceil_div, choose, expr, maximum, minimum

# No axis is longer; files say "to the end" by such numbers.
_FAR = 2**31 - 1


@op("Slice", data_dependent=True)
def slice_(
    ctx: OpContext,
    x: relax.Expr,
    starts: Integers,
    ends: Integers,
    axes: Integers | None = None,
    steps: Integers | None = None,
) -> relax.Expr:
    """Elements from start to end, exclusive, along some axes.

    Negative positions count from the end, and those past an end are clamped.
    """
    given = [starts, ends, *(o for o in (axes, steps) if o is not None)]
    if any(ctx.contents(o) is None for o in given):
        return _computed(ctx, x, starts, ends, axes, steps)
    begins, stops = ctx.ints(starts, "starts"), ctx.ints(ends, "ends")
    rank, shape = ctx.rank(x), ctx.shape(x)
    places = list(range(len(begins))) if axes is None else _constants(ctx, axes, "axes")
    strides = [1] * len(begins) if steps is None else _constants(ctx, steps, "steps")
    if not len(begins) == len(stops) == len(places) == len(strides):
        ctx.shape_error("starts, ends, axes and steps differ in length")
    places = [ctx.normalize_axis(axis, rank, "axes") for axis in places]
    if len(set(places)) < len(places):
        ctx.shape_error(f"axes {places} name one axis twice")
    cuts = []
    for axis, begin, stop, step in zip(places, begins, stops, strides, strict=True):
        if step == 0:
            ctx.shape_error("a step is 0")
        first, size = extent(begin, stop, step, shape[axis])
        cuts.append((axis, first, size, step))
    return cut(ctx, x, cuts)


def _computed(
    ctx: OpContext,
    x: relax.Expr,
    starts: relax.Expr,
    ends: relax.Expr,
    axes: relax.Expr | None,
    steps: relax.Expr | None,
) -> relax.Expr:
    """A slice whose extents are known at run time only."""
    operands = [starts, ends, *(o for o in (axes, steps) if o is not None)]
    counts = [counted(ctx, o, "starts, ends, axes and steps") for o in operands]
    if any(count != counts[0] for count in counts):
        ctx.shape_error("starts, ends, axes and steps differ in length")
    if counts[0] > ctx.rank(x):
        ctx.shape_error(f"{counts[0]} slices of a tensor of rank {ctx.rank(x)}")
    if counts[0] == 0:
        return x
    vector = ctx.call(
        "slice_extents",
        *operands,
        ctx.shape_expr(ctx.shape(x)),
        axes=axes is not None,
        steps=steps is not None,
        node=ctx.node_index,
    )
    rank = ctx.rank(x)
    values = measured(ctx, vector, 3 * rank, "extent", signed=range(2 * rank, 3 * rank))
    first, size, step = values[:rank], values[rank : 2 * rank], values[2 * rank :]
    places = _fixed(ctx, axes, list(range(counts[0])))
    strides = _fixed(ctx, steps, [1] * counts[0])
    if places is None or strides is None:
        return ctx.call("slice_by", x, *map(ctx.shape_expr, (first, size, step)))
    cuts = []
    for axis, stride in zip(places, strides, strict=True):
        axis = ctx.normalize_axis(axis, rank, "axes")
        cuts.append((axis, first[axis], size[axis], stride))
    return cut(ctx, x, cuts)


def _fixed(ctx: OpContext, x: relax.Expr | None, default: list[int]) -> list[int] | None:
    """The numbers in an operand, None if they are not known."""
    if x is None:
        return default
    numbers = numbers_of(ctx, x)
    return None if numbers is None else [int(n) for n in numbers.flat]


def _constants(ctx: OpContext, x: relax.Expr, what: str) -> list[int]:
    result = []
    for value in ctx.ints(x, what):
        if not isinstance(value, int):
            ctx.fail(f"{what} must be constant")
        result.append(value)
    return result


def extent(begin: Size, stop: Size, step: int, size: Size) -> tuple[Size, Size]:
    """The first position of a slice and the number of its elements, for an axis of ``size``.

    The first position is right only if there are any.
    """
    last: Size
    if step > 0:
        first = _from_end(begin, size, lambda b: b, lambda b: maximum(b, 0))
        last = size if stop_is_far(stop) else _from_end(stop, size, lambda e: minimum(e, size))
        return first, _count(ceil_div(last - first, step))
    end = size - 1
    first = end if stop_is_far(begin) else _from_end(begin, size, lambda b: minimum(b, end))
    if isinstance(stop, int) and stop <= -_FAR:
        last = -1
    else:
        last = _from_end(stop, size, lambda e: e, lambda e: maximum(e, -1))
    return first, _count(ceil_div(first - last, -step))


def _count(size: Size) -> Size:
    return size if never_negative(size) else maximum(size, 0)


def stop_is_far(position: Size) -> bool:
    """Whether a position stands for the end of an axis, however long."""
    return isinstance(position, int) and position >= _FAR


def _from_end(
    position: Size,
    size: Size,
    positive: Callable[[Size], Size],
    negative: Callable[[Size], Size] = lambda p: p,
) -> Size:
    """``positive(position)``, or ``negative(position + size)`` if it counts from the end."""
    if isinstance(position, int):
        return positive(position) if position >= 0 else negative(position + size)
    if never_negative(position):
        return positive(position)
    behind = negative(position + size)
    return choose(position < expr(0), behind, positive(position))


def cut(ctx: OpContext, x: relax.Expr, cuts: list[tuple[int, Size, Size, int]]) -> relax.Expr:
    """``x`` with, along each axis, ``size`` elements from ``first`` on, ``step`` apart."""
    shape = ctx.shape(x)
    cuts = [
        (axis, first, size, step)
        for axis, first, size, step in cuts
        if not (step == 1 and isinstance(first, int) and first == 0 and ctx.same(size, shape[axis]))
    ]
    if not cuts:
        return x
    plain = all(isinstance(n, int) for _, first, size, _ in cuts for n in (first, size))
    constant, content = ctx.constant_array(x), ctx.contents(x)
    data: npt.NDArray[Any] | None = content if constant is None else constant
    if plain and data is not None:
        for axis, first, size, step in cuts:
            data = data.take([first + i * step for i in range(size)], axis)
        return ctx.known(data, ctx.dtype(x)) if constant is None else ctx.const(data)
    return ctx.call(
        "slice",
        x,
        ctx.shape_expr([first for _, first, _, _ in cuts]),
        ctx.shape_expr([size for _, _, size, _ in cuts]),
        axes=[axis for axis, _, _, _ in cuts],
        steps=[step for _, _, _, step in cuts],
    )
