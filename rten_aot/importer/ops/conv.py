"""Convolutions: https://onnx.ai/onnx/operators/."""

from __future__ import annotations

from typing import Any

from tvm import relax

import rten_aot.dialect.arithmetic
import rten_aot.dialect.conv  # noqa: F401  (defines what is emitted here)
from rten_aot.importer.context import OpContext
from rten_aot.importer.elementwise import check_type
from rten_aot.importer.known import numbers_of
from rten_aot.importer.ops.convert import convert_to
from rten_aot.importer.registry import FLOATS, op
from rten_aot.importer.sizes import at_least, one_element, stretches
from rten_aot.importer.volumes import convolve, convolve_transposed
from rten_aot.importer.windows import (
    Windows,
    as_line,
    as_plane,
    fixed_pads,
    per_axis,
    read_windows,
    simplified,
    spatial_rank,
)


def _kernel(ctx: OpContext, w: relax.Expr, rank: int) -> list[int]:
    if ctx.rank(w) != rank + 2:
        ctx.shape_error(f"weights of rank {ctx.rank(w)} for an input of rank {rank + 2}")
    sizes: list[int] = []
    for size in ctx.shape(w)[2:]:
        if not isinstance(size, int):
            ctx.fail("weights of unknown kernel size are not supported")
        sizes.append(size)
    return [1] * (2 - rank) + sizes


def _groups(ctx: OpContext, channels: Any, own: Any) -> int:
    """The number of groups, into which ``channels`` of the input fall, ``own`` for each."""
    groups = ctx.attrs.int("groups", default=1)
    if groups < 1:
        ctx.shape_error(f'attribute "groups" has the value {groups}')
    ctx.equal_dims(channels, own * groups, "numbers of channels of input and weights")
    return groups


def _with_bias(ctx: OpContext, x: relax.Expr, bias: relax.Expr | None) -> relax.Expr:
    if bias is None:
        return x
    check_type(ctx, bias, (ctx.dtype(x),))
    if ctx.rank(bias) != 1:
        ctx.shape_error(f"the bias has rank {ctx.rank(bias)}, not 1")
    channels = ctx.equal_dims(ctx.shape(x)[1], ctx.shape(bias)[0], "sizes of bias and result")
    return ctx.call("add", x, ctx.reshape(bias, [1, channels, *[1] * (ctx.rank(x) - 2)]))


def _convolve(ctx: OpContext, x: relax.Expr, w: relax.Expr, bias: relax.Expr | None) -> relax.Expr:
    rank = spatial_rank(ctx, x)
    kernel = _kernel(ctx, w, rank)
    dilations = per_axis(ctx, "dilations", rank)
    plane, weights = as_plane(ctx, x), as_plane(ctx, w)
    channels, *sizes = ctx.shape(plane)[1:]
    windows = read_windows(ctx, sizes, kernel, dilations, rank)
    results, own = ctx.shape(weights)[:2]
    groups = _groups(ctx, channels, own)
    if not isinstance(results, int):
        ctx.fail("weights of unknown output channels are not supported")
    if results % groups:
        ctx.shape_error(f"{results} output channels cannot be divided into {groups} groups")
    result = convolve(ctx, plane, weights, windows, groups)
    return as_line(ctx, _with_bias(ctx, result, bias), rank)


@op("Conv", types=FLOATS)
def conv(
    ctx: OpContext, x: relax.Expr, w: relax.Expr, bias: relax.Expr | None = None
) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Conv.html."""
    check_type(ctx, w, FLOATS)
    return _convolve(ctx, x, w, bias)


@op("ConvInteger", types=("uint8", "int8"))
def conv_integer(
    ctx: OpContext,
    x: relax.Expr,
    w: relax.Expr,
    x_zero_point: relax.Expr | None = None,
    w_zero_point: relax.Expr | None = None,
) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__ConvInteger.html: padding stands for zero."""
    for operand in (x, w):
        check_type(ctx, operand, ("uint8", "int8"))
    if x_zero_point is not None:
        x = _centred(ctx, x, one_element(ctx, x_zero_point, "the zero point of the input"))
    if w_zero_point is not None:
        counts, channels = ctx.shape(w_zero_point), ctx.shape(w)[:1]
        stretches(ctx, counts, channels, "numbers of weights and zero points")
        alone = not counts or channels == [1]
        shape = [] if alone else [*counts, *[1] * (ctx.rank(w) - 1)]
        w = _centred(ctx, w, ctx.reshape(w_zero_point, shape))
    return _convolve(ctx, x, w, None)


def _centred(ctx: OpContext, x: relax.Expr, zero_point: relax.Expr) -> relax.Expr:
    """``x`` less its zero point, in int32; ``x`` itself if there is nothing to subtract."""
    check_type(ctx, zero_point, (ctx.dtype(x),))
    known = numbers_of(ctx, zero_point)
    if known is not None and not known.any():
        return x
    shift = convert_to(ctx, zero_point, "int32")
    return ctx.call("subtract", convert_to(ctx, x, "int32"), shift)


@op("ConvTranspose", types=FLOATS)
def conv_transpose(
    ctx: OpContext, x: relax.Expr, w: relax.Expr, bias: relax.Expr | None = None
) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__ConvTranspose.html, without dilations."""
    check_type(ctx, w, FLOATS)
    rank = spatial_rank(ctx, x)
    kernel = _kernel(ctx, w, rank)
    strides = per_axis(ctx, "strides", rank)
    extra = per_axis(ctx, "output_padding", rank, default=0)
    plane, weights = as_plane(ctx, x), as_plane(ctx, w)
    channels, *sizes = ctx.shape(plane)[1:]
    groups = ctx.attrs.int("groups", default=1)
    if groups < 1:
        ctx.shape_error(f'attribute "groups" has the value {groups}')
    ctx.equal_dims(channels, ctx.shape(weights)[0], "numbers of channels of input and weights")
    if isinstance(channels, int) and channels % groups:
        ctx.shape_error(f"{channels} channels cannot be divided into {groups} groups")
    pads = fixed_pads(ctx, rank)
    if ctx.attrs.enum("auto_pad", {"Same": True, "NotSet": False}, "NotSet"):
        pads, extra = _same_pads(kernel, strides, extra)
    windows = Windows(kernel, strides, [1] * len(kernel), list(pads))
    for d, size in enumerate(sizes):
        full = (size - 1) * strides[d] + kernel[d] + extra[d]
        message = "the padding is larger than the result"
        at_least(ctx, simplified(ctx, full), windows.pad_of(d), message)
        at_least(ctx, size, 1, "the input has no elements along a spatial axis")
    result = convolve_transposed(ctx, plane, weights, windows, extra, groups)
    return as_line(ctx, _with_bias(ctx, result, bias), rank)


def _same_pads(
    kernel: list[int], strides: list[int], extra: list[int]
) -> tuple[list[int], list[int]]:
    """Padding and output padding with which the result is ``strides`` times as large."""
    surplus = [k - s + e for k, s, e in zip(kernel, strides, extra, strict=True)]
    before = [max(s, 0) // 2 for s in surplus]
    after = [max(s, 0) - b for s, b in zip(surplus, before, strict=True)]
    # A kernel shorter than its stride leaves the end of the result without any tap.
    lengthened = [e + max(-s, 0) for s, e in zip(surplus, extra, strict=True)]
    return [*before, *after], lengthened
