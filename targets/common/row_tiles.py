"""Divides the rows of a product into register tiles."""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import Stmt

from rten_aot.targets.common.expr import constant_int, i64
from rten_aot.targets.common.loops import Loops, seq, when
from rten_aot.targets.common.tiles import branch

_SWITCH_ROWS = 6
"""Tiles with at most so many rows get a shorter version for each smaller number of rows."""
_SMALL_ROWS = 4
"""Rows of the small tiles that the others are finished with."""

RowsFrom = Callable[[Expr, int], Stmt]
"""Computes so many rows, a constant number, from this one on."""


def row_tile(loops: Loops, rows: Expr | int, most: int, number: Expr, body: RowsFrom) -> Stmt:
    """The tile with this ``number``, of ``rows`` rows that are divided into tiles of ``most``."""
    known = constant_int(rows)
    if known is not None:
        return _balanced(loops, known, most, number, body)
    return _symbolic(loops, i64(rows), most, number, body)


def _balanced(loops: Loops, count: int, most: int, number: Expr, body: RowsFrom) -> Stmt:
    """Tiles whose numbers of rows differ by at most one."""
    tiles = -(-count // most)
    if tiles == 0:
        return seq()
    short, longer = divmod(count, tiles)
    if longer == 0:
        return body(number * i64(short), short)
    return when(
        loops.simplify(number < i64(longer)),
        body(number * i64(short + 1), short + 1),
        body(number * i64(short) + i64(longer), short),
    )


def _symbolic(loops: Loops, rows: Expr, most: int, number: Expr, body: RowsFrom) -> Stmt:
    """Full tiles and a shorter one, whose rows are known at run time only."""
    start = number * i64(most)
    rest = rows - start
    return branch(rest >= i64(most), body(start, most), _tail(loops, most, start, rest, body))


def _tail(loops: Loops, most: int, start: Expr, rest: Expr, body: RowsFrom) -> Stmt:
    """The last ``rest`` rows: a tile for each possible number, or several small tiles."""
    if most <= _SWITCH_ROWS:
        result: Stmt | None = None
        for count in range(1, most):
            result = branch(tirx.EQ(rest, i64(count)), body(start, count), result)
        return seq(result)
    small = i64(_SMALL_ROWS)
    whole = tirx.truncdiv(rest, small)
    last = start + whole * small
    return seq(
        loops.serial("few", whole, lambda i: body(start + i * small, _SMALL_ROWS)),
        loops.serial("one", tirx.truncmod(rest, small), lambda i: body(last + i, 1)),
    )
