"""Operators with one operand: mathematical functions, activations, rounding and tests."""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import te, tirx

from rten_aot.dialect import vector_math
from rten_aot.dialect.registry import Layout, Pattern, define
from rten_aot.dialect.scalar import (
    absolute,
    at_least,
    at_most,
    negate,
    number,
    scaled,
    sign,
    truth,
)

Function = Callable[[tirx.Expr], tirx.Expr]


def elementwise(function: Function, x: te.Tensor, name: str) -> te.Tensor:
    """``function`` of every element."""
    return te.compute(tuple(x.shape), lambda *i: function(x(*i)), name=name)


def _library(symbol: str) -> Function:
    # libm by name: TVM's own lowering of some of these is far less exact.
    return lambda x: tirx.call_pure_extern("float32", symbol, x)


def _reciprocal(x: tirx.Expr) -> tirx.Expr:
    return number(1.0, x) / x


def _logical_not(x: tirx.Expr) -> tirx.Expr:
    return truth(x.equal(number(0, x)))


def _is_infinite(x: tirx.Expr) -> tirx.Expr:
    return truth(tirx.abs(x).equal(number(math.inf, x)))


def _is_nan(x: tirx.Expr) -> tirx.Expr:
    return truth(tirx.isnan(x))


def _relu(x: tirx.Expr) -> tirx.Expr:
    return at_least(x, 0)


def _round(x: tirx.Expr) -> tirx.Expr:
    return tirx.nearbyint(x)


def _hard_swish(x: tirx.Expr) -> tirx.Expr:
    gate = x * number(1.0 / 6.0, x) + number(0.5, x)
    return x * at_most(at_least(gate, 0.0), 1.0)


UNARY: dict[str, Function] = {
    "abs": absolute,
    "acos": _library("acosf"),
    "asin": _library("asinf"),
    "atan": _library("atanf"),
    "ceil": tirx.ceil,
    "cos": _library("cosf"),
    "erf": vector_math.erf,
    "exp": vector_math.exp,
    "floor": tirx.floor,
    "hard_swish": _hard_swish,
    "is_inf": _is_infinite,
    "is_nan": _is_nan,
    "log": vector_math.log,
    "logical_not": _logical_not,
    "negative": negate,
    "reciprocal": _reciprocal,
    "relu": _relu,
    "round": _round,
    "sigmoid": vector_math.sigmoid,
    "sign": sign,
    "sin": _library("sinf"),
    "softplus": vector_math.softplus,
    "sqrt": tirx.sqrt,
    "tan": _library("tanf"),
    "tanh": vector_math.tanh,
}
"""The operators without attributes, by name; each applies its function to every element."""


def _define_unary(name: str, function: Function) -> None:
    @define(name, layout=Layout.ELEMENTWISE, pattern=Pattern.ELEMENTWISE)
    def apply(x: te.Tensor) -> te.Tensor:
        return elementwise(function, x, name)


for _name, _function in UNARY.items():
    _define_unary(_name, _function)


@define("leaky_relu", layout=Layout.ELEMENTWISE, pattern=Pattern.ELEMENTWISE)
def leaky_relu(x: te.Tensor, *, alpha: float) -> te.Tensor:
    """``alpha * x`` where x is negative, else x."""

    def function(v: tirx.Expr) -> tirx.Expr:
        return tirx.Select(v < number(0.0, v), scaled(v, alpha), v)

    return elementwise(function, x, "leaky_relu")


@define("elu", layout=Layout.ELEMENTWISE, pattern=Pattern.ELEMENTWISE)
def elu(x: te.Tensor, *, alpha: float) -> te.Tensor:
    """``alpha * (e^x - 1)`` where x is negative, else x."""

    def function(v: tirx.Expr) -> tirx.Expr:
        # The formula has no value for a large positive x, which it is not used for.
        curve = scaled(vector_math.expm1(at_most(v, 0.0)), alpha)
        return tirx.Select(v < number(0.0, v), curve, v)

    return elementwise(function, x, "elu")


@define("hard_sigmoid", layout=Layout.ELEMENTWISE, pattern=Pattern.ELEMENTWISE)
def hard_sigmoid(x: te.Tensor, *, alpha: float, beta: float) -> te.Tensor:
    """``alpha * x + beta``, kept within 0 and 1."""

    def function(v: tirx.Expr) -> tirx.Expr:
        return at_most(at_least(scaled(v, alpha) + number(beta, v), 0.0), 1.0)

    return elementwise(function, x, "hard_sigmoid")


@define("gelu", layout=Layout.ELEMENTWISE, pattern=Pattern.ELEMENTWISE)
def gelu(x: te.Tensor, *, approximate: str) -> te.Tensor:
    """X times the normal distribution's probability of a value below x.

    ``approximate`` is "none" for the exact function, "tanh" for the formula of that name.
    """
    function = vector_math.gelu_tanh if approximate == "tanh" else vector_math.gelu_erf
    return elementwise(function, x, "gelu")


@define("clip", layout=Layout.ELEMENTWISE, pattern=Pattern.ELEMENTWISE)
def clip(x: te.Tensor, *, low: float | None, high: float | None) -> te.Tensor:
    """X kept within constant bounds, of which ``high`` wins; NaN stays."""

    def function(v: tirx.Expr) -> tirx.Expr:
        v = v if low is None else at_least(v, low)
        return v if high is None else at_most(v, high)

    return elementwise(function, x, "clip")
