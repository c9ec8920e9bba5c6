"""Quantisation to 8-bit integers and back: https://onnx.ai/onnx/operators/."""

from __future__ import annotations

from tvm import relax

import rten_aot.dialect.quantize
import rten_aot.dialect.reduce  # noqa: F401  (defines what is emitted here)
from rten_aot.importer.context import OpContext
from rten_aot.importer.elementwise import FLOATS, INTEGERS, check_type
from rten_aot.importer.ops.convert import DTYPES, convert_to
from rten_aot.importer.registry import op

QUANTIZED = {name: dtype for name, dtype in DTYPES.items() if dtype in ("int8", "uint8")}


def _parameters(
    ctx: OpContext, x: relax.Expr, scale: relax.Expr, zero_point: relax.Expr | None
) -> tuple[list[relax.Expr], int]:
    """Scale and zero point as scalars or as vectors along an axis of ``x``, and that axis."""
    axis, shape = ctx.attrs.int("axis"), ctx.shape(x)
    given = [scale] if zero_point is None else [scale, zero_point]
    check_type(ctx, scale, FLOATS)
    # One number, of whatever rank, stands for all of the tensor; the axis is of no matter then.
    if all(size == 1 for size in ctx.shape(scale)):
        for name, values in zip(("scale", "zero point"), given, strict=False):
            if any(size != 1 for size in ctx.shape(values)):
                ctx.shape_error(f"the {name} has more than one element, but the scale has one")
        return [ctx.reshape(v, []) if ctx.rank(v) else v for v in given], 0
    axis = ctx.normalize_axis(axis, len(shape))
    for name, values in zip(("scale", "zero point"), given, strict=False):
        if ctx.rank(values) != 1:
            ctx.fail(f"a {name} of rank {ctx.rank(values)} is not supported; supported: 0, 1")
        ctx.equal_dims(shape[axis], ctx.shape(values)[0], f"sizes of axis {axis} and {name}")
    return given, axis


@op("QuantizeLinear", limits="per tensor or per axis, not blocked")
def quantize_linear(
    ctx: OpContext, x: relax.Expr, scale: relax.Expr, zero_point: relax.Expr | None = None
) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html."""
    check_type(ctx, x, ("float32", "int32"))
    stated = ctx.attrs.enum("output_dtype", {**QUANTIZED, "any": None}, "any")
    dtype = stated or ("uint8" if zero_point is None else ctx.dtype(zero_point))
    if zero_point is not None:
        check_type(ctx, zero_point, ("uint8", "int8"))
        if ctx.dtype(zero_point) != dtype:
            ctx.shape_error(f"the zero point is {ctx.dtype(zero_point)}, the result {dtype}")
    operands, axis = _parameters(ctx, x, scale, zero_point)
    x = convert_to(ctx, x, "float32")
    return ctx.call("quantize_linear", x, *operands, axis=axis, dtype=dtype)


@op("DequantizeLinear", limits="per tensor or per axis, not blocked")
def dequantize_linear(
    ctx: OpContext, x: relax.Expr, scale: relax.Expr, zero_point: relax.Expr | None = None
) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__DequantizeLinear.html."""
    check_type(ctx, x, INTEGERS)
    if zero_point is not None and ctx.dtype(zero_point) != ctx.dtype(x):
        ctx.shape_error(f"the zero point is {ctx.dtype(zero_point)}, the input {ctx.dtype(x)}")
    operands, axis = _parameters(ctx, x, scale, zero_point)
    return ctx.call("dequantize_linear", x, *operands, axis=axis)


@op("DynamicQuantizeLinear")
def dynamic_quantize_linear(ctx: OpContext, x: relax.Expr) -> list[relax.Expr]:
    """https://onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html."""
    check_type(ctx, x, FLOATS)
    axes = list(range(ctx.rank(x)))
    low = ctx.reshape(ctx.call("reduce_min", x, axes=axes), [])
    high = ctx.reshape(ctx.call("reduce_max", x, axes=axes), [])
    scale = ctx.call("dynamic_scale", low, high)
    zero_point = ctx.call("dynamic_zero_point", low, scale)
    quantized = ctx.call("quantize_linear", x, scale, zero_point, axis=0, dtype="uint8")
    return [quantized, scale, zero_point]
