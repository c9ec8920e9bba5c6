"""Repeated runs: how often, in what order, and what their times say."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

WARM_UP_SECONDS = 0.2
LEAST_RUNS = 5
BUSY_SPREAD = 1.25
"""Runs of a quiet machine have a 90th percentile below this many medians."""


@dataclass(frozen=True)
class Spread:
    """Times of single runs in seconds."""

    median: float
    p10: float
    p90: float
    runs: int

    @property
    def is_wide(self) -> bool:
        """Whether something else was in the way of the runs."""
        return self.p90 > BUSY_SPREAD * self.median


def spread(times: Sequence[float]) -> Spread:
    """The middle, the low and the high end of some times."""
    ordered = sorted(times)
    p10, median, p90 = (percentile(ordered, part) for part in (0.1, 0.5, 0.9))
    return Spread(median, p10, p90, len(ordered))


def percentile(ordered: Sequence[float], part: float) -> float:
    """The value below which a part of the ascending values lies, interpolated."""
    place = part * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def interleaved(
    functions: Sequence[Callable[[], object]], seconds: float, runs: int | None = None
) -> list[list[float]]:
    """The times of runs of each function, all in turn: what slows one down slows all.

    After a warm-up they run for some ``seconds`` and at least ``LEAST_RUNS`` times, or ``runs``
    times each.
    """
    for function in functions:
        _warm_up(function)
    times: list[list[float]] = [[] for _ in functions]
    end = time.perf_counter() + seconds
    while len(times[0]) < (LEAST_RUNS if runs is None else runs) or (
        runs is None and time.perf_counter() < end
    ):
        for function, kept in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            kept.append(time.perf_counter() - start)
    return times


def _warm_up(function: Callable[[], object]) -> None:
    end = time.perf_counter() + WARM_UP_SECONDS
    function()
    function()
    while time.perf_counter() < end:
        function()


def warn_if_busy(load: float, threads: int, spreads: Sequence[Spread]) -> None:
    """Say on standard error that something else seems to have run on the machine.

    ``load`` is the load average from before the measurement, which had ``threads`` threads.
    """
    cores = len(os.sched_getaffinity(0))
    if load + threads > cores + 0.5:
        text = f"the machine is busy: load average {load:.1f} on {cores} cores beforehand"
    elif any(s.is_wide for s in spreads):
        text = "the times vary much: something else seems to run on this machine"
    else:
        return
    print(f"warning: {text}", file=sys.stderr)


def alternating(
    own: Callable[[], object],
    others: Sequence[Callable[[], object]],
    seconds: float,
    runs: int | None = None,
) -> tuple[Spread, list[Comparison]]:
    """Times of ``own``, and of each of the others in turn with it, ``seconds`` for each pair."""
    if not others:
        return spread(*interleaved([own], seconds, runs)), []
    all_own: list[float] = []
    comparisons = []
    for other in others:
        times, others_times = interleaved([own, other], seconds, runs)
        all_own += times
        comparisons.append(Comparison(spread(times), spread(others_times)))
    return spread(all_own), comparisons


@dataclass(frozen=True)
class Comparison:
    """Runs in turn of two programs that do the same."""

    own: Spread
    other: Spread

    @property
    def ratio(self) -> float:
        """How many times as fast the own one is."""
        return self.other.median / self.own.median


def geometric_mean(ratios: Sequence[float]) -> float:
    """The mean of ratios: of 2 and 1/2 it is 1."""
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
