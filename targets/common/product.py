"""The loops around register tiles of a product: which tiles there are, in what order, by which thread.

A product has rows (pixels, or rows of a matrix), groups, and in each group blocks of columns whose
right factors are packed side by side. Convolutions and matrix products say what the factors are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import Stmt

from .context import Context
from .expr import constant_int, i64
from .loops import seq, when
from .packing import lanes, rows
from .tiles import Reduce, Shape, product_tile, store_columns

_SERIAL_PRODUCTS = 1 << 16
"""Fewer multiplications than this take less time than starting threads."""
_TASKS = 64
"""Tasks to aim for, so that threads finish at about the same time."""
_BITS_FROM = 7
"""Tiles with more rows than this get their shorter versions in powers of two only."""


@dataclass(frozen=True)
class Block:
    """Where a tile lies in its product; all but ``rows`` are expressions."""

    batch: Expr
    row: Expr
    rows: int
    group: Expr
    block: Expr


@dataclass(frozen=True)
class Product:
    """What the loops compute."""

    batches: Expr | int
    rows: Expr | int
    groups: int
    columns: Expr | int
    """Columns of one group."""
    width: int
    """Columns of one block."""
    reduce: Reduce
    row_bytes: int
    """About how much of the left operand one more row brings into the cache."""
    operands: Callable[
        [Block],
        tuple[
            Sequence[Stmt],
            Callable[[int, Sequence[Expr]], Expr],
            Callable[[Sequence[Expr], Expr], Expr],
        ],
    ]
    """Statements to put before a tile, and its left and right factors."""
    emit: Callable[[Block, Expr, Expr, Expr], Sequence[Stmt]]
    """Stores of (row in the tile, column of the block, sum)."""


class ProductLoops:
    """Makes the loops of one product."""

    def __init__(self, ctx: Context, product: Product) -> None:
        self._ctx = ctx
        self._loops = ctx.loops
        self._product = product
        self._lanes = lanes(ctx.machine, product.width)
        self._most_rows = rows(ctx.machine, product.width)
        self._blocks = self._ceil_div(product.columns, product.width)
        self._tiles = self._ceil_div(product.rows, self._most_rows)

    def build(self) -> Stmt:
        """The loops."""
        p = self._product
        run = self._tiles_in_a_run()
        runs = self._ceil_div(self._tiles, run)
        total = self._simplify(i64(p.batches) * runs * i64(p.groups) * self._blocks)
        inner = self._simplify(i64(p.groups) * self._blocks)

        def task(t: Expr) -> Stmt:
            column, rest = self._mod(t, inner), self._div(t, inner)
            block, group = self._mod(column, self._blocks), self._div(column, self._blocks)
            first, batch = self._mod(rest, runs), self._div(rest, runs)
            if run == 1:
                return self._tile(batch, first, group, block)
            start = first * i64(run)
            count = self._simplify(tirx.min(self._tiles - start, i64(run)))
            return self._loops.serial(
                "tile", count, lambda i: self._tile(batch, start + i, group, block)
            )

        products = self._static_products()
        if products is not None and products < _SERIAL_PRODUCTS:
            return self._loops.serial("task", total, task)
        return self._loops.parallel("task", total, task)

    def describe(self) -> str:
        """A few words for the user."""
        return f"tiles of {self._most_rows}x{self._product.width}"

    # -- sizes ----------------------------------------------------------------------------------

    def _simplify(self, expr: Expr) -> Expr:
        return self._loops.simplify(expr)

    def _ceil_div(self, count: Expr | int, by: int) -> Expr:
        return self._simplify(tirx.floordiv(i64(count) + i64(by - 1), i64(by)))

    def _div(self, a: Expr, b: Expr) -> Expr:
        known = constant_int(b)
        if known is None:
            return tirx.truncdiv(a, b)
        return self._simplify(tirx.floordiv(a, b))

    def _mod(self, a: Expr, b: Expr) -> Expr:
        known = constant_int(b)
        if known is None:
            return tirx.truncmod(a, b)
        return self._simplify(tirx.floormod(a, b))

    def _sum_length(self) -> int:
        """Terms of a sum, symbolic extents taken for 1."""
        length = 1
        for _, extent in self._product.reduce:
            length *= max(1, constant_int(extent) or 1)
        return length

    def _static_products(self) -> int | None:
        p = self._product
        result = 1
        for size in (p.batches, p.rows, p.groups, p.columns, *(e for _, e in p.reduce)):
            known = constant_int(size)
            if known is None:
                return None
            result *= known
        return result

    def _tiles_in_a_run(self) -> int:
        """How many tiles share a block of columns before the next block is taken up.

        Rows that fit in half of the level-2 cache are read from memory once; if all right factors
        fit as well, rows need not be taken together at all.
        """
        p = self._product
        half = self._ctx.machine.l2_bytes // 2
        blocks = constant_int(self._blocks)
        if blocks is not None and p.groups * blocks * p.width * self._sum_length() * 4 <= half:
            return 1
        run = max(1, half // max(1, p.row_bytes * self._most_rows))
        tiles, batches = constant_int(self._tiles), constant_int(p.batches)
        if tiles is not None:
            run = min(run, max(1, tiles))
            if blocks is not None and batches is not None:
                tasks = batches * tiles * p.groups * blocks
                run = min(run, max(1, tasks // _TASKS))
        return min(run, 64)

    # -- tiles ----------------------------------------------------------------------------------

    def _tile(self, batch: Expr, number: Expr, group: Expr, block: Expr) -> Stmt:
        """The tile of rows ``number`` of a block of columns."""

        def rows_from(row: Expr, count: int) -> Stmt:
            at = Block(batch, self._simplify(row), count, group, block)
            return self._product_tile(at)

        known = constant_int(self._product.rows)
        if known is not None:
            return self._balanced(known, number, rows_from)
        return self._symbolic(number, rows_from)

    def _balanced(self, count: int, number: Expr, rows_from: Callable[[Expr, int], Stmt]) -> Stmt:
        """Tiles whose numbers of rows differ by at most one."""
        tiles = -(-count // self._most_rows)
        if tiles == 0:
            return seq()
        short, longer = divmod(count, tiles)
        if longer == 0:
            return rows_from(number * i64(short), short)
        return when(
            self._simplify(number < i64(longer)),
            rows_from(number * i64(short + 1), short + 1),
            rows_from(number * i64(short) + i64(longer), short),
        )

    def _symbolic(self, number: Expr, rows_from: Callable[[Expr, int], Stmt]) -> Stmt:
        """Full tiles, then tiles one row shorter if that adds up; else one short tile."""
        most = self._most_rows
        count = i64(self._product.rows)
        if most == 1:
            return rows_from(number, 1)
        missing = self._tiles * i64(most) - count
        full = tirx.Var("full", "int64")
        start = full * i64(most)
        shorter = start + (number - full) * i64(most - 1)
        adds_up = missing <= self._tiles
        return seq(
            tirx.Bind(full, self._tiles - tirx.Select(adds_up, missing, i64(1))),
            _branch(
                number < full,
                rows_from(number * i64(most), most),
                _branch(
                    adds_up,
                    rows_from(shorter, most - 1),
                    self._tail(start, count - start, rows_from),
                ),
            ),
        )

    def _tail(self, start: Expr, rest: Expr, rows_from: Callable[[Expr, int], Stmt]) -> Stmt:
        """The ``rest`` rows from ``start`` on: fewer than tiles of two kinds have."""
        most = self._most_rows - 2
        if most <= _BITS_FROM - 2:
            result: Stmt | None = None
            for count in range(1, most + 1):
                result = _branch(tirx.EQ(rest, i64(count)), rows_from(start, count), result)
            return seq(result)
        parts: list[Stmt] = []
        bit = 1 << (most.bit_length() - 1)
        while bit:
            # start, then the rows of all larger bits that are set
            larger = rest - tirx.truncmod(rest, i64(2 * bit))
            is_set = tirx.truncmod(rest, i64(2 * bit)) >= i64(bit)
            parts.append(_branch(is_set, rows_from(start + larger, bit)))
            bit //= 2
        return seq(*parts)

    def _product_tile(self, at: Block) -> Stmt:
        p = self._product
        shape = Shape(at.rows, p.width, self._lanes)
        before, left, right = p.operands(at)

        def finish(row: Expr, value: Callable[[Expr], Expr]) -> Stmt:
            def columns(valid: Expr | int) -> Stmt:
                return store_columns(
                    self._loops, shape, valid, lambda j: p.emit(at, row, j, value(j))
                )

            return self._each_width(at.block, columns)

        return seq(before, product_tile(self._loops, shape, p.reduce, left, right, finish))

    def _each_width(self, block: Expr, columns: Callable[[Expr | int], Stmt]) -> Stmt:
        """The last block of columns may be narrower."""
        p = self._product
        known = constant_int(p.columns)
        if known is not None:
            rest = known % p.width
            if rest == 0:
                return columns(p.width)
            is_last = self._simplify(tirx.EQ(block, self._blocks - i64(1)))
            return when(is_last, columns(rest), columns(p.width))
        valid = i64(p.columns) - block * i64(p.width)
        return tirx.IfThenElse(valid >= i64(p.width), columns(p.width), columns(valid))


def _branch(condition: Expr, then: Stmt, otherwise: Stmt | None = None) -> Stmt:
    """A branch whose condition TVM does not look into: it would solve it as an inequality for every
    access to a register tile, which takes seconds."""
    taken = tirx.Var("taken", "bool")
    return seq(tirx.Bind(taken, condition), tirx.IfThenElse(taken, then, otherwise))


__all__ = ["Block", "Product", "ProductLoops"]
