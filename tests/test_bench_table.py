"""The means below the table of ``make bench``."""

from __future__ import annotations

from rten_aot.cli.timing import Comparison, Spread
from tests.support.bench import Result, summary


def times(median: float) -> Spread:
    return Spread(median, median, median, 1)


def result(threads: int, **ratios: float | None) -> Result:
    compared = {
        name: None if ratio is None else Comparison(times(1e-3), times(1e-3 * ratio))
        for name, ratio in ratios.items()
    }
    return Result("case", threads, times(1e-3), compared)


def test_means_by_threads_and_of_the_better_one() -> None:
    results = [
        result(1, a=4.0, b=2.0),
        result(1, a=1.0, b=8.0),
        result(2, a=3.0, b=None),
        result(2, a=3.0, b=None),
    ]
    assert summary(results) == [
        "geometric mean of the speed, 1T: 2.00 of a (2 rows), 4.00 of b (2 rows), "
        "1.41 of the better one (2 rows)",
        "geometric mean of the speed, 2T: 3.00 of a (2 rows), none of b, "
        "3.00 of the better one (2 rows)",
    ]


def test_no_others() -> None:
    assert summary([result(1)]) == []
    assert summary([result(1, a=2.0)]) == ["geometric mean of the speed, 1T: 2.00 of a (1 rows)"]


def test_cells_and_facts() -> None:
    row = result(1, a=1.5, b=None)
    assert row.cells() == ["1.00", "1.50", "1.50", "", ""]
    facts = row.facts()
    assert facts["ratios"] == {"a": 1.5}
    assert facts["compared"]["b"] is None
    assert facts["own"] == {"median": 1e-3, "p10": 1e-3, "p90": 1e-3, "runs": 1}
