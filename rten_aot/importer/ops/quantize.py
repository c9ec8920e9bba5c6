"""Quantisation to 8-bit integers and back: https://onnx.ai/onnx/operators/."""

from __future__ import annotations

from tvm import relax, tirx

import rten_aot.dialect.quantize
import rten_aot.dialect.reduce  # noqa: F401  (defines what is emitted here)
from rten_aot.importer.context import OpContext, Size
from rten_aot.importer.elementwise import check_type
from rten_aot.importer.ops.convert import DTYPES, convert_to
from rten_aot.importer.registry import FLOATS, INTEGERS, op
from rten_aot.importer.sizes import expr

QUANTIZED = {name: dtype for name, dtype in DTYPES.items() if dtype in ("int8", "uint8")}


def _parameters(
    ctx: OpContext, x: relax.Expr, scale: relax.Expr, zero_point: relax.Expr | None
) -> tuple[list[relax.Expr], int]:
    """Scale and zero point as scalars or as vectors along an axis of ``x``, and that axis."""
    check_type(ctx, scale, FLOATS)
    given = {"scale": scale} if zero_point is None else {"scale": scale, "zero point": zero_point}
    stated, shape = ctx.attrs.int("axis"), ctx.shape(x)
    # One number, of whatever rank, stands for all of the tensor; the axis is of no matter then.
    single = all(size == 1 for size in ctx.shape(scale))
    if single or (ctx.rank(scale) == 1 and not -len(shape) <= stated < len(shape)):
        for name, values in given.items():
            for size in ctx.shape(values):
                ctx.equal_dims(size, 1, f"one number is needed as {name}; sizes")
        return [ctx.reshape(v, []) if ctx.rank(v) else v for v in given.values()], 0
    axis = ctx.normalize_axis(stated, len(shape))
    for name, values in given.items():
        if ctx.rank(values) != 1:
            ctx.fail(f"a {name} of rank {ctx.rank(values)} is not supported; supported: 0, 1")
        _check_length(ctx, shape[axis], ctx.shape(values)[0], f"sizes of axis {axis} and {name}")
    return list(given.values()), axis


def _check_length(ctx: OpContext, size: Size, length: Size, what: str) -> None:
    if isinstance(length, int):
        ctx.equal_dims(size, length, what)
    elif not ctx.same(size, length):
        # It may turn out to be 1 at run time.
        fits = tirx.Or(tirx.EQ(length, expr(1)), tirx.EQ(length, expr(size)))
        ctx.require(fits, f"{what} {ctx.text(size)} and {ctx.text(length)} differ")


@op("QuantizeLinear", types=("float32", "int32"), limits="per tensor or per axis, not blocked")
def quantize_linear(
    ctx: OpContext, x: relax.Expr, scale: relax.Expr, zero_point: relax.Expr | None = None
) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html."""
    stated = ctx.attrs.enum("output_dtype", {**QUANTIZED, "any": None}, "any")
    dtype = stated or ("uint8" if zero_point is None else ctx.dtype(zero_point))
    if zero_point is not None:
        check_type(ctx, zero_point, ("uint8", "int8"))
        if ctx.dtype(zero_point) != dtype:
            ctx.shape_error(f"the zero point is {ctx.dtype(zero_point)}, the result {dtype}")
    operands, axis = _parameters(ctx, x, scale, zero_point)
    x = convert_to(ctx, x, "float32")
    return ctx.call("quantize_linear", x, *operands, axis=axis, dtype=dtype)


@op("DequantizeLinear", types=INTEGERS, limits="per tensor or per axis, not blocked")
def dequantize_linear(
    ctx: OpContext, x: relax.Expr, scale: relax.Expr, zero_point: relax.Expr | None = None
) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__DequantizeLinear.html."""
    if zero_point is not None and ctx.dtype(zero_point) != ctx.dtype(x):
        ctx.shape_error(f"the zero point is {ctx.dtype(zero_point)}, the input {ctx.dtype(x)}")
    operands, axis = _parameters(ctx, x, scale, zero_point)
    return ctx.call("dequantize_linear", x, *operands, axis=axis)


@op("DynamicQuantizeLinear", types=FLOATS)
def dynamic_quantize_linear(ctx: OpContext, x: relax.Expr) -> list[relax.Expr]:
    """https://onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html."""
    axes = list(range(ctx.rank(x)))
    low = ctx.reshape(ctx.call("reduce_min", x, axes=axes), [])
    high = ctx.reshape(ctx.call("reduce_max", x, axes=axes), [])
    scale = ctx.call("dynamic_scale", low, high)
    zero_point = ctx.call("dynamic_zero_point", low, scale)
    quantized = ctx.call("quantize_linear", x, scale, zero_point, axis=0, dtype="uint8")
    return [quantized, scale, zero_point]
