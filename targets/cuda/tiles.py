"""The tiles of matrix products: which there are, and which a product is computed in."""

from __future__ import annotations

from dataclasses import dataclass

from tvm.ir import TensorLoad

from rten_aot.targets.common.context import Context
from rten_aot.targets.common.expr import loads
from rten_aot.targets.cuda.contraction import Contraction, total
from rten_aot.targets.cuda.target import Precision

_PROCESSORS = 108
"""Multiprocessors of the GPU that the cost model has in mind, an A100."""
_MANY = 1 << 12
"""Taken for a size that only a run knows."""
_LEAST = 8
"""Rows and columns of a product that tiles are worth it for."""
_LEAST_TERMS = 4
_FEWEST_TERMS = 128
"""Terms that a block should add up at least."""
_MOST_PARTS = 32


@dataclass(frozen=True)
class Tile:
    """A tile of the result, and of it what one thread computes."""

    rows: int
    columns: int
    own_rows: int
    own_columns: int
    depth: int = 16
    """Terms that are in shared memory at a time."""

    @property
    def threads(self) -> int:
        """In a block."""
        return self.rows // self.own_rows * (self.columns // self.own_columns)


LARGE = Tile(128, 128, 8, 8)
SMALL = Tile(64, 64, 8, 4)
TALL = Tile(128, 32, 8, 4)
SHORT = Tile(64, 32, 8, 4)
WIDE = Tile(32, 128, 8, 4)


def refusal(ctx: Context, c: Contraction) -> str | None:
    """Why sums one by one do as well as tiles; None if they do not."""
    rows, columns, terms = (total(ctx, a) for a in (c.rows, c.columns, c.terms))
    if (columns or _MANY) < _LEAST:
        return f"columns are {columns}, fewer than {_LEAST}"
    if (terms or _MANY) < _LEAST_TERMS:
        return f"terms are {terms}, fewer than {_LEAST_TERMS}"
    # Sums one by one load what they need in long runs if the terms of each lie together in memory.
    if (rows or _MANY) < _LEAST and _along_terms(c):
        return f"rows are {rows}, fewer than {_LEAST}, and terms lie together"
    return None


def _along_terms(c: Contraction) -> bool:
    found = [x for x in loads(c.right) if x.indices]
    return bool(found) and all(
        isinstance(x, TensorLoad) and bool(c.terms) and x.indices[-1].same_as(c.terms[-1].var)
        for x in found
    )


def choose_tile(ctx: Context, c: Contraction, precision: Precision) -> Tile:
    """The largest tile of which there are enough, and which results fill."""
    rows, columns, batch = (total(ctx, a) or _MANY for a in (c.rows, c.columns, c.batch))
    if columns <= TALL.columns:
        return SHORT if rows <= SHORT.rows else TALL
    if rows <= WIDE.rows:
        return WIDE
    if precision != "fp32":
        return SMALL  # the largest whose results fit the shared memory
    tiles = ceil_div(rows, LARGE.rows) * ceil_div(columns, LARGE.columns)
    room = tiles * LARGE.rows * LARGE.columns
    if tiles * batch >= 2 * _PROCESSORS and room <= 1.3 * rows * columns:
        return LARGE
    return SMALL


def count_parts(ctx: Context, c: Contraction, tile: Tile) -> int:
    """Blocks that share the terms of one tile."""
    counts = [total(ctx, a) for a in (c.rows, c.columns, c.batch, c.terms)]
    if any(n is None for n in counts):
        return 1
    rows, columns, batch, terms = (n or 0 for n in counts)
    blocks = ceil_div(rows, tile.rows) * ceil_div(columns, tile.columns) * batch
    if blocks == 0 or blocks >= _PROCESSORS:
        return 1
    return max(1, min(2 * _PROCESSORS // blocks, terms // _FEWEST_TERMS, _MOST_PARTS))


def ceil_div(a: int, b: int) -> int:
    """The quotient, rounded up."""
    return -(-a // b)
