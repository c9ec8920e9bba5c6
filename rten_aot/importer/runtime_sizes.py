"""Sizes that operands hold: known at compile time where they can be, else computed by the model."""

from __future__ import annotations

from collections.abc import Collection

from tvm import relax

import rten_aot.dialect.runtime_axes
import rten_aot.dialect.runtime_sizes  # noqa: F401  (both define what is emitted here)
from rten_aot.importer.context import MAX_KNOWN_ELEMENTS, OpContext, Size
from rten_aot.importer.sizes import at_least, product


def counted(ctx: OpContext, x: relax.Expr, what: str) -> int:
    """The number of elements of an operand that holds sizes, which decides on ranks."""
    if ctx.dtype(x) != "int32":
        ctx.shape_error(f"{what} are {ctx.dtype(x)}; needed: int32")
    count = product(ctx.shape(x))
    if not isinstance(count, int) or count > MAX_KNOWN_ELEMENTS:
        ctx.fail(f"the number of elements of {what} must be known at compile time")
    return count


def sizes(
    ctx: OpContext, x: relax.Expr, what: str, *, signed: bool = False, needed: int | None = None
) -> list[Size]:
    """The integers in ``x``, which the model computes if they are not known.

    They must not be negative unless ``signed``. ``what`` names the operand in messages. ``needed``
    is how many there must be, for an operand whose length only a run tells.
    """
    if ctx.contents(x) is not None:
        known = ctx.ints(x, what)
        for size in [] if signed else known:
            at_least(ctx, size, 0, f"{what}: {ctx.text(size)} is negative")
        return known
    length = product(ctx.shape(x))
    if needed is not None and not isinstance(length, int):
        ctx.equal_dims(length, needed, f"the number of elements of {what}: sizes")
        x = ctx.reshape(x, [needed])
    count = counted(ctx, x, what)
    if count == 0:
        return []
    vector = ctx.call("to_sizes", x, signed=signed, node=ctx.node_index)
    return measured(ctx, vector, count, what, signed=range(count) if signed else ())


def measured(
    ctx: OpContext, vector: relax.Expr, count: int, what: str, signed: Collection[int] = ()
) -> list[Size]:
    """The elements of a vector of sizes that a kernel computes; some may be negative."""
    if count == 0:
        return []
    names = [what] if count == 1 else [f"{what} {i}" for i in range(count)]
    return list(ctx.measure(vector, *names, signed=signed))
