"""What operators on corresponding elements share: checks of types and shapes, folding, emitting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from rten_aot.importer.context import OpContext, Size
from rten_aot.importer.known import Numbers, Symbolic, fold
from rten_aot.importer.sizes import broadcast


def check_type(ctx: OpContext, x: relax.Expr, supported: Sequence[str]) -> None:
    """Refuse element types other than ``supported``."""
    dtype = ctx.dtype(x)
    if dtype not in supported:
        ctx.fail(f"elements of type {dtype} are not supported; supported: {', '.join(supported)}")


def check_same_type(ctx: OpContext, *operands: relax.Expr) -> str:
    """The element type that all operands have."""
    types = [ctx.dtype(x) for x in operands]
    if len(set(types)) > 1:
        ctx.shape_error(f"operands of different types: {', '.join(types)}")
    return types[0]


def check_broadcast(ctx: OpContext, *operands: relax.Expr) -> list[Size]:
    """The shape of all operands together; sizes that do not fit are found now or by a check."""
    rank = max(ctx.rank(x) for x in operands)
    shapes = [[1] * (rank - ctx.rank(x)) + ctx.shape(x) for x in operands]
    result = []
    for sizes in zip(*shapes, strict=True):
        together = sizes[0]
        for size in sizes[1:]:
            together = broadcast(ctx, together, size)
        result.append(together)
    return result


def emit(ctx: OpContext, call: str, *operands: relax.Expr, **attrs: Any) -> relax.Expr:
    """A call of a broadcasting operator, with a check that the operands fit."""
    check_broadcast(ctx, *operands)
    return ctx.call(call, *operands, **attrs)


def combine(
    ctx: OpContext,
    call: str,
    a: relax.Expr,
    b: relax.Expr,
    numbers: Numbers | None,
    symbolic: Symbolic | None,
    dtype: str,
    **attrs: Any,
) -> relax.Expr:
    """An operator's result: computed now if the operands' content is known, else emitted."""
    check_broadcast(ctx, a, b)
    folded = fold(ctx, [a, b], dtype, numbers, symbolic)
    return ctx.call(call, a, b, **attrs) if folded is None else folded
