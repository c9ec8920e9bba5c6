"""Reshape, Transpose and other operators that arrange elements anew."""

from __future__ import annotations

import numpy as np
from tvm import relax, tirx

import rten_aot.dialect.generate
import rten_aot.dialect.movement  # noqa: F401  (both define what is emitted here)
from rten_aot.importer.context import MAX_KNOWN_ELEMENTS, Integers, OpContext, Size
from rten_aot.importer.registry import op
from rten_aot.importer.runtime_sizes import counted, measured, sizes
from rten_aot.importer.sizes import at_least, broadcast, expr, product, quotient, text


def permute(ctx: OpContext, x: relax.Expr, axes: list[int]) -> relax.Expr:
    """``x`` with its axes in another order; known contents stay known."""
    if axes == sorted(axes):
        return x
    constant = ctx.constant_array(x)
    if constant is not None:
        return ctx.const(constant.transpose(axes))
    content = ctx.contents(x)
    if content is not None:
        return ctx.known(content.transpose(axes), ctx.dtype(x))
    return ctx.call("transpose", x, axes=axes)


@op("Reshape", data_dependent=True)
def reshape(ctx: OpContext, x: relax.Expr, shape: Integers) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Reshape.html."""
    allow_zero = ctx.attrs.bool("allow_zero", default=False)
    if ctx.contents(shape) is None:
        return _computed_reshape(ctx, x, shape, allow_zero=allow_zero)
    old, wanted = ctx.shape(x), ctx.ints(shape, "the new shape")
    new: list[Size] = []
    for i, size in enumerate(wanted):
        if not isinstance(size, int) or size != -1:
            at_least(ctx, size, 0, f"the new shape: {ctx.text(size)} is negative")
        if isinstance(size, int) and size == 0 and not allow_zero:
            if i >= len(old):
                ctx.shape_error(f"size {i} is to be copied, but the input has rank {len(old)}")
            size = old[i]
        new.append(size)
    inferred = [i for i, size in enumerate(new) if isinstance(size, int) and size == -1]
    if len(inferred) > 1:
        ctx.shape_error(f"more than one size of {text(ctx, wanted)} is -1")
    if inferred:
        others = [size for i, size in enumerate(new) if i != inferred[0]]
        new[inferred[0]] = quotient(ctx, old, others)
    else:
        _same_count(ctx, old, new)
    return ctx.reshape(x, new)


def _computed_reshape(
    ctx: OpContext, x: relax.Expr, shape: relax.Expr, *, allow_zero: bool
) -> relax.Expr:
    rank = counted(ctx, shape, "the new shape")
    if rank == 0:
        _same_count(ctx, ctx.shape(x), [])
        return ctx.reshape(x, [])
    old = ctx.shape_expr(ctx.shape(x))
    vector = ctx.call("reshape_sizes", shape, old, allow_zero=allow_zero, node=ctx.node_index)
    return ctx.reshape(x, measured(ctx, vector, rank, "shape"))


def _same_count(ctx: OpContext, old: list[Size], new: list[Size]) -> None:
    before, after = product(old), product(new)
    if ctx.same(before, after):
        return
    message = f"cannot reshape {text(ctx, old)} to {text(ctx, new)}"
    if isinstance(before, int) and isinstance(after, int):
        ctx.shape_error(message)
    ctx.require(tirx.EQ(expr(before), expr(after)), message)


@op("Flatten")
def flatten(ctx: OpContext, x: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Flatten.html."""
    axis, shape = ctx.attrs.int("axis"), ctx.shape(x)
    rank = len(shape)
    if not -rank <= axis <= rank:
        ctx.shape_error(f"axis {axis} is out of range for a tensor of rank {rank}")
    if axis < 0:
        axis += rank
    return ctx.reshape(x, [product(shape[:axis]), product(shape[axis:])])


@op("Squeeze", data_dependent=True)
def squeeze(ctx: OpContext, x: relax.Expr, axes: Integers | None = None) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Squeeze.html.

    Without axes, a size that is not known is taken not to be 1, which is checked.
    """
    shape = ctx.shape(x)
    if axes is not None and ctx.contents(axes) is None:
        return _along_computed_axes(ctx, x, axes, insert=False)
    if axes is None:
        for size in shape:
            if not isinstance(size, int):
                ctx.require(tirx.NE(size, expr(1)), "an axis of size 1 must be named in axes")
        return ctx.reshape(x, [size for size in shape if size != 1])
    removed = _axes(ctx, axes, len(shape))
    for axis in removed:
        ctx.equal_dims(shape[axis], 1, f"axis {axis} is squeezed; sizes")
    return ctx.reshape(x, [size for i, size in enumerate(shape) if i not in removed])


@op("Unsqueeze", data_dependent=True)
def unsqueeze(ctx: OpContext, x: relax.Expr, axes: Integers) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Unsqueeze.html."""
    shape = ctx.shape(x)
    if ctx.contents(axes) is None:
        return _along_computed_axes(ctx, x, axes, insert=True)
    for axis in sorted(_axes(ctx, axes, len(shape) + int(product(ctx.shape(axes))))):
        shape.insert(axis, 1)
    return ctx.reshape(x, shape)


