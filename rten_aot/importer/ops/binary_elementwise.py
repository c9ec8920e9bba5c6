"""Operators on two or three tensors that are broadcast: https://onnx.ai/onnx/operators/."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax, tirx

import rten_aot.dialect.arithmetic
import rten_aot.dialect.power  # noqa: F401  (defines what is emitted here)
from rten_aot.importer.context import OpContext
from rten_aot.importer.elementwise import check_broadcast, check_same_type, combine, emit
from rten_aot.importer.known import (
    Element,
    Numbers,
    Symbolic,
    as_expr,
    flag,
    fold,
    is_symbolic,
    never_negative,
    numbers_of,
)
from rten_aot.importer.registry import ALL_TYPES, INTEGERS, op
from rten_aot.importer.sizes import expr, stretches

Array = npt.NDArray[Any]


def _binary(
    name: str,
    call: str,
    numbers: Numbers,
    symbolic: Symbolic | None,
    *,
    types: Sequence[str] = ALL_TYPES,
    result: str | None = None,
) -> None:
    """Register an operator without attributes; ``result`` is its type if not the operands'."""

    @op(name, types=types)
    def convert(ctx: OpContext, a: relax.Expr, b: relax.Expr) -> relax.Expr:
        dtype = check_same_type(ctx, a, b)
        return combine(ctx, call, a, b, numbers, symbolic, result or dtype)


def _arithmetic(function: Callable[[tirx.Expr, tirx.Expr], Element | None]) -> Symbolic:
    return lambda a, b: function(as_expr(a), as_expr(b))


def _truth(function: Callable[[Array, Array], Array]) -> Numbers:
    return lambda a, b: function(a, b).astype("int32")


def _equal(a: tirx.Expr, b: tirx.Expr) -> Element:
    # Sizes are never negative; exported models compare them with -1.
    for one, other in ((a, b), (b, a)):
        if isinstance(one, tirx.IntImm) and int(one.value) < 0 and never_negative(other):
            return 0
    return flag(tirx.EQ(a, b))


def _true(a: tirx.Expr) -> tirx.Expr:
    return tirx.NE(a, expr(0))


COMPARISONS: dict[str, tuple[str, Callable[[Array, Array], Array], Any]] = {
    "Equal": ("equal", np.equal, _equal),
    "Greater": ("greater", np.greater, lambda a, b: flag(a > b)),
    "GreaterOrEqual": ("greater_equal", np.greater_equal, lambda a, b: flag(a >= b)),
    "Less": ("less", np.less, lambda a, b: flag(a < b)),
    "LessOrEqual": ("less_equal", np.less_equal, lambda a, b: flag(a <= b)),
}
LOGICAL: dict[str, tuple[str, Callable[[Array, Array], Array], Any]] = {
    "And": ("logical_and", np.logical_and, lambda a, b: flag(tirx.And(_true(a), _true(b)))),
    "Or": ("logical_or", np.logical_or, lambda a, b: flag(tirx.Or(_true(a), _true(b)))),
    "Xor": ("logical_xor", np.logical_xor, lambda a, b: flag(tirx.NE(_flag_of(a), _flag_of(b)))),
}


def _flag_of(a: tirx.Expr) -> tirx.Expr:
    return flag(_true(a))


for _name, (_call, _numbers, _symbolic) in COMPARISONS.items():
    _binary(_name, _call, _truth(_numbers), _arithmetic(_symbolic), result="int32")
for _name, (_call, _numbers, _symbolic) in LOGICAL.items():
    _binary(_name, _call, _truth(_numbers), _arithmetic(_symbolic), types=INTEGERS, result="int32")

_binary("Add", "add", np.add, _arithmetic(lambda a, b: a + b))
_binary("Sub", "subtract", np.subtract, _arithmetic(lambda a, b: a - b))
_binary("Mul", "multiply", np.multiply, _arithmetic(lambda a, b: a * b))


def _never_zero(ctx: OpContext, divisor: relax.Expr) -> bool:
    constant = ctx.constant_array(divisor)
    values = numbers_of(ctx, divisor) if constant is None else constant
    return values is not None and bool(np.all(values != 0))


