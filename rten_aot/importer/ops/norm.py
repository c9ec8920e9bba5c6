"""Normalisations and softmax: https://onnx.ai/onnx/operators/."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

import rten_aot.dialect.arithmetic
import rten_aot.dialect.elementwise
import rten_aot.dialect.norm  # noqa: F401  (defines what is emitted here)
from rten_aot.importer.context import OpContext, Size
from rten_aot.importer.elementwise import check_type, emit
from rten_aot.importer.registry import FLOATS, op
from rten_aot.importer.sizes import stretches


def _check_channels(ctx: OpContext, x: relax.Expr, **statistics: relax.Expr) -> list[Size]:
    """The shape in which a value per channel is broadcast against ``x``."""
    shape = ctx.shape(x)
    if len(shape) < 2:
        ctx.shape_error(f"the input has rank {len(shape)}; it must have a batch and a channel axis")
    channels = shape[1]
    for name, values in statistics.items():
        check_type(ctx, values, FLOATS)
        if ctx.rank(values) != 1:
            ctx.shape_error(f"{name} has rank {ctx.rank(values)}, not 1")
        channels = ctx.equal_dims(
            channels, ctx.shape(values)[0], f"the numbers of channels and {name}"
        )
    return [1, channels, *[1] * (len(shape) - 2)]


@op("BatchNormalization", types=FLOATS)
def batch_normalization(
    ctx: OpContext,
    x: relax.Expr,
    scale: relax.Expr,
    bias: relax.Expr,
    mean: relax.Expr,
    variance: relax.Expr,
) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__BatchNormalization.html, as used for inference."""
    epsilon = ctx.attrs.float("epsilon")
    shape = _check_channels(ctx, x, scale=scale, bias=bias, mean=mean, variance=variance)
    arrays = [ctx.constant_array(v) for v in (scale, bias, mean, variance)]
    if all(a is not None for a in arrays):
        s, b, m, v = (np.asarray(a, dtype="float64") for a in arrays)
        with np.errstate(all="ignore"):
            factor = s / np.sqrt(v + np.float64(np.float32(epsilon)))
            shift = b - m * factor
        sizes = [int(n) for n in shape]
        factors = ctx.const(factor.reshape(sizes), "float32")
        scaled = ctx.call("multiply", x, factors)
        return ctx.call("add", scaled, ctx.const(shift.reshape(sizes), "float32"))
    return _general(ctx, x, [ctx.reshape(v, shape) for v in (scale, bias, mean, variance)], epsilon)


def _general(
    ctx: OpContext, x: relax.Expr, statistics: Sequence[relax.Expr], epsilon: float
) -> relax.Expr:
    scale, bias, mean, variance = statistics
    spread = ctx.call("sqrt", ctx.call("add", variance, ctx.const(np.float32(epsilon))))
    factor = ctx.call("divide", scale, spread, node=None)
    centred = ctx.call("subtract", x, mean)
    return ctx.call("add", ctx.call("multiply", centred, factor), bias)


@op("InstanceNormalization", types=FLOATS)
def instance_normalization(
    ctx: OpContext, x: relax.Expr, scale: relax.Expr, bias: relax.Expr
) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__InstanceNormalization.html."""
    shape = _check_channels(ctx, x, scale=scale, bias=bias)
    axes = list(range(2, len(shape)))
    normal = ctx.call("normalize", x, axes=axes, epsilon=ctx.attrs.float("epsilon"))
    scaled = ctx.call("multiply", normal, ctx.reshape(scale, shape))
    return ctx.call("add", scaled, ctx.reshape(bias, shape))


@op("LayerNormalization", types=FLOATS)
def layer_normalization(
    ctx: OpContext, x: relax.Expr, scale: relax.Expr, bias: relax.Expr | None = None
) -> list[relax.Expr | None]:
    """https://onnx.ai/onnx/operators/onnx__LayerNormalization.html."""
    rank = ctx.rank(x)
    axis = ctx.normalize_axis(ctx.attrs.int("axis"), rank)
    epsilon = ctx.attrs.float("epsilon")
    axes = list(range(axis, rank))
    for name, values in {"scale": scale, "bias": bias}.items():
        if values is not None:
            check_type(ctx, values, FLOATS)
            stretches(ctx, ctx.shape(values), ctx.shape(x), f"sizes of input and {name}")
    operands = [x, scale] if bias is None else [x, scale, bias]
    result = ctx.call("layer_norm", *operands, axes=axes, epsilon=epsilon)
    wanted = [index is not None for index in ctx.node.outputs[1:]]
    if not any(wanted):
        return [result]
    mean = ctx.call("reduce_mean", x, axes=axes)
    variance = ctx.call("reduce_mean", _square(ctx, emit(ctx, "subtract", x, mean)), axes=axes)
    spread = ctx.call("sqrt", ctx.call("add", variance, ctx.const(np.float32(epsilon))))
    return [result, mean, ctx.call("reciprocal", spread)]


def _square(ctx: OpContext, x: relax.Expr) -> relax.Expr:
    return ctx.call("multiply", x, x)


def _softmax(name: str, call: str) -> None:
    @op(name, types=FLOATS)
    def convert(ctx: OpContext, x: relax.Expr) -> relax.Expr:
        return ctx.call(call, x, axis=ctx.normalize_axis(ctx.attrs.int("axis"), ctx.rank(x)))


_softmax("Softmax", "softmax")
_softmax("LogSoftmax", "log_softmax")
