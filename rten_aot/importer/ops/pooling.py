"""Pooling: https://onnx.ai/onnx/operators/."""

from __future__ import annotations

from tvm import relax, tirx

import rten_aot.dialect.pooling  # noqa: F401  (defines what is emitted here)
from rten_aot.importer.context import OpContext, Size
from rten_aot.importer.registry import FLOATS, op
from rten_aot.importer.sizes import ceil_div, choose, expr
from rten_aot.importer.volumes import pool
from rten_aot.importer.windows import (
    Windows,
    as_line,
    as_plane,
    per_axis,
    read_windows,
    simplified,
    spatial_rank,
)


def _windows(ctx: OpContext, x: relax.Expr, rank: int) -> tuple[Windows, list[Size]]:
    """The windows and how many of them there are along each spatial axis."""
    kernel = per_axis(ctx, "kernel_size", rank)
    ceil_mode = ctx.attrs.bool("ceil_mode", default=False)
    sizes = ctx.shape(x)[2:]
    windows = read_windows(ctx, sizes, kernel, [1] * len(kernel), rank)
    return windows, [
        _count(ctx, size, windows, d, ceil_mode=ceil_mode) for d, size in enumerate(sizes)
    ]


def _count(ctx: OpContext, size: Size, windows: Windows, axis: int, *, ceil_mode: bool) -> Size:
    stride = windows.strides[axis]
    room = simplified(ctx, windows.room(axis, size))
    if not ceil_mode:
        whole = room // stride if isinstance(room, int) else tirx.floordiv(room, expr(stride))
        return simplified(ctx, whole + 1)
    count = ceil_div(room, stride) + 1
    # The last window must start on the input or on the padding before it.
    start, end = (count - 1) * stride, size + windows.pads[axis]
    if isinstance(start, int) and isinstance(end, int):
        return count - 1 if start >= end else count
    return simplified(ctx, choose(expr(start) >= expr(end), count - 1, count))


@op("MaxPool")
def max_pool(ctx: OpContext, x: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__MaxPool.html."""
    return _pool(ctx, x, "max_pool")


@op("AveragePool", types=FLOATS)
def average_pool(ctx: OpContext, x: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__AveragePool.html."""
    include = ctx.attrs.bool("count_include_pad", default=False)
    return _pool(ctx, x, "average_pool", count_include_pad=include)


def _pool(ctx: OpContext, x: relax.Expr, name: str, **attrs: bool) -> relax.Expr:
    rank = spatial_rank(ctx, x)
    plane = as_plane(ctx, x)
    windows, sizes = _windows(ctx, plane, rank)
    result = pool(ctx, name, plane, windows, sizes, **attrs)
    return as_line(ctx, result, rank)


@op("GlobalAveragePool", types=FLOATS)
def global_average_pool(ctx: OpContext, x: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__GlobalAveragePool.html."""
    return ctx.call("global_average_pool", x)
