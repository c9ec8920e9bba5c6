"""0.0 and -0.0 are equal; which of both a result is must be right all the same."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.cases import Case, Mode, run_case

FUNCTIONS = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}


@pytest.mark.parametrize("mode", ["static", "dynamic", "folded"])
@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("Round", [0.0, -0.0, -0.0, 0.0, -1.0]),
        ("Ceil", [0.0, -0.0, -0.0, 1.0, -0.0]),
        ("Floor", [0.0, -0.0, -1.0, 0.0, -1.0]),
        ("Neg", [-0.0, 0.0, 0.5, -0.5, 0.75]),
        ("Abs", [0.0, 0.0, 0.5, 0.5, 0.75]),
        ("Relu", [0.0, -0.0, 0.0, 0.5, 0.0]),
        ("Identity", [0.0, -0.0, -0.5, 0.5, -0.75]),
    ],
)
def test_of_one_operand(op: str, expected: list[float], mode: Mode) -> None:
    x = np.tile(np.float32([0.0, -0.0, -0.5, 0.5, -0.75]), 7)
    (result,) = run_case(Case("zero", op, [x], []), mode)
    want = np.tile(np.float32(expected), 7)
    np.testing.assert_array_equal(result, want)
    np.testing.assert_array_equal(np.signbit(result), np.signbit(want))


@pytest.mark.parametrize("mode", ["static", "dynamic", "constant", "folded"])
@pytest.mark.parametrize("op", FUNCTIONS)
def test_of_two_operands(op: str, mode: Mode) -> None:
    function = FUNCTIONS[op]
    numbers = np.array([0.0, -0.0, 1, -1, 0.5], "float32")
    pairs = [v.ravel() for v in np.meshgrid(numbers, numbers)]
    by_number = [[numbers, np.array(v, "float32")] for v in numbers]
    for operands in (pairs, *by_number):
        (result,) = run_case(Case("zero", op, operands, []), mode)
        with np.errstate(all="ignore"):
            want = function(*operands)
        np.testing.assert_array_equal(result, want)
        np.testing.assert_array_equal(np.signbit(result[want == 0]), np.signbit(want[want == 0]))
