"""Gather, Scatter and their kin; indices are checked at run time."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

import rten_aot.dialect.indexing
import rten_aot.dialect.lines_on_gpu
import rten_aot.dialect.scatter  # noqa: F401  (all define what is emitted here)
from rten_aot.importer.context import Contents, Integers, OpContext, Size
from rten_aot.importer.ops.layout import small
from rten_aot.importer.ops.slice import cut
from rten_aot.importer.registry import op
from rten_aot.importer.sizes import at_least, text

_REDUCTIONS = {"None": "none", "Add": "add", "Mul": "mul", "Min": "min", "Max": "max"}


@op("Gather")
def gather(ctx: OpContext, x: relax.Expr, indices: Integers) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Gather.html."""
    axis = ctx.normalize_axis(ctx.attrs.int("axis"), ctx.rank(x))
    shape, places = ctx.shape(x), _numbers(ctx.contents(indices))
    if places is not None and (fixed := _at_constants(ctx, x, axis, places)) is not None:
        return ctx.reshape(fixed, [*shape[:axis], *places.shape, *shape[axis + 1 :]])
    if places is not None and (known := _from_known(ctx, x, axis, places)) is not None:
        return known
    return ctx.call("gather", x, _indices(ctx, indices), axis=axis, node=ctx.node_index)


def _numbers(content: Contents | None) -> Contents | None:
    """Contents that are all plain integers."""
    if content is None or any(isinstance(v, tvm.ir.Expr) for v in content.flat):
        return None
    return content


def _indices(ctx: OpContext, indices: relax.Expr) -> relax.Expr:
    if ctx.dtype(indices) != "int32":
        ctx.shape_error(f"indices are {ctx.dtype(indices)}; needed: int32")
    return indices


def _from_known(ctx: OpContext, x: relax.Expr, axis: int, places: Contents) -> relax.Expr | None:
    content, size = ctx.contents(x), ctx.shape(x)[axis]
    if content is None or not isinstance(size, int):
        return None
    if not all(-size <= p < size for p in places.flat):
        return None
    shape = [*content.shape[:axis], *places.shape, *content.shape[axis + 1 :]]
    if not small(list(shape)):
        return None
    return ctx.known(content.take(places.astype(np.int64), axis), ctx.dtype(x))


def _at_constants(ctx: OpContext, x: relax.Expr, axis: int, places: Contents) -> relax.Expr | None:
    """The slice that consecutive constant indices make, if they are known to exist."""
    if places.size == 0 or ctx.contents(x) is not None:
        return None
    size = ctx.shape(x)[axis]
    first, last = int(places.flat[0]), int(places.flat[-1])
    if [int(p) for p in places.flat] != list(range(first, first + places.size)):
        return None
    if first < 0 <= last:
        return None
    if isinstance(size, int) and not (-size <= first and last < size):
        return None
    if not isinstance(size, int):
        needed = last + 1 if first >= 0 else -first
        found = f"needs a size of {needed}, and it is {ctx.text(size)}"
        at_least(ctx, size, needed, f"an index is out of range: {found}")
    return cut(ctx, x, [(axis, first if first >= 0 else first + size, places.size, 1)])


@op("GatherElements")
def gather_elements(ctx: OpContext, x: relax.Expr, indices: Integers) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__GatherElements.html."""
    axis = ctx.normalize_axis(ctx.attrs.int("axis"), ctx.rank(x))
    _within(ctx, x, indices, axis)
    return ctx.call("gather_elements", x, _indices(ctx, indices), axis=axis, node=ctx.node_index)


def _within(ctx: OpContext, x: relax.Expr, indices: relax.Expr, axis: int) -> None:
    """Check that ``indices`` are no larger than ``x`` along the other axes."""
    shape, own = ctx.shape(x), ctx.shape(indices)
    if len(shape) != len(own):
        ctx.shape_error(f"input and indices have ranks {len(shape)} and {len(own)}")
    for i, (size, count) in enumerate(zip(shape, own, strict=True)):
        if i != axis:
            found = f"{ctx.text(count)} and {ctx.text(size)}"
            at_least(ctx, size, count, f"indices are larger than the input along axis {i}: {found}")


@op("GatherND")
def gather_nd(ctx: OpContext, x: relax.Expr, indices: Integers) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__GatherND.html."""
    batch = ctx.attrs.int("batch_dims", default=0)
    shape, own = ctx.shape(x), ctx.shape(indices)
    if not 0 <= batch < min(len(shape), len(own)):
        ctx.shape_error(f"batch_dims {batch} is out of range for ranks {len(shape)}, {len(own)}")
    _depth(ctx, own, len(shape) - batch)
    for i in range(batch):
        ctx.equal_dims(shape[i], own[i], f"sizes of batch axis {i}")
    operand = _indices(ctx, indices)
    return ctx.call("gather_nd", x, operand, batch_dims=batch, node=ctx.node_index)


def _depth(ctx: OpContext, indices: list[Size], most: int) -> int:
    """The length of the index tuples."""
    if not indices:
        ctx.shape_error("indices have rank 0; needed: 1 or more")
    depth = indices[-1]
    if not isinstance(depth, int):
        ctx.fail("the last size of indices must be known at compile time")
    if depth > most:
        ctx.shape_error(f"index tuples have {depth} elements; most: {most}")
    return depth


@op("ScatterElements")
def scatter_elements(
    ctx: OpContext, x: relax.Expr, indices: Integers, updates: relax.Expr
) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__ScatterElements.html."""
    axis = ctx.normalize_axis(ctx.attrs.int("axis"), ctx.rank(x))
    reduction = ctx.attrs.enum("reduction", _REDUCTIONS, default="None")
    _within(ctx, x, indices, axis)
    _same_shape(ctx, ctx.shape(updates), ctx.shape(indices))
    _same_type(ctx, x, updates)
    operands = [x, _indices(ctx, indices), updates]
    return ctx.call(
        "scatter_elements", *operands, axis=axis, reduction=reduction, node=ctx.node_index
    )


@op("ScatterND")
def scatter_nd(ctx: OpContext, x: relax.Expr, indices: Integers, updates: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__ScatterND.html."""
    reduction = ctx.attrs.enum("reduction", _REDUCTIONS, default="None")
    shape, own = ctx.shape(x), ctx.shape(indices)
    depth = _depth(ctx, own, len(shape))
    _same_shape(ctx, ctx.shape(updates), [*own[:-1], *shape[depth:]])
    _same_type(ctx, x, updates)
    operands = [x, _indices(ctx, indices), updates]
    return ctx.call("scatter_nd", *operands, reduction=reduction, node=ctx.node_index)


def _same_shape(ctx: OpContext, updates: list[Size], wanted: list[Size]) -> None:
    if len(updates) != len(wanted):
        ctx.shape_error(f"updates have shape {text(ctx, updates)}; needed: {text(ctx, wanted)}")
    for a, b in zip(updates, wanted, strict=True):
        ctx.equal_dims(a, b, "sizes of updates and indices")


def _same_type(ctx: OpContext, x: relax.Expr, updates: relax.Expr) -> None:
    if ctx.dtype(x) != ctx.dtype(updates):
        ctx.shape_error(f"updates are {ctx.dtype(updates)}, the input {ctx.dtype(x)}")
