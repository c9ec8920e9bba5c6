"""Copies matrices that only a run knows into blocks of columns, as products read them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import Stmt

from rten_aot.targets.common.context import Context
from rten_aot.targets.common.expr import Buffer, constant_int, i64
from rten_aot.targets.common.loops import seq, store, zero
from rten_aot.targets.common.packing import lanes
from rten_aot.targets.common.tiles import Names


@dataclass(frozen=True)
class Matrices:
    """A batch of matrices, or one."""

    extents: list[Expr]
    """Of the batch: sizes that the parameters of the function are written in."""
    rows: Expr
    columns: Expr
    element: Callable[[Expr, Expr, Expr], Expr]
    """Of the matrix with this number, at a row and column."""
    by_column: bool
    """Whether columns lie in one piece, and not rows."""
    dtype: str = "float32"


def copy_to_blocks(
    ctx: Context, matrices: Matrices, width: int, name: Names
) -> tuple[Buffer, Stmt]:
    """A scratch buffer ``[batch, block, row, column]``, and the loops that fill it.

    There are zeros behind the last column.
    """
    copy = _Copy(ctx, matrices, width)
    return copy.packed, copy.loops(name)


class _Copy:
    def __init__(self, ctx: Context, matrices: Matrices, width: int) -> None:
        self._ctx = ctx
        self._loops = ctx.loops
        self._matrices = matrices
        self._width = width
        self._batches: Expr = i64(1)
        for extent in matrices.extents:
            self._batches = self._batches * extent
        self._count = tirx.floordiv(matrices.columns + i64(width - 1), i64(width))
        sizes = (self._batches, self._count, matrices.rows, i64(width))
        self.packed = ctx.scratch([ctx.loops.simplify(e) for e in sizes], matrices.dtype, "packed")

    def loops(self, name: Names) -> Stmt:
        """Block after block, in parallel."""
        blocks = name("blocks", self._count)
        batches = name("batches", self._batches)
        total = self._loops.simplify(batches * blocks)
        defined = name.take()

        def block(t: Expr) -> Stmt:
            return self._block(tirx.truncdiv(t, blocks), tirx.truncmod(t, blocks))

        if self._is_small():
            return seq(defined, self._loops.serial("pack", total, block))
        return seq(defined, self._loops.parallel("pack", total, block))

    def _is_small(self) -> bool:
        sizes = [constant_int(size) for size in self.packed.ty.shape]
        known = [size for size in sizes if size is not None]
        if len(known) < len(sizes):
            return False
        return math.prod(known) < self._ctx.machine.parallel_operations

    def _block(self, batch: Expr, block: Expr) -> Stmt:
        loops, rows, width = self._loops, self._matrices.rows, i64(self._width)
        first = block * width
        valid = tirx.min(self._matrices.columns - first, width)

        def move(k: Expr, j: Expr) -> Stmt:
            value = self._matrices.element(batch, k, first + j)
            return store(self.packed, value, [batch, block, k, j])

        def blank(k: Expr, j: Expr) -> Stmt:
            return store(self.packed, zero(self._matrices.dtype), [batch, block, k, j])

        def column(j: Expr) -> Stmt:
            return loops.serial("k", rows, lambda k: move(k, j))

        def row(k: Expr) -> Stmt:
            vector = lanes(self._ctx.machine, self._width)
            return seq(loops.vectors("v", self._width, vector, lambda j: move(k, j)))

        if self._matrices.by_column:
            whole = loops.serial("j", self._width, column)
        else:
            whole = loops.serial("k", rows, row)
        partly = seq(
            loops.serial("j", valid, column),
            loops.serial(
                "j",
                width - valid,
                lambda j: loops.serial("k", rows, lambda k: blank(k, valid + j)),
            ),
        )
        return tirx.IfThenElse(valid >= width, whole, partly)
