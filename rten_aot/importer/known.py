"""Arithmetic on tensors whose content is known at compile time, such as shapes and scales.

Elements are numbers or, for sizes that are symbolic, int64 expressions. In a float32 tensor such an
expression stands for a whole number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, tirx

from rten_aot.importer.context import OpContext
from rten_aot.importer.sizes import expr

Element: TypeAlias = "int | float | tirx.Expr"
Numbers: TypeAlias = Callable[..., npt.NDArray[Any]]
"""Works on arrays of one element type, as NumPy's functions do."""
Symbolic: TypeAlias = Callable[..., "Element | None"]
"""Works on whole numbers and expressions, one element of each operand; None where it cannot."""


def is_symbolic(value: object) -> bool:
    """Whether an element is an expression."""
    return isinstance(value, tvm.ir.Expr)


def numbers_of(ctx: OpContext, x: relax.Expr) -> npt.NDArray[Any] | None:
    """The content of a small tensor if it is known and made of numbers alone."""
    content = ctx.contents(x)
    if content is None or any(is_symbolic(v) for v in content.flat):
        return None
    return content.astype(ctx.dtype(x))


def widened(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Float32 numbers as float64, others as they are.

    NumPy's float32 functions and sums depend on the CPU that compiles. Rounded from float64,
    results hardly ever do, and those of single operations like + and / are as in float32.
    """
    return array.astype("float64") if array.dtype == np.float32 else array


def fold(
    ctx: OpContext,
    operands: Sequence[relax.Expr],
    dtype: str,
    numbers: Numbers | None,
    symbolic: Symbolic | None = None,
) -> relax.Expr | None:
    """The result of an operator on known contents, None if they are not known.

    ``numbers`` computes it from arrays, in float64 where they are float32; ``symbolic``, which
    works element by element, is asked if any element is an expression. Operands are broadcast
    against each other.
    """
    contents = [ctx.contents(x) for x in operands]
    known = [c for c in contents if c is not None]
    if len(known) < len(contents):
        return None
    if not any(is_symbolic(v) for c in known for v in c.flat):
        if numbers is None:
            return None
        arrays = [widened(c.astype(ctx.dtype(x))) for c, x in zip(known, operands, strict=True)]
        with np.errstate(all="ignore"):
            return ctx.known(np.asarray(numbers(*arrays)), dtype)
    if symbolic is None:
        return None
    spread = np.broadcast_arrays(*known)
    result = np.empty(spread[0].shape, dtype=object)
    for i in np.ndindex(result.shape):
        elements = [whole(array[i]) for array in spread]
        value = None if any(e is None for e in elements) else symbolic(*elements)
        if value is None:
            return None
        result[i] = value
    return ctx.known(result, dtype)


def whole(value: Element) -> Element | None:
    """The element as an integer or expression, None if it is neither."""
    if is_symbolic(value) or isinstance(value, int):
        return value
    number = float(value)
    return int(number) if number.is_integer() else None


def never_negative(value: Element) -> bool:
    """Whether an element is at least 0 because of how it is made; sizes are."""
    if not is_symbolic(value):
        return value >= 0
    match value:
        case tirx.Var():
            return True
        case tirx.IntImm():
            return int(value.value) >= 0
        case tirx.Select():
            return never_negative(value.true_value) and never_negative(value.false_value)
        case tirx.Max():
            return never_negative(value.a) or never_negative(value.b)
        case tirx.Add() | tirx.Mul() | tirx.Min() | tirx.FloorDiv() | tirx.Div():
            return never_negative(value.a) and never_negative(value.b)
        case tirx.FloorMod() | tirx.Mod():
            return never_negative(value.a) and never_negative(value.b)
    return False


def as_expr(value: Element) -> tirx.Expr:
    """The element as an int64 expression."""
    return expr(int(value)) if not is_symbolic(value) else value


def flag(condition: tirx.Expr) -> tirx.Expr:
    """A condition as an element: 0 or 1."""
    return tirx.Select(condition, expr(1), expr(0))