def _along_computed_axes(
    ctx: OpContext, x: relax.Expr, axes: relax.Expr, *, insert: bool
) -> relax.Expr:
    """``x`` with axes of size 1 more or less."""
    count = counted(ctx, axes, "axes")
    rank = ctx.rank(x) + count if insert else ctx.rank(x) - count
    if rank < 0:
        ctx.shape_error(f"{count} axes are named of a tensor of rank {ctx.rank(x)}")
    if count == 0:
        return x
    shape = ctx.shape_expr(ctx.shape(x))
    vector = ctx.call("axes_sizes", axes, shape, insert=insert, node=ctx.node_index)
    return ctx.reshape(x, measured(ctx, vector, rank, "shape"))


def _axes(ctx: OpContext, axes: relax.Expr, rank: int) -> list[int]:
    result = []
    for axis in ctx.ints(axes, "axes"):
        if not isinstance(axis, int):
            ctx.fail("axes must be constant")
        result.append(ctx.normalize_axis(axis, rank, "axes"))
    if len(set(result)) < len(result):
        ctx.shape_error(f"axes {result} name one axis twice")
    return result


@op("Transpose")
def transpose(ctx: OpContext, x: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Transpose.html."""
    rank = ctx.rank(x)
    axes = ctx.attrs.optional_ints("perm")
    if axes is None:
        axes = list(reversed(range(rank)))
    if sorted(axes) != list(range(rank)):
        ctx.shape_error(f"perm {axes} is no order of {rank} axes")
    return permute(ctx, x, axes)


@op("Shape")
def shape(ctx: OpContext, x: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Shape.html."""
    start, end = ctx.attrs.optional_int("start"), ctx.attrs.optional_int("end")
    return ctx.known(_vector(ctx.shape(x)[start:end]), "int32")


@op("Size")
def size(ctx: OpContext, x: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Size.html."""
    return ctx.known(_vector([product(ctx.shape(x))]).reshape(()), "int32")


def _vector(sizes: list[Size]) -> np.ndarray[tuple[int, ...], np.dtype[np.object_]]:
    vector = np.empty(len(sizes), dtype=object)
    for i, value in enumerate(sizes):
        vector[i] = value
    return vector


@op("Expand", data_dependent=True)
def expand(ctx: OpContext, x: relax.Expr, shape: Integers) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Expand.html."""
    old, wanted = ctx.shape(x), sizes(ctx, shape, "the shape to expand to")
    rank = max(len(old), len(wanted))
    old = [1] * (rank - len(old)) + old
    wanted = [1] * (rank - len(wanted)) + wanted
    return spread(ctx, x, [broadcast(ctx, a, b) for a, b in zip(old, wanted, strict=True)])


def spread(ctx: OpContext, x: relax.Expr, wanted: list[Size]) -> relax.Expr:
    """``x`` broadcast to the sizes ``wanted``, which are known to fit."""
    shape = ctx.shape(x)
    if len(shape) == len(wanted) and all(map(ctx.same, shape, wanted)):
        return x
    content = ctx.contents(x)
    if content is not None and small(wanted):
        return ctx.known(np.broadcast_to(content, wanted), ctx.dtype(x))
    return ctx.call("expand", x, ctx.shape_expr(wanted))


def small(shape: list[Size]) -> bool:
    """Whether contents of this shape are worth knowing at compile time."""
    count = product(shape)
    return isinstance(count, int) and count <= MAX_KNOWN_ELEMENTS


@op("Tile", data_dependent=True)
def tile(ctx: OpContext, x: relax.Expr, repeats: Integers) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Tile.html."""
    shape = ctx.shape(x)
    counts = sizes(ctx, repeats, "repeats", needed=len(shape))
    if len(counts) != len(shape):
        ctx.shape_error(f"{len(counts)} repeats are given for {len(shape)} axes")
    # [a, b] -> [1, a, 1, b] -> [r, a, s, b] -> [r * a, s * b]
    split: list[Size] = []
    spaced: list[Size] = []
    joined: list[Size] = []
    for count, size in zip(counts, shape, strict=True):
        joined.append(product([count, size]))
        if not (isinstance(count, int) and count == 1):
            split.append(1)
            spaced.append(count)
        split.append(size)
        spaced.append(size)
    return ctx.reshape(spread(ctx, ctx.reshape(x, split), spaced), joined)


@op("DepthToSpace")
def depth_to_space(ctx: OpContext, x: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__DepthToSpace.html."""
    block = ctx.attrs.int("block_size")
    depth_first = ctx.attrs.enum("mode", {"DCR": True, "CRD": False}, default="DCR")
    if ctx.rank(x) != 4:
        ctx.shape_error(f"the input has rank {ctx.rank(x)}; needed: 4")
    if block < 1:
        ctx.shape_error(f"block size {block} is not positive")
    batch, channels, height, width = ctx.shape(x)
    depth = quotient(ctx, [channels], [block * block])
    split: list[Size]
    if depth_first:
        split, axes = [batch, block, block, depth, height, width], [0, 3, 4, 1, 5, 2]
    else:
        split, axes = [batch, depth, block, block, height, width], [0, 1, 4, 2, 5, 3]
    spread_out = permute(ctx, ctx.reshape(x, split), axes)
    return ctx.reshape(
        spread_out, [batch, depth, product([height, block]), product([width, block])]
    )
