from __future__ import annotations

import functools

import numpy as np
import pytest

from tests.support.cases import Array, Case, Mode, Suite

NAN = np.nan


def rng(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def mean(*xs: Array) -> Array:
    return functools.reduce(np.add, xs) / len(xs)


FUNCTIONS = {
    "Max": lambda *xs: functools.reduce(np.maximum, xs),
    "Min": lambda *xs: functools.reduce(np.minimum, xs),
    "Sum": lambda *xs: functools.reduce(np.add, xs),
    "Mean": mean,
}
NANS = [np.array([NAN, 1, 2], "float32"), np.array([1, NAN, 3], "float32")]
INTS = [np.array([2**31 - 1, -5, 7], "int32"), np.array([[1], [-9]], "int32")]

CASES = [
    *[
        Case(f"{name.lower()}-{label}", name, xs, function, tolerance="close")
        for name, function in FUNCTIONS.items()
        for label, xs in (
            ("one", [rng(3, 4)]),
            ("two", [rng(3, 33), rng(33)]),
            ("three", [rng(3, 1), rng(1, 4), rng(2, 1, 1)]),
            ("nan", NANS),
            ("empty", [rng(0, 3), rng(1)]),
            ("numbers", [rng(), rng()]),
            ("five", [rng(2, 1, 3), rng(4, 1), rng(), rng(1), rng(2, 4, 3)]),
            (
                "infinite",
                [np.array([np.inf, 1, NAN], "float32"), np.array([-np.inf, 2, 0], "float32")],
            ),
        )
    ],
    *[
        Case(
            f"{name.lower()}-int",
            name,
            INTS,
            FUNCTIONS[name],
            modes=("static", "dynamic", "folded"),
        )
        for name in ("Max", "Min", "Sum")
    ],
    *[
        Case(
            f"{name.lower()}-{dtype}",
            name,
            [np.arange(-20, 20).astype(dtype).reshape(8, 5), np.array([127, 3, 0, 1, 9], dtype)],
            FUNCTIONS[name],
            modes=("static", "folded"),
        )
        for name in ("Max", "Min", "Sum")
        for dtype in ("int8", "uint8")
    ],
]
SUITE = Suite(CASES)


@pytest.mark.parametrize(("case", "mode"), SUITE.parameters())
def test_variadic_elementwise(case: Case, mode: Mode) -> None:
    SUITE.check(case, mode)
