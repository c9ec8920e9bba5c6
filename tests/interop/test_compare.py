"""What counts as equal, and how the worst error is told."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rten_aot.interop.compare import Comparison, compare


def floats(*values: float) -> Any:
    return np.array(values, np.float32)


def test_equal_floats() -> None:
    found = compare(floats(1, 100.001), floats(1, 100))
    assert found.equal
    assert found.absolute == pytest.approx(0.001, rel=0.01)
    assert found.relative == pytest.approx(1e-5, rel=0.01)
    assert found.place == (1,)


def test_different_floats() -> None:
    found = compare(floats(1, 100.1), floats(1, 100))
    assert not found.equal
    assert found.place == (1,)
    assert compare(floats(1, 100.1), floats(1, 100), 0.01).equal


def test_small_values_are_judged_on_a_fixed_scale() -> None:
    assert compare(floats(1e-7), floats(-1e-7)).equal
    assert not compare(floats(1e-5), floats(-1e-5)).equal


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_nan_and_infinities(odd: float) -> None:
    assert compare(floats(1, odd), floats(1, odd)) == Comparison(True, 0, 0, "", (0,))
    found = compare(floats(1, 2), floats(1, odd))
    assert (found.equal, found.note, found.place) == (False, f"2.0 at [1], not {odd}", (1,))
    assert not compare(floats(1, odd), floats(1, 2)).equal
    assert not compare(floats(odd), floats(-1)).equal


def test_integers_must_be_the_same() -> None:
    big = 2**31 - 1
    found = compare(np.array([big, 5], np.int32), np.array([-big - 1, 5], np.int32), 0.5)
    assert (found.equal, found.absolute, found.place) == (False, 2.0**32 - 1, (0,))
    assert compare(np.array(3, np.uint8), np.array(3, np.uint8)).equal


def test_shapes_and_types() -> None:
    assert compare(floats(1), floats(1, 2)).note == "shape [1], not [2]"
    assert compare(np.array([1], np.int32), floats(1)).note == "type int32, not float32"
    assert compare(np.zeros((0, 2), np.float32), np.zeros((0, 2), np.float32)) == Comparison(True)
    assert compare(np.array(1.5, np.float32), np.array(1.5, np.float32)).equal
