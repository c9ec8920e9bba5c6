"""Arithmetic on single elements with ONNX semantics: wrapping integers, NaN that propagates.

TVM and LLVM take for granted that 32-bit integers do not overflow, and neither knows NaN in its
maximum and minimum; everything here is phrased so that no such assumption can be drawn.
"""

from __future__ import annotations

from tvm import tirx

from rten_aot.dialect.failure import Failure, fail


def dtype_of(x: tirx.Expr) -> str:
    """The element type of a scalar expression."""
    return str(x.ty.dtype)


def is_float(dtype: str) -> bool:
    """Whether elements are floating-point numbers."""
    return dtype.startswith("float")


def bits(dtype: str) -> int:
    """The width of an element."""
    return 8 if dtype.endswith("8") else 32


def number(value: float, like: tirx.Expr) -> tirx.Expr:
    """A constant of the type of ``like``."""
    return tirx.const(value, dtype_of(like))


def truth(condition: tirx.Expr) -> tirx.Expr:
    """A condition as the int32 that stands for an ONNX bool."""
    return tirx.Cast("int32", condition)


def widen(x: tirx.Expr) -> tirx.Expr:
    """An integer in a type in which one sum or product of two such integers cannot overflow."""
    return tirx.Cast("int32" if bits(dtype_of(x)) == 8 else "int64", x)


def wrap(x: tirx.Expr, dtype: str) -> tirx.Expr:
    """The low bits of a wider integer."""
    if bits(dtype) == 8:
        return tirx.Cast(dtype, x)
    # A plain cast to int32 would let the simplifier carry over the bounds of the wide value.
    return tirx.reinterpret(dtype, tirx.Cast("uint32", x))


def add(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    """The sum."""
    dtype = dtype_of(a)
    return a + b if is_float(dtype) else wrap(widen(a) + widen(b), dtype)


def subtract(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    """The difference."""
    dtype = dtype_of(a)
    if is_float(dtype):
        # TVM's simplifier takes x - x for 0, which infinities and NaN are not, and drops the
        # rounding of (x + y) - x; it leaves sums alone. LLVM makes one subtraction of this.
        return a + b * number(-1.0, b)
    return wrap(widen(a) - widen(b), dtype)


def equal(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    """Whether two elements are equal; NaN is not equal to itself."""
    # TVM's simplifier takes x == x for true; of two comparisons LLVM makes one.
    return tirx.And(a <= b, b <= a) if is_float(dtype_of(a)) else tirx.EQ(a, b)


def multiply(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    """The product."""
    dtype = dtype_of(a)
    return a * b if is_float(dtype) else wrap(widen(a) * widen(b), dtype)


def scaled(x: tirx.Expr, factor: float) -> tirx.Expr:
    """A float times a constant."""
    if factor == 0.0:
        # TVM's simplifier takes x * 0 for 0, which it is not for infinities and NaN.
        return x * tirx.reinterpret(dtype_of(x), tirx.const(0, "uint32"))
    return x * number(factor, x)


def negate(x: tirx.Expr) -> tirx.Expr:
    """The value with the other sign."""
    if is_float(dtype_of(x)):
        return x * number(-1.0, x)
    return subtract(number(0, x), x)


def absolute(x: tirx.Expr) -> tirx.Expr:
    """The magnitude; that of the least integer wraps to itself."""
    dtype = dtype_of(x)
    if is_float(dtype):
        return tirx.abs(x)
    if dtype.startswith("u"):
        return x
    return tirx.Select(x < number(0, x), negate(x), x)


def maximum(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    """The greater value; NaN if either is NaN."""
    greater = a > b
    return tirx.Select(tirx.Or(greater, tirx.isnan(a)) if is_float(dtype_of(a)) else greater, a, b)


def minimum(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    """The lesser value; NaN if either is NaN."""
    less = a < b
    return tirx.Select(tirx.Or(less, tirx.isnan(a)) if is_float(dtype_of(a)) else less, a, b)


def at_least(x: tirx.Expr, low: float) -> tirx.Expr:
    """``x``, but no less than a constant; NaN stays."""
    if dtype_of(x).startswith("u") and low <= 0:
        return x  # a comparison would have the simplifier compute with unsigned numbers below 0
    bound = number(low, x)
    return tirx.Select(x < bound, bound, x)


def at_most(x: tirx.Expr, high: float) -> tirx.Expr:
    """``x``, but no more than a constant; NaN stays."""
    bound = number(high, x)
    return tirx.Select(x > bound, bound, x)


def divide(a: tirx.Expr, b: tirx.Expr, node: int | None) -> tirx.Expr:
    """The quotient; that of integers is truncated, and a zero divisor fails the run.

    ``node`` names the graph node in that failure; None promises a divisor other than 0.
    """
    dtype = dtype_of(a)
    if is_float(dtype):
        return a / b
    if bits(dtype) == 8:
        return wrap(divide(widen(a), widen(b), node), dtype)
    quotient = tirx.Select(b.equal(number(-1, b)), negate(a), tirx.truncdiv(a, _safe(b)))
    return _checked(quotient, b, node)


def remainder(a: tirx.Expr, b: tirx.Expr, node: int | None, *, truncated: bool) -> tirx.Expr:
    """The remainder, with the sign of the dividend if ``truncated``, else of the divisor.

    That of integers by zero fails the run; see ``divide``.
    """
    dtype = dtype_of(a)
    if is_float(dtype):
        rest = tirx.call_pure_extern(dtype, "fmodf", a, b)
        return rest if truncated else _with_sign_of(rest, b)
    if bits(dtype) == 8:
        return wrap(remainder(widen(a), widen(b), node, truncated=truncated), dtype)
    rest = tirx.truncmod(a, _safe(b))
    return _checked(rest if truncated else _with_sign_of(rest, b), b, node)


def sign(x: tirx.Expr) -> tirx.Expr:
    """-1, 0 or 1; NaN for NaN."""
    zero, one = number(0, x), number(1, x)
    if dtype_of(x).startswith("u"):
        return tirx.Select(x > zero, one, zero)
    # Zero and NaN are what is neither greater nor less, and stand for themselves.
    return tirx.Select(x > zero, one, tirx.Select(x < zero, number(-1, x), x))


def _safe(divisor: tirx.Expr) -> tirx.Expr:
    # Division by 0 or -1 can trap, even where the result is not used: neither reaches the machine.
    one = number(1, divisor)
    traps = tirx.And(divisor >= number(-1, divisor), divisor <= number(0, divisor))
    return tirx.Select(traps, one, divisor)


def _with_sign_of(rest: tirx.Expr, divisor: tirx.Expr) -> tirx.Expr:
    zero = number(0, rest)
    opposite = tirx.Or(tirx.And(rest < zero, divisor > zero), tirx.And(rest > zero, divisor < zero))
    return tirx.Select(opposite, rest + divisor, rest)


def _checked(value: tirx.Expr, divisor: tirx.Expr, node: int | None) -> tirx.Expr:
    if node is None:
        return value
    # The branch, unlike Select, evaluates the failure only where it is one.
    failure = tirx.Cast(dtype_of(value), fail(Failure.DIVISION_BY_ZERO, node, divisor))
    return tirx.if_then_else(divisor.equal(number(0, divisor)), failure, value)