def _truncated_quotient(a: Array, b: Array) -> Array:
    wide_a, wide_b = a.astype("int64"), b.astype("int64")
    quotient: Array = np.sign(wide_a) * np.sign(wide_b) * (np.abs(wide_a) // np.abs(wide_b))
    return quotient


def _quotient_of_sizes(ctx: OpContext, a: tirx.Expr, b: tirx.Expr) -> Element | None:
    divisor = _positive(ctx, a, b)
    if divisor is None:
        return None
    # Where nothing is negative, both divisions agree; the size arithmetic knows this one better.
    divide = tirx.floordiv if never_negative(a) else tirx.truncdiv
    return ctx.state.analyzer.simplify(divide(a, divisor))


def _remainder_of_sizes(
    ctx: OpContext, a: tirx.Expr, b: tirx.Expr, *, truncated: bool
) -> Element | None:
    divisor = _positive(ctx, a, b)
    if divisor is None:
        return None
    divide = tirx.truncmod if truncated and not never_negative(a) else tirx.floormod
    return ctx.state.analyzer.simplify(divide(a, divisor))


def _quotient_of_whole_floats(ctx: OpContext, a: tirx.Expr, b: tirx.Expr) -> Element | None:
    # Only a division without rest gives a whole number again.
    if not isinstance(b, tirx.IntImm) or int(b.value) <= 0:
        return None
    rest = ctx.state.analyzer.simplify(tirx.floormod(a, b))
    if not isinstance(rest, tirx.IntImm) or int(rest.value) != 0:
        return None
    return ctx.state.analyzer.simplify(tirx.floordiv(a, b))


def _positive(ctx: OpContext, a: tirx.Expr, b: tirx.Expr) -> tirx.Expr | None:
    """The divisor, made harmless if it can be 0, which is then checked; None if it is no size."""
    if isinstance(b, tirx.IntImm):
        return b if int(b.value) > 0 else None
    if not never_negative(a) or not never_negative(b):
        return None
    ctx.require(tirx.NE(b, expr(0)), "division by zero")
    exact = tirx.EQ(ctx.state.analyzer.simplify(tirx.floormod(a, b)), expr(0))
    cancels = isinstance(exact, tirx.IntImm)
    return b if cancels else tirx.max(b, expr(1))


@op("Div")
def div(ctx: OpContext, a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Div.html."""
    dtype = check_same_type(ctx, a, b)
    if dtype == "float32":
        whole = _arithmetic(lambda x, y: _quotient_of_whole_floats(ctx, x, y))
        return combine(ctx, "divide", a, b, np.divide, whole, dtype, node=None)
    safe = _never_zero(ctx, b)
    return combine(
        ctx,
        "divide",
        a,
        b,
        _truncated_quotient if safe else None,
        _arithmetic(lambda x, y: _quotient_of_sizes(ctx, x, y)),
        dtype,
        node=None if safe else ctx.node_index,
    )


@op("Mod")
def mod(ctx: OpContext, a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Mod.html."""
    dtype = check_same_type(ctx, a, b)
    truncated = ctx.attrs.bool("fmod", default=False)
    floats = dtype == "float32"
    safe = floats or _never_zero(ctx, b)
    sizes = _arithmetic(lambda x, y: _remainder_of_sizes(ctx, x, y, truncated=truncated))
    return combine(
        ctx,
        "remainder",
        a,
        b,
        (np.fmod if truncated else np.mod) if safe else None,
        None if floats else sizes,
        dtype,
        truncated=truncated,
        node=None if safe else ctx.node_index,
    )


def _integer_power(base: int, exponent: int) -> int:
    if exponent >= 0:
        return pow(base, exponent, 2**32)
    if base == 0:
        return 2**31 - 1
    return base ** (-exponent % 2) if abs(base) == 1 else 0


@op("Pow")
def power(ctx: OpContext, base: relax.Expr, exponent: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Pow.html.

    The result has the type of the base, whatever that of the exponent.
    """
    floats = ctx.dtype(base) == "float32", ctx.dtype(exponent) == "float32"
    numbers = numbers_of(ctx, exponent)
    if numbers is not None and numbers.size == 1 and numbers.ndim <= ctx.rank(base):
        if numbers.item() == 1:
            return base
        # An integer to a float power does not wrap as products do.
        if numbers.item() in (2, 3) and floats != (False, True):
            square = emit(ctx, "multiply", base, base)
            return square if numbers.item() == 2 else emit(ctx, "multiply", square, base)
    if floats[0]:
        return combine(ctx, "power", base, exponent, np.power, None, "float32")
    if floats[1]:
        if ctx.dtype(base) != "int32":
            ctx.fail(f"a base of type {ctx.dtype(base)} with a float exponent is not supported")
        return emit(ctx, "power_of_integer", base, exponent)
    exact = np.frompyfunc(_integer_power, 2, 1)
    return combine(ctx, "integer_power", base, exponent, exact, None, ctx.dtype(base))


@op("PRelu")
def prelu(ctx: OpContext, x: relax.Expr, slope: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__PRelu.html."""
    check_same_type(ctx, x, slope)
    stretches(ctx, ctx.shape(slope), ctx.shape(x), "sizes of input and slope")
    return ctx.call("prelu", x, slope)


def _selected(condition: Array, x: Array, y: Array) -> Array:
    return np.where(condition != 0, x, y)


@op("Where")
def where(ctx: OpContext, condition: relax.Expr, x: relax.Expr, y: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__Where.html."""
    dtype = check_same_type(ctx, x, y)
    check_broadcast(ctx, condition, x, y)

    def choose(c: Element, a: Element, b: Element) -> Element:
        if not is_symbolic(c):
            return a if c else b
        return tirx.Select(_true(as_expr(c)), as_expr(a), as_expr(b))

    folded = fold(ctx, [condition, x, y], dtype, _selected, choose)
    return ctx.call("where", condition, x, y) if folded is None else folded
