"""ONNX's own node tests: every case that rten-convert takes and whose meaning .rten keeps passes.

All others stand in exceptions.txt, each under its reason; one that starts to pass fails here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import onnx
import pytest

from tests.onnx_suite.conftest import PROPERTY, SAMPLE_PROPERTY
from tests.onnx_suite.exceptions import (
    ONNX_VERSION,
    Reason,
    complaints,
    counts,
    read_exceptions,
    unknown,
)
from tests.onnx_suite.node_cases import PASS, NodeCase, Outcome, all_cases, outcomes

Record: TypeAlias = Callable[[str, object], None]

PARTS = 24
SAMPLE = 10
LISTED = read_exceptions()


def check(cases: Sequence[NodeCase], record: Record, title: str) -> None:
    found = outcomes(cases)
    record(title, counts(found, LISTED))
    wrong = complaints(found, LISTED, version=onnx.__version__)
    assert not wrong, "\n".join(wrong)


def test_sample(record_property: Record) -> None:
    """Every tenth of the cases that rten-convert takes."""
    taken = [c for c in all_cases() if c.name not in LISTED or LISTED[c.name].kind != "refused"]
    check(taken[::SAMPLE], record_property, SAMPLE_PROPERTY)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_all(part: int, record_property: Record) -> None:
    # Neighbours, not every 24th: alike cases share kernels, which are compiled once.
    cases = all_cases()
    first, end = (len(cases) * p // PARTS for p in (part, part + 1))
    check(cases[first:end], record_property, PROPERTY)


@pytest.mark.skipif(
    not onnx.__version__.startswith(f"{ONNX_VERSION}."),
    reason=f"the list is that of onnx {ONNX_VERSION}",
)
def test_listed_cases_exist() -> None:
    assert not unknown(LISTED, [case.name for case in all_cases()])


def test_what_is_complained_of() -> None:
    outcomes = {
        "a": PASS,
        "b": PASS,
        "c": Outcome("convert", "no"),
        "d": Outcome("compare", "1\n2"),
        "e": Outcome("convert", "no"),
        "f": Outcome("run", "x"),
        "g": Outcome("convert", "no"),
    }
    listed = {
        "b": Reason("lost", ""),
        "e": Reason("refused", ""),
        "f": Reason("semantics", ""),
        "g": Reason("lost", ""),
    }
    lines = complaints(outcomes, listed, version=f"{ONNX_VERSION}.0")
    assert lines == [
        "b: passes now; take it off the list",
        "c: rten-convert refuses it: no",
        "d: fails (compare): 1 2",
        'g: is listed as "lost", but fails in convert',
    ]
    assert len(complaints(outcomes, listed, version="1.16.0")) == 3
    assert counts(outcomes, listed) == {
        "passed": 2,
        "failed": 2,
        "refused": 1,
        "semantics": 1,
        "lost": 1,
    }
