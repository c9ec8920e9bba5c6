"""Concat: https://onnx.ai/onnx/operators/onnx__Concat.html."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

import rten_aot.dialect.movement  # noqa: F401  (defines what is emitted here)
from rten_aot.importer.context import MAX_KNOWN_ELEMENTS, OpContext
from rten_aot.importer.registry import op

_MOST = 24
"""Operands of one kernel where sizes are free: LLVM's time for it grows with the square of their
number, and with hundreds of them comes to no end."""


@op("Concat")
def concat(ctx: OpContext, *xs: relax.Expr) -> relax.Expr:
    """The inputs one after the other along an axis."""
    if not xs:
        ctx.shape_error("has no inputs")
    return joined(ctx, xs, ctx.attrs.int("axis"))


def joined(ctx: OpContext, present: Sequence[relax.Expr], axis: int) -> relax.Expr:
    """The tensors, one at least, one after the other along ``axis``."""
    rank, dtype = ctx.rank(present[0]), ctx.dtype(present[0])
    axis = ctx.normalize_axis(axis, rank)
    for x in present[1:]:
        if ctx.rank(x) != rank:
            ctx.shape_error(f"inputs have ranks {rank} and {ctx.rank(x)}")
        if ctx.dtype(x) != dtype:
            ctx.shape_error(f"inputs are {dtype} and {ctx.dtype(x)}")
    if len(present) == 1:
        return present[0]
    contents = [ctx.contents(x) for x in present]
    known = [content for content in contents if content is not None]
    if len(known) == len(present) and sum(c.size for c in known) <= MAX_KNOWN_ELEMENTS:
        return ctx.known(np.concatenate(known, axis), dtype)
    common = ctx.shape(present[0])
    for x in present[1:]:
        for i, size in enumerate(ctx.shape(x)):
            if i != axis:
                common[i] = ctx.equal_dims(common[i], size, f"sizes of axis {i}")
    operands = []
    for x in present:
        shape = ctx.shape(x)
        if isinstance(shape[axis], int) and shape[axis] == 0:
            continue
        better = [*common[:axis], shape[axis], *common[axis + 1 :]]
        plain = all(map(ctx.same, shape, better))
        operands.append(x if plain else ctx.reshape(x, better))
    if not operands:
        return present[0]
    sizes = [size for x in operands for size in ctx.shape(x)[axis:]]
    if len(operands) > _MOST and not all(isinstance(size, int) for size in sizes):
        starts = range(0, len(operands), _MOST)
        groups = [joined(ctx, operands[i : i + _MOST], axis) for i in starts]
        return joined(ctx, groups, axis)
    return operands[0] if len(operands) == 1 else ctx.call("concat", *operands, axis=axis)


def stacked(ctx: OpContext, items: Sequence[relax.Expr], axis: int) -> relax.Expr:
    """The tensors, one at least, one after the other along a new axis."""
    axis = ctx.normalize_axis(axis, ctx.rank(items[0]) + 1)
    wider = []
    for x in items:
        shape = ctx.shape(x)
        wider.append(ctx.reshape(x, [*shape[:axis], 1, *shape[axis:]]))
    return joined(ctx, wider, axis)
