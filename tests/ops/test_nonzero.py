"""NonZero against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.ops.test_control_flow import GraphMaker, compiled
from tests.support.cases import Array, Case, Mode, Suite

RNG = np.random.default_rng(1)


def places(x: Array) -> Array:
    return np.argwhere(x).T.astype(np.int32)


def sparse(shape: tuple[int, ...], dtype: type, share: float = 0.3) -> Array:
    return np.where(RNG.random(shape) < share, RNG.integers(1, 100, shape), 0).astype(dtype)


FLOATS = np.float32([[0.0, -0.0, np.nan], [np.inf, 1e-45, 0.0]])
SUITE = Suite(
    [
        Case("float", "NonZero", [sparse((3, 5, 7), np.float32)], places),
        Case("int", "NonZero", [sparse((40,), np.int32)], places),
        Case("u8", "NonZero", [sparse((2, 1, 9), np.uint8)], places),
        Case("i8", "NonZero", [sparse((2, 3, 2, 2), np.int8)], places),
        Case("special", "NonZero", [FLOATS], places),
        Case("many-blocks", "NonZero", [sparse((300, 70), np.int32)], places),
        Case("all", "NonZero", [np.ones((9000,), np.int32)], places),
        Case("none", "NonZero", [np.zeros((9, 3), np.float32)], places),
        Case("empty", "NonZero", [np.zeros((0, 3), np.float32)], places),
        Case("number", "NonZero", [np.array(3, np.int32)], [np.zeros((0, 1), np.int32)]),
        Case("zero", "NonZero", [np.array(0, np.int32)], [np.zeros((0, 0), np.int32)]),
    ]
)


@pytest.mark.parametrize(("case", "mode"), SUITE.parameters())
def test_nonzero(case: Case, mode: Mode) -> None:
    SUITE.check(case, mode)


def test_what_follows_knows_the_size(tmp_path: Path) -> None:
    """Rows of x that a mask chooses, doubled; and their number."""
    main = GraphMaker()
    x, mask = main.input("x", ("n", 3)), main.input("mask", ("n",), "int32")
    where = main.op("NonZero", mask)
    rows = main.op("Squeeze", where, main.constant("axis", np.int32([0])))
    chosen = main.op("Gather", x, rows, axis=0)
    doubled = main.op("Add", chosen, chosen)
    model = compiled(main.graph(doubled, main.op("Shape", doubled)), tmp_path)
    for count in (0, 1, 7, 1000):
        data = RNG.standard_normal((count, 3)).astype(np.float32)
        flags = RNG.integers(0, 2, count).astype(np.int32)
        result, shape = model(data, flags)
        np.testing.assert_array_equal(result, 2 * data[flags != 0])
        np.testing.assert_array_equal(shape, result.shape)
