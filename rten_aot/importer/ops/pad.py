"""Pad: https://onnx.ai/onnx/operators/onnx__Pad.html."""

from __future__ import annotations

import numpy as np
from tvm import relax, tirx

import rten_aot.dialect.generate
import rten_aot.dialect.movement  # noqa: F401  (both define what is emitted here)
from rten_aot.importer.context import Integers, OpContext, Size
from rten_aot.importer.ops.layout import small
from rten_aot.importer.registry import op
from rten_aot.importer.runtime_sizes import counted, measured, sizes
from rten_aot.importer.sizes import at_least, expr, minimum, one_element, text
from rten_aot.importer.windows import simplified

_MODES = {"Constant": "constant", "Reflect": "reflect", "Edge": "edge", "Wrap": "wrap"}


@op("Pad", data_dependent=True)
def pad(
    ctx: OpContext,
    x: relax.Expr,
    pads: Integers,
    value: relax.Expr | None = None,
    axes: Integers | None = None,
) -> relax.Expr:
    """More elements, or fewer, before and after those of some axes."""
    mode = ctx.attrs.enum("mode", _MODES, default="Constant")
    shape = ctx.shape(x)
    places, befores, afters = _counts(ctx, pads, axes, len(shape))
    padded = []
    for axis, before, after in zip(places, befores, afters, strict=True):
        if _zero(before) and _zero(after):
            continue
        size = shape[axis]
        message = f"pads {text(ctx, [before, after])} leave less than 0 of {ctx.text(size)}"
        at_least(ctx, size + before + after, 0, message)
        if mode != "constant":
            _check_source(ctx, size, before, after)
        padded.append((axis, before, after))
        shape[axis] = simplified(ctx, size + before + after)
    if not padded:
        return x
    if any(isinstance(size, int) and size == 0 for size in shape):
        return ctx.call("full", ctx.shape_expr(shape), value=0, dtype=ctx.dtype(x))
    constant, operands = _filler(ctx, x, value)
    content = ctx.contents(x)
    if content is not None and mode == "constant" and not operands:
        if (known := _pad_known(ctx, x, content, padded, constant)) is not None:
            return known
    if mode != "constant" and not all(isinstance(n, int) for p in padded for n in p):
        places = [
            ctx.call("pad_places", ctx.shape_expr([before, after, ctx.shape(x)[axis]]), mode=mode)
            for axis, before, after in padded
        ]
        return ctx.call("take_places", x, *places, axes=[axis for axis, _, _ in padded])
    return ctx.call(
        "pad",
        x,
        ctx.shape_expr([before for _, before, _ in padded]),
        ctx.shape_expr([after for _, _, after in padded]),
        *operands,
        axes=[axis for axis, _, _ in padded],
        mode=mode,
        constant=constant,
    )


def _counts(
    ctx: OpContext, pads: relax.Expr, axes: relax.Expr | None, rank: int
) -> tuple[list[int], list[Size], list[Size]]:
    """The axes that are padded, each once, and the pads before and behind them."""
    if axes is not None and ctx.contents(axes) is None:
        return _computed_counts(ctx, pads, axes, rank)
    places = list(range(rank))
    if axes is not None:
        places = []
        for axis in ctx.ints(axes, "axes"):
            if not isinstance(axis, int):
                ctx.fail("axes must be constant")
            places.append(ctx.normalize_axis(axis, rank, "axes"))
        if len(set(places)) < len(places):
            ctx.shape_error(f"axes {places} name one axis twice")
    counts = sizes(ctx, pads, "pads", signed=True, needed=2 * len(places))
    if len(counts) != 2 * len(places):
        ctx.shape_error(f"{len(counts)} pads are given for {len(places)} axes")
    return places, counts[: len(places)], counts[len(places) :]


def _computed_counts(
    ctx: OpContext, pads: relax.Expr, axes: relax.Expr, rank: int
) -> tuple[list[int], list[Size], list[Size]]:
    """All axes, those that a run does not name with pads of 0."""
    count, given = counted(ctx, axes, "axes"), counted(ctx, pads, "pads")
    if given != 2 * count:
        ctx.shape_error(f"{given} pads are given for {count} axes")
    if count == 0:
        return [], [], []
    if count > rank:
        ctx.shape_error(f"{count} axes are named of a tensor of rank {rank}")
    vector = ctx.call("pads_by_axis", pads, axes, rank=rank, node=ctx.node_index)
    values = measured(ctx, vector, 2 * rank, "pads", signed=range(2 * rank))
    return list(range(rank)), values[:rank], values[rank:]


def _check_source(ctx: OpContext, size: Size, before: Size, after: Size) -> None:
    """What modes repeat must be there, after elements have been removed."""
    message = "an axis without elements has nothing to repeat"
    kept = size + minimum(before, 0) + minimum(after, 0)
    if isinstance(before, int) and isinstance(after, int):
        at_least(ctx, kept, 1 if max(before, after) > 0 else 0, message)
    else:
        nothing = tirx.And(expr(before) <= expr(0), expr(after) <= expr(0))
        ctx.require(tirx.Or(expr(kept) >= expr(1), nothing), message)


def _zero(count: Size) -> bool:
    return isinstance(count, int) and count == 0


def _filler(
    ctx: OpContext, x: relax.Expr, value: relax.Expr | None
) -> tuple[int | float, list[relax.Expr]]:
    """What to fill with: a number, or a tensor of rank 0."""
    if value is None:
        return 0, []
    if ctx.dtype(value) != ctx.dtype(x):
        ctx.shape_error(f"the value is {ctx.dtype(value)}, the input {ctx.dtype(x)}")
    value = one_element(ctx, value, "the value")
    content = ctx.contents(value)
    if content is None or not isinstance(content.flat[0], (int, float, np.floating)):
        return 0, [value]
    number = content.flat[0]
    return (float(number) if ctx.dtype(x) == "float32" else int(number)), []


def _pad_known(
    ctx: OpContext,
    x: relax.Expr,
    content: np.ndarray[tuple[int, ...], np.dtype[np.object_]],
    padded: list[tuple[int, Size, Size]],
    constant: int | float,
) -> relax.Expr | None:
    widths = [(0, 0)] * content.ndim
    for axis, before, after in padded:
        if not isinstance(before, int) or not isinstance(after, int) or min(before, after) < 0:
            return None
        widths[axis] = (before, after)
    if not small([n + sum(w) for n, w in zip(content.shape, widths, strict=True)]):
        return None
    return ctx.known(np.pad(content, widths, constant_values=constant), ctx.dtype(x))
