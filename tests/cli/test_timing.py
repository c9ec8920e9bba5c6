"""Statistics of repeated runs, and the order in which they run."""

from __future__ import annotations

import os

import pytest

from rten_aot.cli import timing
from rten_aot.cli.timing import (
    LEAST_RUNS,
    Comparison,
    Spread,
    alternating,
    geometric_mean,
    interleaved,
    percentile,
    spread,
    warn_if_busy,
)


@pytest.mark.parametrize(
    ("values", "part", "expected"),
    [
        ([7.0], 0.9, 7.0),
        ([1.0, 2.0], 0.5, 1.5),
        ([1.0, 2.0, 4.0], 0.5, 2.0),
        ([0.0, 10.0, 20.0, 30.0, 40.0], 0.1, 4.0),
        ([0.0, 10.0, 20.0, 30.0, 40.0], 0.9, 36.0),
        ([0.0, 10.0], 0.0, 0.0),
        ([0.0, 10.0], 1.0, 10.0),
    ],
)
def test_percentiles(values: list[float], part: float, expected: float) -> None:
    assert percentile(values, part) == pytest.approx(expected)


def test_spread_sorts() -> None:
    times = [float(n) for n in (5, 1, 4, 2, 3)]
    assert spread(times) == Spread(3.0, pytest.approx(1.4), pytest.approx(4.6), 5)
    assert times[0] == 5


def test_wide_spreads() -> None:
    assert not Spread(1.0, 0.9, 1.2, 10).is_wide
    assert Spread(1.0, 0.9, 1.3, 10).is_wide


def test_ratios() -> None:
    def times(median: float) -> Spread:
        return Spread(median, median, median, 1)

    assert Comparison(times(2.0), times(3.0)).ratio == 1.5
    assert geometric_mean([2.0, 0.5]) == pytest.approx(1.0)
    assert geometric_mean([1.0, 8.0, 1.0]) == pytest.approx(2.0)


class Clock:
    """Time that passes only when something runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.ran: list[str] = []
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)

    def job(self, name: str, seconds: float) -> object:
        def run() -> None:
            self.ran.append(name)
            self.now += seconds

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_functions_run_in_turn(clock: Clock) -> None:
    a, b = clock.job("a", 0.25), clock.job("b", 0.5)
    times = interleaved([a, b], 3.0)  # type: ignore[list-item]
    assert times == [[0.25] * len(times[0]), [0.5] * len(times[0])]
    assert len(times[0]) == LEAST_RUNS  # more than fit the seconds
    measured = clock.ran[-2 * LEAST_RUNS :]
    assert measured == ["a", "b"] * LEAST_RUNS
    assert clock.ran[: -2 * LEAST_RUNS].count("a") >= 2


def test_seconds_and_runs(clock: Clock) -> None:
    job = clock.job("a", 0.125)
    (times,) = interleaved([job], 2.0)  # type: ignore[list-item]
    assert len(times) == 16
    (times,) = interleaved([job], 2.0, runs=3)  # type: ignore[list-item]
    assert len(times) == 3


def test_warm_up_takes_some_time(clock: Clock) -> None:
    interleaved([clock.job("a", 0.015625)], 1.0, runs=1)  # type: ignore[list-item]
    assert len(clock.ran) == 13 + 1


def test_pairs_do_not_wait_for_others(clock: Clock) -> None:
    jobs = [clock.job(name, 0.25) for name in ("own", "first", "second")]
    own, comparisons = alternating(jobs[0], jobs[1:], 1.0, runs=2)  # type: ignore[arg-type]
    assert own.runs == 4
    assert [c.own.runs for c in comparisons] == [c.other.runs for c in comparisons] == [2, 2]
    assert clock.ran.index("second") > len(clock.ran) - 1 - clock.ran[::-1].index("first")
    own, comparisons = alternating(jobs[0], [], 1.0, runs=2)  # type: ignore[arg-type]
    assert (own.runs, comparisons) == (2, [])


@pytest.mark.parametrize(
    ("load", "threads", "p90", "warning"),
    [
        (0.2, 2, 1.1, ""),
        (1.2, 1, 1.1, ""),
        (1.0, 2, 1.1, "the machine is busy: load average 1.0 on 2 cores beforehand"),
        (0.1, 1, 2.0, "the times vary much: something else seems to run on this machine"),
    ],
)
def test_warnings(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    load: float,
    threads: int,
    p90: float,
    warning: str,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    warn_if_busy(load, threads, [Spread(1.0, 1.0, 1.0, 9), Spread(1.0, 1.0, p90, 9)])
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"warning: {warning}\n" if warning else "")
