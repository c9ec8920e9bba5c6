"""Operators on each element alone: https://onnx.ai/onnx/operators/."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax, tirx

import rten_aot.dialect.arithmetic
import rten_aot.dialect.elementwise  # noqa: F401  (defines what is emitted here)
from rten_aot.importer.context import OpContext
from rten_aot.importer.known import (
    Element,
    Numbers,
    Symbolic,
    as_expr,
    flag,
    fold,
    never_negative,
    numbers_of,
)
from rten_aot.importer.registry import ALL_TYPES, FLOATS, INTEGERS, op
from rten_aot.importer.sizes import expr, one_element


def _unary(
    name: str,
    call: str,
    numbers: Numbers,
    *,
    types: tuple[str, ...] = FLOATS,
    symbolic: Symbolic | None = None,
    result: str | None = None,
) -> None:
    """Register an operator without attributes; ``result`` is its type if not the operand's."""

    @op(name, types=types)
    def convert(ctx: OpContext, x: relax.Expr) -> relax.Expr:
        folded = fold(ctx, [x], result or ctx.dtype(x), numbers, symbolic)
        return ctx.call(call, x) if folded is None else folded


def _negated(v: Element) -> Element:
    return expr(0) - as_expr(v)


def _magnitude(v: Element) -> Element:
    if never_negative(v):
        return v
    return tirx.max(as_expr(v), _negated(v))


def _sign(v: Element) -> Element:
    value = as_expr(v)
    below = tirx.Select(value < expr(0), expr(-1), expr(0))
    return tirx.Select(value > expr(0), expr(1), below)


def _inverted(v: Element) -> Element:
    return flag(tirx.EQ(as_expr(v), expr(0)))


def _itself(v: Element) -> Element:
    return v


def _truth(function: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Numbers:
    return lambda x: function(x).astype("int32")


def _sigmoid(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    result: npt.NDArray[Any] = 1 / (1 + np.exp(-x))
    return result


def _relu(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.where(x < 0, np.zeros_like(x), x)


_unary("Abs", "abs", np.abs, types=ALL_TYPES, symbolic=_magnitude)
_unary("Acos", "acos", np.arccos)
_unary("Asin", "asin", np.arcsin)
_unary("Atan", "atan", np.arctan)
_unary("Ceil", "ceil", np.ceil, symbolic=_itself)
_unary("Cos", "cos", np.cos)
_unary("Erf", "erf", np.vectorize(math.erf, otypes=["float32"]))
_unary("Exp", "exp", np.exp)
_unary("Floor", "floor", np.floor, symbolic=_itself)
_unary("HardSwish", "hard_swish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1))
_unary("IsInf", "is_inf", _truth(np.isinf), result="int32")
_unary("IsNaN", "is_nan", _truth(np.isnan), result="int32")
_unary("Log", "log", np.log)
_unary("Neg", "negative", np.negative, types=ALL_TYPES, symbolic=_negated)
_unary(
    "Not",
    "logical_not",
    _truth(np.logical_not),
    types=INTEGERS,
    symbolic=_inverted,
    result="int32",
)
_unary("Reciprocal", "reciprocal", np.reciprocal)
_unary("Relu", "relu", _relu, types=ALL_TYPES, symbolic=lambda v: tirx.max(as_expr(v), expr(0)))
_unary("Round", "round", np.rint, symbolic=_itself)
_unary("Sigmoid", "sigmoid", _sigmoid)
_unary("Sign", "sign", np.sign, types=ALL_TYPES, symbolic=_sign)
_unary("Sin", "sin", np.sin)
_unary("Softplus", "softplus", lambda x: np.logaddexp(x, np.float32(0)))
_unary("Sqrt", "sqrt", np.sqrt)
_unary("Tan", "tan", np.tan)
_unary("Tanh", "tanh", np.tanh)


@op("LeakyRelu", types=FLOATS)
def leaky_relu(ctx: OpContext, x: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__LeakyRelu.html."""
    return ctx.call("leaky_relu", x, alpha=ctx.attrs.float("alpha"))


@op("Elu", types=FLOATS)
def elu(ctx: OpContext, x: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Elu.html."""
    return ctx.call("elu", x, alpha=ctx.attrs.float("alpha"))


@op("HardSigmoid", types=FLOATS)
def hard_sigmoid(ctx: OpContext, x: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__HardSigmoid.html."""
    alpha, beta = ctx.attrs.float("alpha"), ctx.attrs.float("beta")
    return ctx.call("hard_sigmoid", x, alpha=alpha, beta=beta)


@op("Gelu", types=FLOATS)
def gelu(ctx: OpContext, x: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Gelu.html."""
    approximate = ctx.attrs.enum("approximate", {"None": "none", "Tanh": "tanh"}, "None")
    return ctx.call("gelu", x, approximate=approximate)


@op("Clip")
def clip(
    ctx: OpContext, x: relax.Expr, low: relax.Expr | None = None, high: relax.Expr | None = None
) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Clip.html."""
    for bound in (low, high):
        if bound is not None and ctx.dtype(bound) != ctx.dtype(x):
            ctx.shape_error(f"the bounds are {ctx.dtype(bound)}, the input is {ctx.dtype(x)}")
    result = x if low is None else _bounded(ctx, x, low, upper=False)
    return result if high is None else _bounded(ctx, result, high, upper=True)


def _bounded(ctx: OpContext, x: relax.Expr, bound: relax.Expr, *, upper: bool) -> relax.Expr:
    scalar = one_element(ctx, bound, "a bound")
    function, combine = (np.minimum, tirx.min) if upper else (np.maximum, tirx.max)
    dtype = ctx.dtype(x)
    folded = fold(ctx, [x, scalar], dtype, function, lambda a, b: combine(as_expr(a), as_expr(b)))
    if folded is not None:
        return folded
    numbers = numbers_of(ctx, scalar)
    number = math.nan if numbers is None else numbers.item()
    if math.isnan(number):
        return ctx.call("minimum" if upper else "maximum", x, scalar)
    return ctx.call("clip", x, low=None if upper else number, high=number if upper else None)
