"""Powers; where both operands are integers, by repeated squaring with wrapping products."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te, tirx

from rten_aot.dialect.broadcast import broadcast_indices, broadcast_map, broadcast_shape
from rten_aot.dialect.direct import direct
from rten_aot.dialect.loops import Cell, nest, seq
from rten_aot.dialect.registry import Layout, Pattern, define
from rten_aot.dialect.scalar import dtype_of, is_float, multiply

INT_MAX = 2**31 - 1


@define("power", layout=Layout.ELEMENTWISE, pattern=Pattern.BROADCAST)
def power(base: te.Tensor, exponent: te.Tensor) -> te.Tensor:
    """The power of a float base, in its type; the exponent may be an integer."""

    def function(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
        if is_float(dtype_of(y)):
            return tirx.call_pure_extern("float32", "powf", x, y)
        # float32 does not hold every integer, whose last bit decides on the sign.
        return tirx.Cast("float32", _exact(x, y))

    return broadcast_map(function, base, exponent, name="power")


@define("power_of_integer", layout=Layout.ELEMENTWISE, pattern=Pattern.BROADCAST)
def power_of_integer(base: te.Tensor, exponent: te.Tensor) -> te.Tensor:
    """The power of an int32 base with a float exponent: truncated, kept in range, 0 for NaN."""

    def function(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
        exact = _exact(x, y)
        low, high = tirx.const(-(2.0**31), "float64"), tirx.const(2.0**31 - 1.0, "float64")
        kept = tirx.Select(exact > high, high, tirx.Select(exact < low, low, exact))
        return tirx.Cast("int32", tirx.Select(tirx.isnan(kept), tirx.const(0.0, "float64"), kept))

    return broadcast_map(function, base, exponent, name="power")


def _exact(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    wide = [tirx.Cast("float64", v) for v in (x, y)]
    return tirx.call_pure_extern("float64", "pow", *wide)


@define("integer_power", layout=Layout.FIXED, pattern=Pattern.OPAQUE)
def integer_power(base: te.Tensor, exponent: te.Tensor) -> te.Tensor:
    """The power of integers with an integer exponent.

    A negative exponent gives the truncated reciprocal; that of 0 is the greatest int32.
    """
    shape = broadcast_shape(base.shape, exponent.shape)

    def body(inputs: Sequence[tirx.Buffer], outputs: Sequence[tirx.Buffer]) -> tirx.Stmt:
        def element(indices: list[tirx.Expr]) -> tirx.Stmt:
            x, y = (
                tirx.BufferLoad(b, broadcast_indices(list(b.shape), shape, indices)) for b in inputs
            )
            return _raise(x, y, outputs[0], indices)

        return nest(shape, element)

    return direct([shape], [base, exponent], body, [str(base.dtype)], "integer_power")


def _raise(
    x: tirx.Expr, y: tirx.Expr, target: tirx.Buffer, indices: Sequence[tirx.Expr]
) -> tirx.Stmt:
    square, rest, result = (Cell(n, "int32") for n in ("square", "rest", "result"))
    zero, one = tirx.const(0, "int32"), tirx.const(1, "int32")
    odd = tirx.NE(tirx.bitwise_and(rest.get(), one), zero)
    step = seq(
        result.set(tirx.Select(odd, multiply(result.get(), square.get()), result.get())),
        square.set(multiply(square.get(), square.get())),
        rest.set(tirx.shift_right(rest.get(), one)),
    )
    base, exponent = tirx.Cast("int32", x), tirx.Cast("int32", y)
    parity = tirx.Select(
        tirx.NE(tirx.bitwise_and(exponent, one), zero), tirx.const(-1, "int32"), one
    )
    reciprocal = tirx.Select(
        tirx.EQ(base, zero),
        tirx.const(INT_MAX, "int32"),
        tirx.Select(tirx.EQ(base, one), one, tirx.Select(tirx.EQ(base, -one), parity, zero)),
    )
    value = tirx.Select(exponent < zero, reciprocal, result.get())
    dtype = str(target.dtype)
    return seq(
        square.declare,
        rest.declare,
        result.declare,
        square.set(base),
        rest.set(exponent),
        result.set(one),
        tirx.While(rest.get() > zero, step),
        tirx.BufferStore(target, value if dtype == "int32" else tirx.Cast(dtype, value), indices),
    )
