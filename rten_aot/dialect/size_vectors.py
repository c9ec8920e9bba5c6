"""What kernels share that compute vectors of sizes: checks, loads, the vector itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import te, tirx
from tvm.tirx import Buffer, Expr, Stmt

from rten_aot.dialect.direct import Body, direct
from rten_aot.dialect.failure import Failure, fail
from rten_aot.dialect.loops import Cell, flat_load, int64, loop, product, seq, static


def checked(ok: Expr, value: Expr, node: int, bad: Expr, kind: Failure) -> Expr:
    """``value``, or 0 after the failure has been recorded with the value ``bad``."""
    return tirx.if_then_else(ok, value, tirx.Cast("int64", fail(kind, node, bad)))


def fitting(ok: Expr, value: Expr, node: int, bad: Expr) -> Expr:
    """``checked`` for sizes that do not fit."""
    return checked(ok, value, node, bad, Failure.SHAPE_MISMATCH)


def wide(buffer: Buffer, at: int | Expr = 0) -> Expr:
    """An element in int64."""
    return tirx.Cast("int64", flat_load(buffer, at))


def size_vector(count: int, inputs: Sequence[te.Tensor], body: Body, name: str) -> te.Tensor:
    """The int64 vector of ``count`` elements that ``body`` writes."""
    result = direct([[int64(count)]], inputs, body, ["int64"], name)
    assert isinstance(result, te.Tensor)
    return result


def count_of(x: te.Tensor) -> int:
    """The number of elements, which is known now."""
    count = static(product(x.shape))
    assert count is not None
    return count


def each_axis(
    axes: Buffer, rank: int, node: int, visit: Callable[[Expr, Expr], Stmt], count: int | Expr
) -> Stmt:
    """``visit(axis, j)`` for element j of a tensor of axes; axes are counted from 0 there.

    One that does not exist is a failure, and 0 from then on.
    """
    axis = Cell("axis")

    def one(j: Expr) -> Stmt:
        stated = wide(axes, j)
        place = tirx.Select(stated < int64(0), stated + int64(rank), stated)
        ok = tirx.And(place >= int64(0), place < int64(rank))
        found = checked(ok, place, node, stated, Failure.INDEX_OUT_OF_RANGE)
        return seq(axis.set(found), visit(axis.get(), j))

    return seq(axis.declare, loop(count, one, name="j"))
