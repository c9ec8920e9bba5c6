"""How weights are packed and how large register tiles are: the one place that decides both.

Kernels read the number of columns from the packed weight's shape; ``columns`` chooses it when the
weight is packed, ``rows`` and ``lanes`` fit the rest of the tile to it.
"""

from __future__ import annotations

from rten_aot.targets.base import Machine

_MAX_ROWS = 12
"""More rows than this need more pointers than there are integer registers."""

_FEW_VECTORS_COST = 1.2
"""A tile one vector wide loads about as many values as it multiplies."""


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

    candidates = [v for v in range(1, 7) if machine.accumulator_rows(v) >= 4]
    return min(candidates or [1], key=cost)


def _preferred_vectors(machine: Machine, *, wide: bool) -> int:
    if machine.vector_registers <= 16:
        return 2
    # Few rows suit the many registers of 128-bit machines, whose vectors are short.
    return 4 if wide or machine.vector_bits == 128 else 2


def lanes(machine: Machine, width: int, dtype: str = "float32") -> int:
    """The vector length for a tile of ``width`` columns: whole vectors, as long as possible."""
    length = machine.lanes(dtype)
    while width % length:
        length //= 2
    return length


def rows(machine: Machine, width: int, dtype: str = "float32") -> int:
    """The most rows of a register tile of ``width`` columns."""
    vectors = width // lanes(machine, width, dtype)
    return max(1, min(_MAX_ROWS, machine.accumulator_rows(vectors)))


_WINOGRAD_CHANNELS = 16
"""With fewer channels the transformations take longer than what they save."""
_CACHED_WEIGHTS = 1 << 18
"""Bytes of weights that stay in the cache from one run to the next, whatever else runs."""
_CYCLES_PER_BYTE = 0.6
"""Time that several threads together take to read a byte of weights from memory, in cycles."""


def pays_winograd(machine: Machine, out: int, channels: int, tiles: int | None) -> bool:
    """Whether transformed weights are worth it for a convolution of 3x3 with ``tiles`` of 2x2.

    There are 16 transformed weights for 9 plain ones: with few tiles reading them from memory takes
    longer than multiplying. ``tiles`` is None if only a run tells the sizes.
    """
    if min(out, channels) < _WINOGRAD_CHANNELS:
        return False
    weight_bytes = 16 * out * channels * 4
    if tiles is None or weight_bytes <= _CACHED_WEIGHTS:
        return True
    direct_cycles = tiles * 36 * out * channels / (2 * machine.lanes("float32"))
    return direct_cycles >= _CYCLES_PER_BYTE * weight_bytes
