"""Operators on generated shapes and attributes, against NumPy.

Every module of this folder names families of cases in ``FAMILIES``. Each family gets seeded random
cases, with fixed and free sizes, with constant operands and all constant, on one and two threads.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.generated.generator import Generator
from tests.support.cases import MODES, Case, Mode, assert_matches, outcomes

COUNT = 24
SEEDS = (1, 2)
FEW = 1


def _families() -> dict[str, Callable[[Generator, str], Case]]:
    found: dict[str, Callable[[Generator, str], Case]] = {}
    for info in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if not info.name.startswith("test_"):
            module = importlib.import_module(f"tests.generated.{info.name}")
            own = getattr(module, "FAMILIES", {})
            assert not found.keys() & own.keys(), f"two families of one name: {info.name}"
            found |= own
    return found


FAMILIES = _families()


def draw(family: str, seed: int, count: int) -> list[Case]:
    """The first cases of a family for a seed."""
    generator = Generator(seed)
    return [FAMILIES[family](generator, f"{family}-{seed}-{i}") for i in range(count)]


def faults(cases: Sequence[Case], mode: Mode) -> list[str]:
    """What is wrong with the cases that have the mode, a line each."""
    cases = [case for case in cases if mode in case.modes and case.distinct(mode)]
    results = outcomes(cases, mode)
    wrong = []
    for case in cases:
        try:
            result = results[case.id]
            if isinstance(result, Exception):
                raise result
            for run in result:
                for got, want in zip(run, case.want(), strict=True):
                    assert_matches(got, want, case.tolerance)
        except Exception as err:
            shapes = [None if x is None else x.shape for x in case.inputs]
            message = str(err).strip()[:300]
            wrong.append(f"{case.id}: {case.op} {shapes} {case.rten or case.attrs}: {message}")
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("family", FAMILIES)
def test_generated(family: str, mode: Mode, seed: int) -> None:
    wrong = faults(draw(family, seed, COUNT), mode)
    assert not wrong, f"{len(wrong)} are wrong:\n" + "\n".join(wrong)


@pytest.mark.parametrize("mode", MODES)
def test_a_few_of_each_family(mode: Mode) -> None:
    wrong = faults([case for family in FAMILIES for case in draw(family, 0, FEW)], mode)
    assert not wrong, f"{len(wrong)} are wrong:\n" + "\n".join(wrong)
