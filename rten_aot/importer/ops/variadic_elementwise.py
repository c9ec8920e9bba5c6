"""Max, Mean, Min and Sum of any number of tensors: https://onnx.ai/onnx/operators/."""

from __future__ import annotations

import functools

import numpy as np
from tvm import relax, tirx

import rten_aot.dialect.arithmetic  # noqa: F401  (defines what is emitted here)
from rten_aot.importer.context import OpContext
from rten_aot.importer.elementwise import check_same_type, check_type, combine, emit
from rten_aot.importer.known import Element, Numbers, Symbolic, as_expr
from rten_aot.importer.registry import FLOATS, op


def _fold_pairs(
    ctx: OpContext, xs: tuple[relax.Expr, ...], call: str, numbers: Numbers, symbolic: Symbolic
) -> relax.Expr:
    if not xs:
        ctx.fail("has no inputs")
    dtype = check_same_type(ctx, *xs)
    return functools.reduce(lambda a, b: combine(ctx, call, a, b, numbers, symbolic, dtype), xs)


def _greater(a: Element, b: Element) -> Element:
    return tirx.max(as_expr(a), as_expr(b))


def _lesser(a: Element, b: Element) -> Element:
    return tirx.min(as_expr(a), as_expr(b))


def _total(a: Element, b: Element) -> Element:
    return as_expr(a) + as_expr(b)


@op("Max")
def max_(ctx: OpContext, *xs: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Max.html."""
    return _fold_pairs(ctx, xs, "maximum", np.maximum, _greater)


@op("Min")
def min_(ctx: OpContext, *xs: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Min.html."""
    return _fold_pairs(ctx, xs, "minimum", np.minimum, _lesser)


@op("Sum")
def sum_(ctx: OpContext, *xs: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Sum.html."""
    return _fold_pairs(ctx, xs, "add", np.add, _total)


@op("Mean", types=FLOATS)
def mean(ctx: OpContext, *xs: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Mean.html."""
    for x in xs:
        check_type(ctx, x, FLOATS)
    total = _fold_pairs(ctx, xs, "add", np.add, _total)
    return emit(ctx, "divide", total, ctx.const(np.float32(len(xs))), node=None)
