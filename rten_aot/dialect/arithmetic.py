"""Operators whose operands are broadcast against each other: arithmetic, comparison, selection."""

from __future__ import annotations

from collections.abc import Callable

from tvm import te, tirx

from rten_aot.dialect.broadcast import broadcast_map
from rten_aot.dialect.registry import Layout, Pattern, define
from rten_aot.dialect.scalar import (
    add,
    divide,
    equal,
    maximum,
    minimum,
    multiply,
    number,
    remainder,
    subtract,
    truth,
)

Function = Callable[[tirx.Expr, tirx.Expr], tirx.Expr]


def _is_true(x: tirx.Expr) -> tirx.Expr:
    return tirx.NE(x, number(0, x))


BINARY: dict[str, Function] = {
    "add": add,
    "equal": lambda a, b: truth(equal(a, b)),
    "greater": lambda a, b: truth(a > b),
    "greater_equal": lambda a, b: truth(a >= b),
    "less": lambda a, b: truth(a < b),
    "less_equal": lambda a, b: truth(a <= b),
    "logical_and": lambda a, b: truth(tirx.And(_is_true(a), _is_true(b))),
    "logical_or": lambda a, b: truth(tirx.Or(_is_true(a), _is_true(b))),
    "logical_xor": lambda a, b: truth(tirx.NE(truth(_is_true(a)), truth(_is_true(b)))),
    "maximum": maximum,
    "minimum": minimum,
    "multiply": multiply,
    "subtract": subtract,
}
"""The operators without attributes, by name; truth values are int32 0 and 1."""


def _define_binary(name: str, function: Function) -> None:
    @define(name, layout=Layout.ELEMENTWISE, pattern=Pattern.BROADCAST)
    def apply(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        return broadcast_map(function, a, b, name=name)


for _name, _function in BINARY.items():
    _define_binary(_name, _function)


@define("divide", layout=Layout.ELEMENTWISE, pattern=Pattern.BROADCAST)
def divide_(a: te.Tensor, b: te.Tensor, *, node: int | None) -> te.Tensor:
    """The quotient, truncated for integers; a zero divisor of integers fails the run.

    ``node`` is the graph node that the failure names; None promises that no divisor is 0.
    """
    return broadcast_map(lambda x, y: divide(x, y, node), a, b, name="divide")


@define("remainder", layout=Layout.ELEMENTWISE, pattern=Pattern.BROADCAST)
def remainder_(a: te.Tensor, b: te.Tensor, *, truncated: bool, node: int | None) -> te.Tensor:
    """The remainder, with the sign of a if ``truncated``, else of b; ``node`` as in divide."""
    return broadcast_map(
        lambda x, y: remainder(x, y, node, truncated=truncated), a, b, name="remainder"
    )


@define("prelu", layout=Layout.ELEMENTWISE, pattern=Pattern.BROADCAST)
def prelu(x: te.Tensor, slope: te.Tensor) -> te.Tensor:
    """``slope * x`` where x is negative, else x."""

    def function(v: tirx.Expr, s: tirx.Expr) -> tirx.Expr:
        return tirx.Select(v < number(0, v), multiply(v, s), v)

    return broadcast_map(function, x, slope, name="prelu")


@define("where", layout=Layout.ELEMENTWISE, pattern=Pattern.BROADCAST)
def where(condition: te.Tensor, x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """X where the condition is not 0, else y."""

    def function(c: tirx.Expr, a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
        return tirx.Select(_is_true(c), a, b)

    return broadcast_map(function, condition, x, y, name="where")
