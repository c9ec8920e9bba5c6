"""Resize: https://onnx.ai/onnx/operators/onnx__Resize.html."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from tvm import relax, tirx

import rten_aot.dialect.generate
import rten_aot.dialect.resize  # noqa: F401  (both define what is emitted here)
from rten_aot.importer.context import Integers, OpContext, Size
from rten_aot.importer.elementwise import check_type
from rten_aot.importer.known import is_symbolic
from rten_aot.importer.registry import FLOATS, op
from rten_aot.importer.runtime_sizes import measured
from rten_aot.importer.runtime_sizes import sizes as sizes_of
from rten_aot.importer.sizes import at_least, expr, minimum, product
from rten_aot.importer.windows import simplified

COORDINATES = {
    "HalfPixel": "half_pixel",
    "Asymmetric": "asymmetric",
    "AlignCorners": "align_corners",
    "PytorchHalfPixel": "pytorch_half_pixel",
}
NEAREST = {
    "Floor": "floor",
    "Ceil": "ceil",
    "RoundPreferFloor": "round_prefer_floor",
    "RoundPreferCeil": "round_prefer_ceil",
}


def _given(ctx: OpContext, x: relax.Expr | None) -> relax.Expr | None:
    """An optional input; models of old say with an empty tensor that there is none."""
    return None if x is None or ctx.shape(x) == [0] else x


def _scale_of(ctx: OpContext, value: object) -> float:
    scale = float(value)  # type: ignore[arg-type]
    if not scale > 0 or math.isinf(scale):
        ctx.shape_error(f"a scale is {scale}")
    return scale


def _scaled(ctx: OpContext, size: Size, scale: float) -> Size:
    """The size that a scale makes of one: their product in float32, rounded down."""
    if isinstance(size, int):
        return int(np.floor(np.float32(size) * np.float32(scale)))
    exact = Fraction(scale)
    if exact.denominator <= 256:
        # No rounding takes place in float32 either.
        grown = size * exact.numerator
        return simplified(ctx, tirx.floordiv(grown, expr(exact.denominator)))
    # The conversion rounds down, since nothing is negative; Relax takes no calls in sizes.
    product = tirx.Cast("float32", size) * tirx.const(scale, "float32")
    return tirx.Cast("int64", product)


@op("Resize", data_dependent=True, limits="modes nearest and linear")
def resize(
    ctx: OpContext,
    x: relax.Expr,
    roi: relax.Expr | None = None,
    scales: relax.Expr | None = None,
    sizes: Integers | None = None,
) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Resize.html: all axes, without roi."""
    del roi  # of use only to a mode that the file format does not have
    mode = ctx.attrs.enum("mode", {"Nearest": "nearest", "Linear": "linear"})
    coordinates = ctx.attrs.enum("coord_mode", COORDINATES)
    nearest = ctx.attrs.enum("nearest_mode", NEAREST)
    if mode == "linear":
        check_type(ctx, x, FLOATS)
    shape = ctx.shape(x)
    factors: list[float] | None = None
    scales, sizes = _given(ctx, scales), _given(ctx, sizes)
    if scales is not None:
        content = ctx.contents(scales)
        if content is None or any(is_symbolic(v) for v in content.flat):
            return _by_computed_scales(ctx, x, scales, mode, coordinates, nearest)
        factors = [_scale_of(ctx, v) for v in content.flat]
        if len(factors) != len(shape):
            ctx.shape_error(f"{len(factors)} scales for an input of rank {len(shape)}")
        wanted = [_scaled(ctx, n, f) for n, f in zip(shape, factors, strict=True)]
    elif sizes is not None:
        computed = ctx.contents(sizes) is None
        wanted = sizes_of(ctx, sizes, "sizes", needed=len(shape))
        if computed and len(wanted) == len(shape):
            for d in range(_fixed_axes(ctx, x, mode)):
                wanted[d] = ctx.equal_dims(
                    shape[d], wanted[d], f"axis {d} cannot be resized; sizes"
                )
        if len(wanted) != len(shape):
            ctx.shape_error(f"{len(wanted)} sizes for an input of rank {len(shape)}")
        for size, result in zip(shape, wanted, strict=True):
            at_least(ctx, size, minimum(result, 1), "an axis without elements cannot be enlarged")
    else:
        ctx.fail("has neither scales nor sizes")
    changed = [
        d
        for d, size in enumerate(wanted)
        if not (factors[d] == 1.0 if factors is not None else ctx.same(size, shape[d]))
    ]
    return _resample(ctx, x, wanted, factors, changed, mode, coordinates, nearest)


def _fixed_axes(ctx: OpContext, x: relax.Expr, mode: str) -> int:
    """How many axes stay as they are where sizes or scales are known at run time only.

    Interpolation along batch and channels would cost all models much that few ever use.
    """
    return 2 if mode == "linear" and ctx.rank(x) > 2 else 0


def _by_computed_scales(
    ctx: OpContext,
    x: relax.Expr,
    scales: relax.Expr,
    mode: str,
    coordinates: str,
    nearest: str,
) -> relax.Expr:
    rank = ctx.rank(x)
    fixed = _fixed_axes(ctx, x, mode)
    ctx.equal_dims(product(ctx.shape(scales)), rank, "number of scales and rank: sizes")
    shape = ctx.shape_expr(ctx.shape(x))
    vector = ctx.call("scaled_sizes", scales, shape, fixed=fixed, node=ctx.node_index)
    wanted = measured(ctx, vector, rank, "size")
    axes = list(range(fixed, rank))
    sizes = ctx.shape_expr([wanted[axis] for axis in axes])
    attrs = {"mode": mode, "coordinates": coordinates, "nearest": nearest}
    return ctx.call("resize_axes", x, sizes, scales, axes=axes, **attrs)


def _resample(
    ctx: OpContext,
    x: relax.Expr,
    wanted: list[Size],
    factors: list[float] | None,
    changed: list[int],
    mode: str,
    coordinates: str,
    nearest: str,
) -> relax.Expr:
    if not changed:
        return x
    if any(isinstance(size, int) and size == 0 for size in wanted):
        return ctx.call("full", ctx.shape_expr(wanted), value=0, dtype=ctx.dtype(x))
    attrs = {"mode": mode, "coordinates": coordinates, "nearest": nearest}
    if ctx.rank(x) == 4 and min(changed) >= 2:
        scales = None if factors is None else factors[2:]
        return ctx.call("resize", x, ctx.shape_expr(wanted[2:]), scales=scales, **attrs)
    scales = None if factors is None else [factors[d] for d in changed]
    sizes = ctx.shape_expr([wanted[d] for d in changed])
    return ctx.call("resize_axes", x, sizes, axes=changed, scales=scales, **attrs)
