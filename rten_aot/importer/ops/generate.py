"""Operators that make tensors from sizes and numbers."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

import rten_aot.dialect.generate
import rten_aot.dialect.indexing  # noqa: F401  (both define what is emitted here)
from rten_aot.importer.context import MAX_KNOWN_ELEMENTS, Integers, OpContext
from rten_aot.importer.elementwise import check_same_type
from rten_aot.importer.known import Element, is_symbolic, whole
from rten_aot.importer.ops.convert import convert_to
from rten_aot.importer.ops.layout import small
from rten_aot.importer.registry import op
from rten_aot.importer.runtime_sizes import measured, sizes
from rten_aot.importer.sizes import ceil_div, maximum, one_element

_DTYPES = {"Int32": "int32", "Float": "float32", "Int8": "int8", "UInt8": "uint8"}


@op("ConstantOfShape", data_dependent=True)
def constant_of_shape(ctx: OpContext, shape: Integers) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__ConstantOfShape.html."""
    value = ctx.attrs.scalar("value", default=0.0)
    wanted = sizes(ctx, shape, "the shape")
    dtype = "int32" if isinstance(value, int) else "float32"
    if small(wanted):
        return ctx.known(np.full(wanted, value, dtype=object), dtype)
    return ctx.call("full", ctx.shape_expr(wanted), value=value, dtype=dtype)


@op("Range", data_dependent=True)
def range_(ctx: OpContext, start: relax.Expr, limit: relax.Expr, delta: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Range.html."""
    operands = [start, limit, delta]
    check_same_type(ctx, *operands)
    for x in operands:
        one_element(ctx, x, "each of start, limit and delta")
    if any(ctx.contents(x) is None for x in operands):
        return _computed_range(ctx, start, limit, delta)
    values = [_element(ctx, x) for x in operands]
    if ctx.dtype(start) == "float32" and not any(map(is_symbolic, values)):
        return _float_range(ctx, *map(float, values))
    first, end, step = map(whole, values)
    if not isinstance(step, int) or first is None or end is None:
        return _computed_range(ctx, start, limit, delta)
    if step == 0:
        ctx.shape_error("delta is 0")
    distance = end - first if step > 0 else first - end
    count = maximum(ceil_div(distance, abs(step)), 0)
    if isinstance(first, int) and isinstance(count, int) and count <= MAX_KNOWN_ELEMENTS:
        numbers = np.array([first + i * step for i in range(count)], object)
        return ctx.known(numbers, ctx.dtype(start))
    numbers_of = [ctx.shape_expr([first, step]), ctx.shape_expr([count])]
    return ctx.call("arange", *numbers_of, dtype=ctx.dtype(start))


def _computed_range(
    ctx: OpContext, start: relax.Expr, limit: relax.Expr, delta: relax.Expr
) -> relax.Expr:
    total = ctx.call("range_count", start, limit, delta, node=ctx.node_index)
    return ctx.call("range", start, delta, ctx.shape_expr(measured(ctx, total, 1, "length")))


def _element(ctx: OpContext, x: relax.Expr) -> Element:
    content = ctx.contents(x)
    assert content is not None
    value: Element = content.flat[0]
    return value


def _float_range(ctx: OpContext, start: float, limit: float, step: float) -> relax.Expr:
    if step == 0 or not math.isfinite((limit - start) / step):
        ctx.shape_error(f"there is no range from {start} to {limit} by {step}")
    count = max(math.ceil((limit - start) / step), 0)
    if count <= MAX_KNOWN_ELEMENTS:
        steps = np.arange(count, dtype=np.float32) * np.float32(step)
        return ctx.const(np.float32(start) + steps, "float32")
    return ctx.call("float_arange", ctx.shape_expr([count]), start=start, step=step)


@op("EyeLike")
def eye_like(ctx: OpContext, x: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__EyeLike.html."""
    own = next(name for name, dtype in _DTYPES.items() if dtype == ctx.dtype(x))
    dtype = ctx.attrs.enum("dtype", _DTYPES, default=own)
    k = ctx.attrs.int("k", default=0)
    shape = ctx.shape(x)
    if len(shape) != 2:
        ctx.shape_error(f"the input has rank {len(shape)}; needed: 2")
    return ctx.call("eye", ctx.shape_expr(shape), k=k, dtype=dtype)


@op("OneHot", data_dependent=True)
def one_hot(
    ctx: OpContext, indices: relax.Expr, depth: relax.Expr, values: relax.Expr
) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__OneHot.html."""
    axis = ctx.normalize_axis(ctx.attrs.int("axis", default=-1), ctx.rank(indices) + 1)
    count = sizes(ctx, one_element(ctx, convert_to(ctx, depth, "int32"), "depth"), "depth")
    if ctx.rank(values) != 1:
        ctx.shape_error(f"values have rank {ctx.rank(values)}; needed: 1")
    ctx.equal_dims(ctx.shape(values)[0], 2, "values must be two; sizes")
    return ctx.call("one_hot", indices, ctx.shape_expr(count), values, axis=axis)


@op("Trilu")
def trilu(ctx: OpContext, x: relax.Expr, k: Integers | None = None) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Trilu.html."""
    upper = ctx.attrs.bool("upper", default=True)
    if ctx.rank(x) < 2:
        ctx.shape_error(f"the input has rank {ctx.rank(x)}; needed: 2 or more")
    diagonal: relax.Expr = ctx.shape_expr([0])
    if k is not None:
        one_element(ctx, k, "k")
        known = ctx.contents(k)
        diagonal = k if known is None else ctx.shape_expr(ctx.ints(k, "k"))
    return ctx.call("trilu", x, diagonal, upper=upper)
