"""Arithmetic on sizes, which are Python ints or int64 expressions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import relax, tirx

from rten_aot.dialect.broadcast import broadcast_size
from rten_aot.importer.context import OpContext, Size, static


def expr(size: Size) -> tirx.Expr:
    """The size as an expression."""
    return tirx.const(size, "int64") if isinstance(size, int) else size


def product(sizes: Sequence[Size]) -> Size:
    """The number of elements of a shape."""
    result: Size = math.prod(s for s in sizes if isinstance(s, int))
    if result == 0:
        return 0
    for size in sizes:
        if not isinstance(size, int):
            result = size if result == 1 else size * result
    return result


def minimum(a: Size, b: Size) -> Size:
    """The lesser of two sizes."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return tirx.min(expr(a), expr(b))


def maximum(a: Size, b: Size) -> Size:
    """The greater of two sizes."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return tirx.max(expr(a), expr(b))


def ceil_div(a: Size, b: int) -> Size:
    """``a / b``, rounded up; ``b`` is positive."""
    if isinstance(a, int):
        return -(-a // b)
    return a if b == 1 else tirx.floordiv(a + (b - 1), expr(b))


def choose(condition: tirx.Expr, then: Size, otherwise: Size) -> Size:
    """One of two sizes, as is found at run time."""
    return tirx.Select(condition, expr(then), expr(otherwise))


def at_least(ctx: OpContext, a: Size, b: Size, message: str) -> None:
    """Refuse sizes that have ``a < b``, now or at run time."""
    if isinstance(a, int) and isinstance(b, int):
        if a < b:
            ctx.shape_error(message)
    elif not ctx.state.analyzer.can_prove(expr(a) >= expr(b)):
        ctx.require(expr(a) >= expr(b), message)


def one_element(ctx: OpContext, x: relax.Expr, what: str) -> relax.Expr:
    """``x`` as a scalar; refused, now or at run time, if it has not one element.

    ``what`` names it in the message.
    """
    for size in ctx.shape(x):
        ctx.equal_dims(size, 1, f"{what} must have one element; sizes")
    return ctx.reshape(x, []) if ctx.rank(x) else x


def stretches(ctx: OpContext, own: Sequence[Size], shape: Sequence[Size], what: str) -> None:
    """Refuse an operand that does not broadcast to ``shape`` as it is, now or at run time.

    ``what`` says in the message whose sizes they are.
    """
    if len(own) > len(shape):
        ctx.shape_error(f"{what}: {text(ctx, own)} has more axes than {text(ctx, shape)}")
    for size, target in zip(reversed(own), reversed(shape), strict=False):
        if isinstance(size, int):
            if size != 1:
                ctx.equal_dims(target, size, what)
        elif not ctx.same(size, target):
            one = tirx.EQ(size, expr(1))
            message = f"{what} {ctx.text(size)} and {ctx.text(target)} differ"
            ctx.require(tirx.Or(one, tirx.EQ(size, expr(target))), message)


def broadcast(ctx: OpContext, a: Size, b: Size) -> Size:
    """The size of two axes that broadcast against each other, checked where it is not plain."""
    if b == 1 or ctx.same(a, b):
        return a
    if a == 1:
        return b
    message = f"sizes {ctx.text(a)} and {ctx.text(b)} cannot be broadcast"
    if isinstance(a, int) and isinstance(b, int):
        ctx.shape_error(message)
    equal = tirx.EQ(expr(a), expr(b))
    ones = [tirx.EQ(s, expr(1)) for s in (a, b) if not isinstance(s, int)]
    for one in ones:
        equal = tirx.Or(equal, one)
    ctx.require(equal, message)
    if isinstance(a, int):
        return a
    return b if isinstance(b, int) else broadcast_size(a, b)


def quotient(ctx: OpContext, sizes: Sequence[Size], divisors: Sequence[Size]) -> Size:
    """The product of ``sizes`` by that of ``divisors``; that it is whole is checked.

    Factors that both have cancel first, so that a size of 0 that both have does no harm.
    """
    message = f"{text(ctx, sizes)} cannot be divided into groups of {text(ctx, divisors)}"
    above, top = _factors(sizes)
    below, bottom = _factors(divisors)
    zeros = min(above.count(0), below.count(0))
    upper = math.prod([f for f in above if f] + [0] * (above.count(0) - zeros))
    lower = math.prod([f for f in below if f] + [0] * (below.count(0) - zeros))
    for factor in list(bottom):
        match = next((i for i, f in enumerate(top) if ctx.same(f, factor)), None)
        if match is not None:
            del top[match]
            del bottom[next(i for i, f in enumerate(bottom) if f is factor)]
    if lower == 0:
        ctx.shape_error(message)
    common = math.gcd(upper, lower)
    upper, lower = upper // common, lower // common
    if not bottom and lower == 1:
        return product([upper, *top])
    if not bottom and not top:
        ctx.shape_error(message)
    dividend, divisor = expr(product([upper, *top])), expr(maximum(product([lower, *bottom]), 1))
    whole = tirx.floordiv(dividend, divisor)
    ctx.require(tirx.EQ(whole * divisor, dividend), message)
    return whole


def text(ctx: OpContext, sizes: Sequence[Size]) -> str:
    """Sizes in a message."""
    return "[" + ", ".join(map(ctx.text, sizes)) + "]"


def _factors(sizes: Sequence[Size]) -> tuple[list[int], list[tirx.Expr]]:
    """Numbers and other factors of a product of sizes."""
    numbers: list[int] = []
    others: list[tirx.Expr] = []
    rest = list(sizes)
    while rest:
        size = rest.pop()
        known = static(size)
        if known is not None:
            numbers.append(known)
        elif isinstance(size, tirx.Mul):
            rest += [size.a, size.b]
        else:
            others.append(size)
    return numbers, others
