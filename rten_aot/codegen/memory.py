"""Placement of buffers of known size: buffers that are never in use together may share memory.

The native runtime has the same algorithm for models whose sizes are known at run time only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64


@dataclass(frozen=True)
class Lifetime:
    """A buffer of ``size`` bytes in use from step ``first`` to step ``last``, both included."""

    size: int
    first: int
    last: int


def place(buffers: Sequence[Lifetime]) -> tuple[list[int], int]:
    """Offsets of the buffers and the total size, in bytes, all multiples of 64.

    Largest first, each at the lowest offset that is free during its whole lifetime.
    """
    order = sorted(range(len(buffers)), key=lambda i: (-buffers[i].size, buffers[i].first, i))
    offsets = [0] * len(buffers)
    placed: list[int] = []
    total = 0
    for i in order:
        size = _aligned(buffers[i].size)
        busy = sorted(
            (offsets[j], offsets[j] + _aligned(buffers[j].size))
            for j in placed
            if buffers[j].first <= buffers[i].last and buffers[i].first <= buffers[j].last
        )
        at = 0
        for begin, end in busy:
            if at + size <= begin:
                break
            at = max(at, end)
        offsets[i] = at
        total = max(total, at + size)
        placed.append(i)
    return offsets, total


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
