"""From the profiles of many runs to one table: a row for each kernel, or for each call of one."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rten_aot.cli.timing import Spread, spread
from rten_aot.runtime import Profile

LEVELS = (1 << 17, 1 << 20, 1 << 22, 1 << 24, 1 << 27)
"""Bytes of memory in which copying is measured, from the caches of one core to beyond all."""


@dataclass(frozen=True)
class Peaks:
    """What the machine can do in a second at best."""

    flops: float
    copies: Mapping[int, float]
    """Bytes read and written in a second by copying, by the bytes that are copied over."""

    def bandwidth(self, size: float) -> float:
        """That of the smallest measured memory that holds ``size`` bytes."""
        return self.copies[min((s for s in self.copies if s >= size), default=max(self.copies))]


def measure_peaks(measure: Callable[[int], float]) -> Peaks:
    """The peaks, by a function like ``Model.measure_peak``."""
    return Peaks(measure(0), {size: measure(size) for size in LEVELS})


@dataclass(frozen=True)
class Row:
    """A kernel in one run, by the medians over all runs."""

    kernel: str
    nodes: tuple[tuple[str, str], ...]
    """Names and operators of the model's nodes in it, empty if not known."""
    seconds: float
    calls: float
    flops: float
    bytes: float

    def limit(self, peaks: Peaks) -> float:
        """The least seconds that the machine needs, by its peaks."""
        memory = self.bytes / peaks.bandwidth(self.bytes / max(self.calls, 1))
        return max(self.flops / peaks.flops, memory)

    def is_memory_bound(self, peaks: Peaks) -> bool:
        """Whether moving data takes the machine longer than computing."""
        return self.limit(peaks) > self.flops / peaks.flops


def rows(
    steps: Sequence[Mapping[str, Any]], profiles: Sequence[Profile], *, by_call: bool = False
) -> list[Row]:
    """The kernels, the most expensive one first, without those that no run called.

    ``steps`` are the metadata's "profile". With ``by_call`` every step is a row of its own.
    """
    table = np.array(
        [[(s.calls, s.nanoseconds, s.flops, s.bytes) for s in p.steps] for p in profiles],
        np.float64,
    ).reshape(len(profiles), len(steps), 4)
    groups: dict[Hashable, list[int]] = {}
    for index, step in enumerate(steps):
        groups.setdefault(index if by_call else step["kernel"], []).append(index)
    found = [_row(steps, members, table) for members in groups.values()]
    return sorted((r for r in found if r.calls > 0), key=lambda r: -r.seconds)


def _row(steps: Sequence[Mapping[str, Any]], members: list[int], table: Any) -> Row:
    calls, nanoseconds, flops, moved = np.median(table[:, members].sum(axis=1), axis=0).tolist()
    nodes = {(n["name"], n["op"]): None for m in members for n in steps[m]["nodes"]}
    kernel = str(steps[members[0]]["kernel"])
    return Row(kernel, tuple(nodes), nanoseconds * 1e-9, calls, flops, moved)


@dataclass(frozen=True)
class Report:
    """Where the time of a run goes."""

    run: Spread
    outside: float
    """Seconds that no kernel took: inputs and outputs, sizes, the clock itself."""
    rows: Sequence[Row]
    peaks: Peaks

    def share(self, seconds: float) -> float:
        """The part of all that was measured."""
        return seconds / (self.outside + sum(row.seconds for row in self.rows))


def report(
    steps: Sequence[Mapping[str, Any]],
    profiles: Sequence[Profile],
    peaks: Peaks,
    *,
    by_call: bool = False,
) -> Report:
    """The medians over the runs; the arguments are those of ``rows``."""
    outside = [p.nanoseconds - sum(step.nanoseconds for step in p.steps) for p in profiles]
    return Report(
        spread([p.nanoseconds * 1e-9 for p in profiles]),
        statistics.median(outside) * 1e-9,
        rows(steps, profiles, by_call=by_call),
        peaks,
    )
