"""What is tried for a problem: neighbours of the cost model's choice first, nothing twice."""

from __future__ import annotations

import itertools

import pytest

from rten_aot.targets.common.choices import Choice, faults
from rten_aot.targets.common.problems import Problem
from rten_aot.tuner.candidates import candidates
from tests.targets.anchors import AVX2, AVX512, NEON

PLAIN = "conv 64->128 3x3 strides 1x1 dilations 1x1 pads 1x1x1x1 groups 1 image 1x56x56"
DEFAULTS = {
    PLAIN: Choice("winograd", 16, 6, 4, 200, True),
    PLAIN.replace("1x56x56", "?x?x?"): Choice("winograd", 16, 6, 4, 200, True),
    PLAIN.replace("3x3", "1x1"): Choice("direct", 16, 6, 1, None, False),
    PLAIN.replace("64->128", "2->3"): Choice("direct", 4, 12, 1, None, False),
    "depthwise 96->96 3x3 strides 1x1 dilations 1x1 pads 1x1x1x1 image 1x56x56": Choice(
        width=16, rows=4, group=80
    ),
    "gemm 1x512x10": Choice(width=16, rows=6, run=1, ahead=False),
    "gemm ?x512x1000": Choice(width=16, rows=6, run=8, ahead=True),
    "matmul 12x128x32 by transposed 12x100x32": Choice(width=16, rows=6, run=1),
    "matmul 2x0x32 by 2x32x5": Choice(width=4, rows=6, run=1),
}


def first(key: str, count: int = 60) -> list[Choice]:
    problem = Problem.parse(key)
    assert problem is not None
    return list(itertools.islice(candidates(AVX2, problem, DEFAULTS[key]), count))


@pytest.mark.parametrize("key", DEFAULTS)
def test_all_are_possible_and_new(key: str) -> None:
    problem = Problem.parse(key)
    assert problem is not None
    found = first(key)
    assert found
    assert len(set(found)) == len(found)
    for choice in found:
        assert not list(faults(AVX2, problem, choice))
        assert not choice.fields.items() <= DEFAULTS[key].fields.items()


@pytest.mark.parametrize("key", DEFAULTS)
def test_always_the_same(key: str) -> None:
    assert first(key) == first(key)


def test_problems_are_searched_in_different_orders() -> None:
    one, other = (first(key)[-20:] for key in list(DEFAULTS)[:2])
    assert one != other


def test_neighbours_come_first() -> None:
    found = first(PLAIN)
    near = [
        Choice("direct"), Choice(width=8), Choice(width=24), Choice(rows=5), Choice(ahead=False),
        Choice("winograd", block=100), Choice("winograd", block=400),
        Choice(run=2), Choice(run=8),
    ]  # fmt: skip
    assert found[: len(near)] == near
    assert max(len(c.fields) for c in found) > 2


def test_values_that_make_no_difference_are_left_out() -> None:
    """As many rows as there are, runs up to all tiles, blocks up to all of them."""
    assert all(c.rows is None and c.run is None for c in first("gemm 1x512x10"))
    small = PLAIN.replace("1x56x56", "1x8x8")
    problem = Problem.parse(small)
    assert problem is not None
    default = Choice("winograd", 16, 6, 1, 200, False)
    found = list(itertools.islice(candidates(AVX2, problem, default), 200))
    assert {c.block for c in found} - {None} == {4, 8}


def test_there_may_be_few() -> None:
    problem = Problem.parse("matmul 1x8x4 by 1x4x1")
    assert problem is not None
    assert len(list(candidates(AVX512, problem, Choice(width=1, rows=12, run=1)))) < 30


@pytest.mark.parametrize("machine", [AVX2, AVX512, NEON], ids=lambda m: m.name)
def test_widths_are_whole_vectors(machine: object) -> None:
    problem = Problem.parse(PLAIN)
    assert problem is not None
    lanes = machine.lanes("float32")  # type: ignore[attr-defined]
    default = Choice("direct", 2 * lanes, 6, 1, None, True)
    found = itertools.islice(candidates(machine, problem, default), 100)  # type: ignore[arg-type]
    widths = {c.width for c in found} - {None}
    assert len(widths) >= 3
    assert all(width is not None and width % lanes == 0 for width in widths)
