"""The loops around register tiles of a product: which tiles there are, in what order.

A product has rows (pixels, or rows of a matrix), groups, and in each group blocks of columns whose
right factors are packed side by side. Convolutions and matrix products say what the factors are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import Stmt

from rten_aot.targets.common.choices import Decisions
from rten_aot.targets.common.context import Context
from rten_aot.targets.common.expr import constant_int, i64
from rten_aot.targets.common.loops import seq, when
from rten_aot.targets.common.packing import lanes, rows
from rten_aot.targets.common.row_tiles import row_tile
from rten_aot.targets.common.tiles import Names, Reduce, Shape, product_tile, store_columns

_THREADS = 4
"""Threads that work is shared out for: they should finish at about the same time."""
_UNITS = 2
"""Multiplications of vectors that start in a cycle."""
_BYTES_PER_CYCLE = 8
"""What a core reads of weights that are not in its own caches."""
_LONGEST_RUN = 64
"""Tiles in a run at most."""
_WEIGHTS_FIT = "weights fit the level-2 cache"


def _even(tiles: int, run: int) -> int:
    """The length of runs of at most ``run`` tiles that are about equally long."""
    return -(-tiles // -(-tiles // run))


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
    is_packed: bool
    """Whether the right factors of a block lie one after the other, blocks as well."""
    is_scattered: bool = False
    """Whether rows of left factors lie at uneven distances."""
    right_bytes: int = 4
    """Of one right factor in memory."""


class ProductLoops:
    """Makes the loops of one product."""

    def __init__(self, ctx: Context, product: Product, name: Names, decisions: Decisions) -> None:
        """``name`` gives the names used in ``product``, which ``build`` defines."""
        self._ctx = ctx
        self._loops = ctx.loops
        self._product = product
        self._lanes = lanes(ctx.machine, product.width)
        self._most_rows = decisions.take(
            "rows",
            rows(ctx.machine, product.width, apart=product.is_scattered),
            "as many as fit the registers",
        )
        self._blocks = name("blocks", self._ceil_div(product.columns, product.width))
        self._tiles = name("tiles", self._ceil_div(product.rows, self._most_rows))
        self._name = name
        self._run = decisions.take("run", *self._tiles_in_a_run())
        self._ahead = product.is_packed and decisions.take("ahead", *self._fetches_ahead())

    def build(self) -> Stmt:
        """The loops."""
        p, name = self._product, self._name
        runs = name("runs", self._number_of_runs())
        inner = name("inner", i64(p.groups) * self._blocks)
        total = self._simplify(i64(p.batches) * runs * inner)
        before = name.take()

        def task(t: Expr) -> Stmt:
            column, rest = self._mod(t, inner), self._div(t, inner)
            block = name("block", self._mod(column, self._blocks))
            group = name("group", self._div(column, self._blocks))
            batch = name("batch", self._div(rest, runs))
            start, count = self._run_bounds(self._mod(rest, runs), runs)
            decoded = name.take()
            return seq(
                decoded,
                self._loops.serial(
                    "tile", count, lambda i: self._tile(batch, start + i, group, block)
                ),
            )

        products = self._static_products()
        if products is not None and products < self._ctx.machine.parallel_products:
            return seq(before, self._loops.serial("task", total, task))
        return seq(before, self._loops.parallel("task", total, task))

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

    def _tiles_in_a_run(self) -> tuple[int, str]:
        """How many tiles share a block of columns before the next block is taken up, and why.

        Rows that fit in half of the level-2 cache are read from memory once; if all right factors
        fit as well, rows need not be taken together at all.
        """
        p = self._product
        half = self._ctx.machine.l2_bytes // 2
        blocks = constant_int(self._blocks)
        if self._weights_fit():
            return 1, _WEIGHTS_FIT
        why = "rows fit half of the level-2 cache"
        run = max(1, half // max(1, p.row_bytes * self._most_rows))
        tiles, batches = constant_int(self._tiles), constant_int(p.batches)
        run = min(run, _LONGEST_RUN)
        if not tiles:
            return run, why
        if blocks is None or batches is None:
            return _even(tiles, run), why
        candidates = sorted({_even(tiles, r) for r in range(1, min(run, tiles) + 1)})
        best = min(candidates, key=lambda r: self._cycles(r, tiles, batches * blocks))
        return best, "threads busy, weights read seldom"

    def _cycles(self, run: int, tiles: int, blocks: int) -> float:
        """About how long some threads take: each run multiplies, and reads its right factors."""
        p, length = self._product, self._sum_length()
        multiplying = self._most_rows * p.width / self._lanes * length / _UNITS
        reading = p.width * length * p.right_bytes / _BYTES_PER_CYCLE
        tasks = blocks * p.groups * -(-tiles // run)
        return -(-tasks // _THREADS) * (run * multiplying + reading)

    def _fetches_ahead(self) -> tuple[bool, str]:
        """Whether the next block's right factors are fetched during a tile, and why."""
        if self._ctx.machine.in_order:
            return False, "a hint takes as long as a load"
        if constant_int(self._tiles) == 1:
            # It reads its right factors one after the other, which processors foresee.
            return False, "a single tile reads weights in order"
        if self._weights_fit():
            return False, _WEIGHTS_FIT
        return True, "weights do not fit the level-2 cache"

    def _weights_fit(self) -> bool:
        """Whether all right factors surely stay in the level-2 cache."""
        p, blocks = self._product, constant_int(self._blocks)
        if blocks is None:
            return False
        size = p.groups * blocks * p.width * self._sum_length() * p.right_bytes
        return size <= self._ctx.machine.l2_bytes // 2

    def _number_of_runs(self) -> Expr:
        """Enough for the longest that a run may be, and for all threads if only a run tells."""
        runs = self._ceil_div(self._tiles, self._run)
        p, blocks = self._product, constant_int(self._blocks)
        if constant_int(self._tiles) is not None or blocks is None or self._run == 1:
            return runs
        least = -(-_THREADS // max(1, (constant_int(p.batches) or 1) * p.groups * blocks))
        return tirx.max(runs, tirx.min(self._tiles, i64(least))) if least > 1 else runs

    def _run_bounds(self, number: Expr, runs: Expr) -> tuple[Expr, Expr]:
        """The first tile of a run and how many there are: of all runs about the same number.

        Threads get equal numbers of runs.
        """
        name, tiles = self._name, constant_int(self._tiles)
        if self._run == 1:
            return name("start", number), i64(1)
        if tiles is None:
            start = name("start", tirx.truncdiv(number * self._tiles, runs))
            end = tirx.truncdiv((number + i64(1)) * self._tiles, runs)
            return start, name("count", end - start)
        short, longer = divmod(tiles, -(-tiles // self._run))
        start = name("start", number * i64(short) + tirx.min(number, i64(longer)))
        return start, self._simplify(i64(short) + tirx.Cast("int64", number < i64(longer)))

    # -- tiles ----------------------------------------------------------------------------------

    def _tile(self, batch: Expr, number: Expr, group: Expr, block: Expr) -> Stmt:
        """The tile of rows ``number`` of a block of columns."""

        def rows_from(row: Expr, count: int) -> Stmt:
            first = self._name("row", row)
            defined = self._name.take()
            return seq(defined, self._product_tile(Block(batch, first, count, group, block)))

        return row_tile(self._loops, self._product.rows, self._most_rows, number, rows_from)

    def _product_tile(self, at: Block) -> Stmt:
        p = self._product
        machine = self._ctx.machine
        shape = Shape(at.rows, p.width, self._lanes, machine.terms, machine.groups_loads)
        before, left, right = p.operands(at)
        ahead = None
        if self._ahead:
            following = dataclasses.replace(at, block=at.block + i64(1))
            ahead = p.operands(following)[2]

        def finish(row: Expr, value: Callable[[Expr], Expr]) -> Stmt:
            def columns(valid: Expr | int) -> Stmt:
                return store_columns(
                    self._loops, shape, valid, lambda j: p.emit(at, row, j, value(j))
                )

            return self._each_width(at.block, columns)

        return seq(before, product_tile(self._loops, shape, p.reduce, left, right, finish, ahead))

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
