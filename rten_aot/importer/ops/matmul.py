"""Matrix products: https://onnx.ai/onnx/operators/."""

from __future__ import annotations

import numpy as np
from tvm import relax

import rten_aot.dialect.arithmetic
import rten_aot.dialect.matmul
import rten_aot.dialect.movement
import rten_aot.dialect.reduce  # noqa: F401  (defines what is emitted here)
from rten_aot.importer.context import OpContext, Size
from rten_aot.importer.elementwise import check_same_type, check_type, emit
from rten_aot.importer.known import numbers_of
from rten_aot.importer.ops.convert import convert_to
from rten_aot.importer.registry import FLOATS, op
from rten_aot.importer.sizes import broadcast, stretches


def _as_matrices(
    ctx: OpContext, a: relax.Expr, b: relax.Expr
) -> tuple[relax.Expr, relax.Expr, list[int]]:
    """The operands with at least two axes, and the axes from the end that the result must lose."""
    for x in (a, b):
        if ctx.rank(x) == 0:
            ctx.shape_error("the operands of a matrix product must not be scalars")
    surplus = []
    if ctx.rank(a) == 1:
        a = ctx.reshape(a, [1, *ctx.shape(a)])
        surplus.append(2)
    if ctx.rank(b) == 1:
        b = ctx.reshape(b, [*ctx.shape(b), 1])
        surplus.append(1)
    ctx.equal_dims(ctx.shape(a)[-1], ctx.shape(b)[-2], "inner sizes of the product")
    leading_a, leading_b = ctx.shape(a)[:-2], ctx.shape(b)[:-2]
    for m, n in zip(reversed(leading_a), reversed(leading_b), strict=False):
        broadcast(ctx, m, n)
    return a, b, surplus


def _without(ctx: OpContext, x: relax.Expr, surplus: list[int]) -> relax.Expr:
    if not surplus:
        return x
    shape: list[Size] = ctx.shape(x)
    rank = len(shape)
    return ctx.reshape(x, [size for i, size in enumerate(shape) if rank - i not in surplus])


@op("MatMul", types=("float32", "int32"))
def matmul(ctx: OpContext, a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__MatMul.html."""
    check_same_type(ctx, a, b)
    left, right, surplus = _as_matrices(ctx, a, b)
    return _without(ctx, ctx.call("matmul", left, right), surplus)


@op("Gemm", types=FLOATS)
def gemm(ctx: OpContext, a: relax.Expr, b: relax.Expr, c: relax.Expr | None = None) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Gemm.html."""
    alpha, beta = ctx.attrs.float("alpha"), ctx.attrs.float("beta")
    transpose_a, transpose_b = ctx.attrs.bool("transpose_a"), ctx.attrs.bool("transpose_b")
    for x in (a, b, *([] if c is None else [c])):
        check_type(ctx, x, FLOATS)
    for x in (a, b):
        if ctx.rank(x) != 2:
            ctx.shape_error(f"the factors must be matrices, but one has rank {ctx.rank(x)}")
    if transpose_a:
        a = ctx.call("transpose", a, axes=[1, 0])
    inner = ctx.shape(b)[1 if transpose_b else 0]
    ctx.equal_dims(ctx.shape(a)[1], inner, "inner sizes of the product")
    result = ctx.call("matmul", a, b, transpose_b=transpose_b)
    if alpha != 1.0:
        result = ctx.call("multiply", result, ctx.const(np.float32(alpha)))
    if c is None or beta == 0.0:
        return result
    stretches(ctx, ctx.shape(c), ctx.shape(result), "sizes of product and addend")
    return ctx.call("add", result, _scaled(ctx, c, beta))


def _scaled(ctx: OpContext, c: relax.Expr, beta: float) -> relax.Expr:
    if beta == 1.0:
        return c
    constant = ctx.constant_array(c)
    if constant is not None:
        return ctx.const(constant * np.float32(beta), "float32")
    return ctx.call("multiply", c, ctx.const(np.float32(beta)))


@op("MatMulInteger", types=("uint8", "int8"))
def matmul_integer(
    ctx: OpContext,
    a: relax.Expr,
    b: relax.Expr,
    a_zero_point: relax.Expr | None = None,
    b_zero_point: relax.Expr | None = None,
) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__MatMulInteger.html."""
    for x in (a, b):
        check_type(ctx, x, ("uint8", "int8"))
    shift_a = _zero_point(ctx, a, a_zero_point, row=True)
    shift_b = _zero_point(ctx, b, b_zero_point, row=False)
    a, b, surplus = _as_matrices(ctx, a, b)
    if shift_b is not None:
        b = emit(ctx, "subtract", convert_to(ctx, b, "int32"), shift_b)
    result = ctx.call("matmul", a, b)
    if shift_a is not None:
        # (a - z) b = a b - z (sum of b's rows): a stays in 8 bits.
        axis = ctx.rank(b) - 2
        sums = ctx.call("reduce_sum", convert_to(ctx, b, "int32"), axes=[axis])
        correction = emit(ctx, "multiply", sums, shift_a)
        result = emit(ctx, "subtract", result, correction)
    return _without(ctx, result, surplus)


def _zero_point(
    ctx: OpContext, x: relax.Expr, zero_point: relax.Expr | None, *, row: bool
) -> relax.Expr | None:
    """The zero point in int32, shaped to be broadcast against ``x``; None if it is 0."""
    if zero_point is None:
        return None
    check_type(ctx, zero_point, (ctx.dtype(x),))
    numbers = numbers_of(ctx, zero_point)
    if numbers is not None and not numbers.any():
        return None
    shape = ctx.shape(zero_point)
    places: list[Size] = ctx.shape(x) if ctx.rank(x) > 1 else [1, 1]
    name = "rows" if row else "columns"
    if all(size == 1 for size in shape):
        shaped = ctx.reshape(zero_point, [])
    elif len(shape) == 1:
        stretches(ctx, shape, [places[-2 if row else -1]], f"numbers of {name} and zero points")
        shaped = ctx.reshape(zero_point, [shape[0], 1] if row else [1, shape[0]])
    else:
        places[-1 if row else -2] = 1
        stretches(ctx, shape, places, f"numbers of {name} and zero points")
        shaped = zero_point
    return convert_to(ctx, shaped, "int32")
