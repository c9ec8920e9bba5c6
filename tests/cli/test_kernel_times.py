"""From profiles to rows: sums over calls, medians over runs, limits by the peaks."""

from __future__ import annotations

from typing import Any

import pytest

from rten_aot.cli.kernel_times import LEVELS, Peaks, Row, measure_peaks, report, rows
from rten_aot.runtime import Profile, StepTimes

PEAKS = Peaks(100e9, {1000: 50e9, 100_000: 10e9})


def step(kernel: str, *nodes: str) -> dict[str, Any]:
    return {"kernel": kernel, "nodes": [{"name": n, "op": n.upper()} for n in nodes]}


STEPS = [step("a", "x"), step("b"), step("a", "y", "x"), step("c", "z")]


def profile(*nanoseconds: int, total: int) -> Profile:
    """Every step that took some time ran once, for 10 operations and 20 bytes a nanosecond."""
    steps = [StepTimes(int(n > 0), n, 10 * n, 20 * n) for n in nanoseconds]
    return Profile(tuple(steps), total)


RUNS = [
    profile(100, 50, 10, 0, total=200),
    profile(200, 60, 10, 0, total=300),
    profile(300, 40, 10, 0, total=900),
]


def test_a_row_for_each_kernel() -> None:
    found = rows(STEPS, RUNS)
    assert [(r.kernel, r.nodes) for r in found] == [("a", (("x", "X"), ("y", "Y"))), ("b", ())]
    assert found[0].seconds == pytest.approx(210e-9)
    assert found[1].seconds == pytest.approx(50e-9)
    assert (found[0].calls, found[0].flops, found[0].bytes) == (2, 2100, 4200)


def test_a_row_for_each_call() -> None:
    found = rows(STEPS, RUNS, by_call=True)
    assert [(r.kernel, r.nodes[:1]) for r in found] == [
        ("a", (("x", "X"),)),
        ("b", ()),
        ("a", (("y", "Y"),)),
    ]
    assert [r.seconds for r in found] == pytest.approx([200e-9, 50e-9, 10e-9])


def test_no_steps() -> None:
    assert rows([], [Profile((), 10)]) == []


def test_shares_make_up_the_whole() -> None:
    found = report(STEPS, RUNS, PEAKS)
    assert found.outside == pytest.approx(40e-9)
    assert found.run.median == pytest.approx(300e-9)
    parts = [found.share(row.seconds) for row in found.rows]
    assert parts[0] == pytest.approx(210 / 300)
    assert sum(parts) + found.share(found.outside) == pytest.approx(1)


@pytest.mark.parametrize(("size", "rate"), [(1, 50e9), (1000, 50e9), (1001, 10e9), (10**9, 10e9)])
def test_bandwidth_depends_on_the_size(size: int, rate: float) -> None:
    assert PEAKS.bandwidth(size) == rate


def test_limits() -> None:
    computes = Row("k", (), 1.0, 2, 200e9, 2000)
    assert computes.limit(PEAKS) == pytest.approx(2.0)
    assert not computes.is_memory_bound(PEAKS)
    # A thousand bytes in each of the two calls stay in the small, fast memory.
    moves = Row("k", (), 1.0, 2, 10, 2000)
    assert moves.limit(PEAKS) == pytest.approx(2000 / 50e9)
    assert moves.is_memory_bound(PEAKS)
    assert Row("k", (), 1.0, 1, 0, 0).limit(PEAKS) == 0


def test_peaks_are_measured_at_every_level() -> None:
    found = measure_peaks(lambda size: 1.0 if size == 0 else float(size))
    assert found == Peaks(1.0, {size: float(size) for size in LEVELS})
