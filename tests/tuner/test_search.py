"""The search with measurements that are made up: what is tried, kept, confirmed, dropped."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rten_aot.records import Ratios
from rten_aot.targets.common.choices import Choice
from rten_aot.tuner.measure import MeasureError, Ratio
from rten_aot.tuner.search import Found, Search, settle

A, B = "gemm 1x1x1", "gemm 2x2x2"
GOOD, BAD, BETTER = Choice(rows=3), Choice(rows=4), Choice(rows=5)
TIMES = {GOOD: 0.9, BAD: 1.1, BETTER: 0.7}


class Machine:
    """Measures by a table; ``surprises`` are what single measurements give instead, by number."""

    def __init__(self, surprises: Mapping[int, float] | None = None) -> None:
        self.asked: list[dict[str, Choice]] = []
        self._surprises = surprises or {}

    def measure(self, choices: Mapping[str, Choice]) -> dict[str, Ratio]:
        self.asked.append(dict(choices))
        surprise = self._surprises.get(len(self.asked))
        return {
            key: exactly(TIMES[choices[key]] if surprise is None else surprise)
            if key in choices
            else exactly(1.0)
            for key in (A, B)
        }


def exactly(value: float) -> Ratio:
    return Ratio(1e-3, value, value * 1.001)


def search(machine: Machine, candidates: Mapping[str, list[Choice]], **state: object) -> Search:
    found: dict[str, list[Choice]] = {k: list(reversed(c)) for k, c in candidates.items()}
    return Search(found, machine.measure, **({"tried": {}} | state))  # type: ignore[arg-type]


def test_every_problem_gets_its_next_candidate() -> None:
    machine, tried = Machine(), dict[str, Ratios]()
    ongoing = search(machine, {A: [BAD, GOOD], B: [BAD]}, tried=tried)
    assert ongoing.trial() == []
    assert ongoing.trial() == [A]
    assert machine.asked == [{A: BAD, B: BAD}, {A: GOOD}, {A: GOOD}]
    assert tried == {A: {"rows 4": 1.1, "rows 3": 0.9}, B: {"rows 4": 1.1}}
    assert ongoing.best == {A: Found(GOOD, 0.9)}
    assert not any(ongoing.candidates.values())


def test_what_is_better_takes_the_place() -> None:
    machine = Machine()
    ongoing = search(machine, {A: [GOOD, BETTER, BAD], B: [BAD, BAD, GOOD]})
    assert [ongoing.trial() for _ in range(3)] == [[A], [A], [B]]
    assert machine.asked[-1] == {A: BETTER, B: GOOD}
    assert ongoing.choices == {A: BETTER, B: GOOD}
    worse = search(machine, {A: [GOOD]}, best={A: Found(BETTER, 0.7)})
    assert worse.trial() == []
    assert worse.choices == {A: BETTER}


def test_a_little_faster_is_not_enough() -> None:
    for surprise in (0.985, 0.979):  # the second one only nearly certainly
        ongoing = search(Machine({1: surprise}), {A: [GOOD]})
        assert ongoing.trial() == ([A] if surprise < 0.98 / 1.001 else [])


def test_a_second_measurement_must_confirm_it() -> None:
    machine, tried = Machine({2: 0.99}), dict[str, Ratios]()
    ongoing = search(machine, {A: [GOOD], B: [BETTER]}, tried=tried)
    assert ongoing.trial() == []
    assert machine.asked == [{A: GOOD, B: BETTER}, {A: GOOD, B: BETTER}]
    assert ongoing.best == {}
    assert tried == {A: {"rows 3": 0.9}, B: {"rows 5": 0.7}}


def test_candidates_that_cannot_be_measured() -> None:
    def fail(_choices: Mapping[str, Choice]) -> Mapping[str, Ratio]:
        raise MeasureError("took longer than 9 s")

    tried: dict[str, Ratios] = {}
    ongoing = Search({A: [GOOD], B: [BAD]}, fail, tried)
    with pytest.raises(MeasureError, match="took longer"):
        ongoing.trial()
    assert tried == {A: {"rows 3": None}, B: {"rows 4": None}}
    assert ongoing.best == {}


def test_winners_that_cannot_be_measured_together() -> None:
    machine, tried = Machine(), dict[str, Ratios]()

    def measure(choices: Mapping[str, Choice]) -> Mapping[str, Ratio]:
        if machine.asked:
            raise MeasureError("ended by signal 11")
        return machine.measure(choices)

    ongoing = Search({A: [GOOD]}, measure, tried)
    with pytest.raises(MeasureError, match="signal 11"):
        ongoing.trial()
    assert (tried, ongoing.best) == ({A: {"rows 3": 0.9}}, {})


def test_an_interrupted_trial_was_none() -> None:
    def interrupt(_choices: Mapping[str, Choice]) -> Mapping[str, Ratio]:
        raise KeyboardInterrupt

    tried: dict[str, Ratios] = {}
    with pytest.raises(KeyboardInterrupt):
        Search({A: [GOOD]}, interrupt, tried).trial()
    assert tried == {}


# -- the end ----------------------------------------------------------------------------------

BEST = {A: Found(GOOD, 0.9), B: Found(BETTER, 0.7)}


def whole(*ratios: float) -> tuple[list[dict[str, Choice]], object]:
    """A function that gives these ratios one after the other, and what it was asked."""
    asked: list[dict[str, Choice]] = []
    left = list(ratios)

    def measure(choices: Mapping[str, Choice]) -> Ratio:
        asked.append(dict(choices))
        return exactly(left.pop(0))

    return asked, measure


def test_a_faster_model_keeps_all() -> None:
    _, measure = whole(0.95)
    machine = Machine()
    kept, result = settle(BEST, measure, machine.measure)  # type: ignore[arg-type]
    assert (kept, result) == (BEST, exactly(0.95))
    assert machine.asked == []


def test_what_does_not_hold_is_dropped() -> None:
    asked, measure = whole(1.01, 0.97)
    kept, result = settle({A: Found(BAD, 0.9), B: BEST[B]}, measure, Machine().measure)  # type: ignore[arg-type]
    assert asked == [{A: BAD, B: BETTER}, {B: BETTER}]
    assert (kept, result) == ({B: Found(BETTER, 0.7)}, exactly(0.97))


def test_the_untuned_model_may_be_the_best() -> None:
    for ratios in ([1.01], [0.9999]):
        asked, measure = whole(*ratios)
        assert settle(BEST, measure, Machine().measure) == ({}, None)  # type: ignore[arg-type]
        assert len(asked) == 1
    asked, measure = whole(1.2, 1.1)
    one = {A: Found(BAD, 0.9), B: BEST[B]}
    assert settle(one, measure, Machine().measure) == ({}, None)  # type: ignore[arg-type]
    assert settle({}, measure, Machine().measure) == ({}, None)  # type: ignore[arg-type]
