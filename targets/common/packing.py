"""How weights are packed and how large register tiles are: the one place that decides both.

Kernels read the number of columns from the packed weight's shape; ``width`` chooses it when the
weight is packed, ``Blocks``, ``rows`` and ``lanes`` fit the tile to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Expr

from rten_aot.targets.base import Machine
from rten_aot.targets.common.expr import i64
from rten_aot.targets.common.problems import Problem
from rten_aot.targets.cuda.target import Gpu

_MAX_ROWS = 12
"""More rows than this need more pointers than there are integer registers."""
_ACCUMULATORS = 8
"""Vectors of sums of a depthwise tile; some registers are left for taps and images."""
_MAX_POINTERS = 11
"""Pointers to rows that x86-64 has integer registers for, beside those of the loop."""

_FEW_VECTORS_COST = 1.2
"""A tile one vector wide loads about as many values as it multiplies."""
_DOT_PRODUCT_ROWS = 4
"""With so few rows a transposed right factor is not worth packing."""
_FEWEST_ROWS = 4
"""Tiles with fewer rows load about as many values as they multiply."""
_MANY = 1 << 20
"""Taken for a number of columns that only a run knows."""


def width(machine: Machine, problem: Problem) -> int:
    """Columns of a register tile for a problem; channels of a depthwise one."""
    count = problem.columns
    if isinstance(machine, Gpu):  # one block, whose rows are aligned for loads of four elements
        return -(-(count or 1) // 4) * 4
    match problem.kind:
        case "conv":
            return columns(machine, count or 1)
        case "depthwise":
            return channels(machine, count or 1)
        case "gemm":
            return columns(
                machine, count or 1, wide=True, height=problem.rows, depth=problem.depth or 1
            )
        case "matmul" if count is not None:
            return columns_in_place(machine, max(1, count))
    return columns_in_copy(machine, count)


def columns(
    machine: Machine,
    count: int,
    dtype: str = "float32",
    *,
    wide: bool = False,
    height: int | None = None,
    depth: int = 1,
) -> int:
    """Columns of a register tile, and lanes of a packed weight, for ``count`` output columns.

    ``wide`` asks for tiles of few rows, whose shorter versions, for a number of rows that is known
    at run time only, are few as well; the others read the packed weight fewer times. ``height`` is
    the number of rows in all, if it is known: few rows are best taken all at once. ``depth`` is the
    number of terms of a sum: two blocks are to stay in the level-2 cache, one being fetched.
    """
    vector = machine.lanes(dtype)
    if count < vector:
        narrow = 1
        while narrow < count:
            narrow *= 2
        return narrow
    return vector * _vectors(machine, count, vector, wide, height, depth)


def columns_in_place(machine: Machine, count: int) -> int:
    """Columns of the widest tile that reads no column of a matrix in memory that is not there."""
    vector = machine.lanes("float32")
    if count < vector:
        return 1 << (count.bit_length() - 1)
    return min(columns(machine, count, wide=True), count // vector * vector)


def columns_in_copy(machine: Machine, count: int | None) -> int:
    """Columns of a tile for a matrix that is packed at run time."""
    return columns(machine, _MANY if count is None else count, wide=True)


def is_dot_products(rows: int | None, columns: int | None, transposed: bool) -> bool:
    """Whether a product of two matrices in memory is best made sum by sum, without tiles."""
    few_rows = rows is not None and rows <= _DOT_PRODUCT_ROWS
    return columns == 1 or (few_rows and transposed)


def channels(machine: Machine, count: int) -> int:
    """Channels of a depthwise tile: two vectors if there are that many, else a shorter vector."""
    vector = machine.lanes("float32")
    for width in (2 * vector, vector):
        if count >= width:
            return width
    while vector > max(count, 1):
        vector //= 2
    return vector


def pixels(machine: Machine, width: int) -> int:
    """Pixels of a depthwise tile of ``width`` channels."""
    return max(1, _ACCUMULATORS // (width // lanes(machine, width)))


def _vectors(
    machine: Machine, count: int, vector: int, wide: bool, height: int | None, depth: int
) -> int:
    """Vectors in a row: fewest passes over the weight, least waste, then the preferred number."""
    preferred = _preferred_vectors(machine, wide=wide)

    def passes(vectors: int) -> int:
        if height is None or height > _MAX_ROWS:
            return 0
        return height if vectors == 1 else -(-height // rows(machine, vectors * vector))

    def cost(vectors: int) -> tuple[int, bool, float, int]:
        width = vectors * vector
        spills = vectors > 2 and 2 * width * depth * 4 > machine.l2_bytes
        padded = -(-count // width) * width
        waste = padded * (_FEW_VECTORS_COST if vectors == 1 else 1.0)
        return passes(vectors), spills, waste, abs(vectors - preferred)

    candidates = [v for v in range(1, 7) if machine.accumulator_rows(v) >= _FEWEST_ROWS]
    return min(candidates or [1], key=cost)


def _preferred_vectors(machine: Machine, *, wide: bool) -> int:
    if machine.vector_registers <= 16:
        return 2
    if machine.terms > 1:  # tiles that are about as wide as high load least
        return 2
    # Few rows suit the many registers of 128-bit machines, whose vectors are short.
    return 4 if wide or machine.vector_bits == 128 else 2


@dataclass(frozen=True)
class Blocks:
    """Blocks of columns of a packed weight, and the tiles that each of them makes, side by side."""

    packed: int
    """Columns of a block."""
    tile: int
    """Columns of a tile."""

    @classmethod
    def of(cls, machine: Machine, packed: int, recorded: int | None) -> Blocks:
        """Those of a weight that was packed by a record (``recorded`` columns), or for levels.

        What was packed for machines with longer vectors is cut where registers are too few.
        """
        length = lanes(machine, packed)
        vectors = packed // length
        if recorded is not None or machine.accumulator_rows(vectors) >= _FEWEST_ROWS:
            return cls(packed, packed)
        parts = [v for v in range(1, vectors) if vectors % v == 0]
        fitting = [v for v in parts if machine.accumulator_rows(v) >= _FEWEST_ROWS]
        preferred = _preferred_vectors(machine, wide=False)
        return cls(packed, min(fitting, key=lambda v: abs(v - preferred)) * length)

    def place(self, tile: Expr, column: Expr) -> tuple[Expr, Expr]:
        """The block of the tile with this number, and there the column of a column of the tile."""
        if self.tile == self.packed:
            return tile, column
        parts = i64(self.packed // self.tile)
        return tirx.truncdiv(tile, parts), tirx.truncmod(tile, parts) * i64(self.tile) + column


def lanes(machine: Machine, width: int, dtype: str = "float32") -> int:
    """The vector length for a tile of ``width`` columns: whole vectors, as long as possible."""
    length = machine.lanes(dtype)
    while width % length:
        length //= 2
    return length


def rows(machine: Machine, width: int, dtype: str = "float32", *, apart: bool = False) -> int:
    """The most rows of a register tile of ``width`` columns.

    ``apart``: the rows lie at uneven distances, so that each needs a pointer of its own.
    """
    vectors = width // lanes(machine, width, dtype)
    most = _MAX_POINTERS if apart and machine.arch == "x86_64" else _MAX_ROWS
    return max(1, min(most, machine.accumulator_rows(vectors)))


_WINOGRAD_CHANNELS = 16
"""With fewer channels the transformations take longer than what they save."""
_CACHED_WEIGHTS = 1 << 18
"""Bytes of weights that stay in the cache from one run to the next, whatever else runs."""
_CYCLES_PER_BYTE = 0.6
"""Time that several threads together take to read a byte of weights from memory, in cycles."""


def pays_winograd(machine: Machine, out: int, channels: int, tiles: int | None) -> tuple[bool, str]:
    """Whether transformed weights are worth it for a convolution of 3x3 with ``tiles`` of 2x2.

    There are 16 transformed weights for 9 plain ones: with few tiles reading them from memory takes
    longer than multiplying. ``tiles`` is None if only a run tells the sizes. The second value says
    why.
    """
    if isinstance(machine, Gpu):
        return False, "one product is made of tiles in registers"
    if min(out, channels) < _WINOGRAD_CHANNELS:
        return False, "too few channels for Winograd"
    weight_bytes = 16 * out * channels * 4
    if tiles is None or weight_bytes <= _CACHED_WEIGHTS:
        return True, "16 products in place of 36"
    direct_cycles = tiles * 36 * out * channels / (2 * machine.lanes("float32"))
    if direct_cycles < _CYCLES_PER_BYTE * weight_bytes:
        return False, "too few pixels for reading Winograd's weights"
    return True, "16 products in place of 36"
