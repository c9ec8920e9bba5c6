"""Kernels that read and write where indices say, and what they do about wrong ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rten_aot.dialect.indexing
import rten_aot.dialect.scatter  # noqa: F401
from tests.dialect.harness import Sizes, failure, run
from tests.support.reference import scatter_elements, scatter_nd

Array = np.ndarray[Any, Any]
symbolic = pytest.mark.parametrize("symbolic", [False, True])
REDUCTIONS = ["none", "add", "mul", "min", "max"]
DTYPES = ["float32", "int32", "int8", "uint8"]


def i32(values: Any) -> Array:
    return np.array(values, dtype=np.int32)


CUBE = np.arange(60, dtype=np.float32).reshape(3, 4, 5)


@symbolic
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather(axis: int, symbolic: bool) -> None:
    indices = i32([[0, -1], [-3, 2]])
    (got,) = run("gather", CUBE, indices, axis=axis, node=3, symbolic=symbolic)
    np.testing.assert_array_equal(got, np.take(CUBE, indices, axis))
    assert failure() is None


@symbolic
@pytest.mark.parametrize("index", [4, -5, 2**31 - 1, -(2**31)])
def test_gather_out_of_range(index: int, symbolic: bool) -> None:
    (got,) = run("gather", CUBE, i32([1, index]), axis=1, node=3, symbolic=symbolic)
    assert failure() == (1, 3)
    np.testing.assert_array_equal(got[:, 0], CUBE[:, 1])


@symbolic
def test_gather_of_nothing_fails(symbolic: bool) -> None:
    run("gather", CUBE[:0], i32([0]), axis=0, node=4, symbolic=symbolic)
    assert failure() == (1, 4)


@symbolic
def test_gather_elements(symbolic: bool) -> None:
    indices = i32([[[0, -1, 1, 2, 3]]])
    (got,) = run("gather_elements", CUBE, indices, axis=1, node=0, symbolic=symbolic)
    np.testing.assert_array_equal(got, np.take_along_axis(CUBE[:1], indices % 4, 1))


def test_gather_nd() -> None:
    (got,) = run("gather_nd", CUBE, i32([[0, -1], [2, 0]]), batch_dims=0, node=0)
    np.testing.assert_array_equal(got, CUBE[[0, 2], [3, 0]])
    (got,) = run("gather_nd", CUBE, i32([[0], [-1], [1]]), batch_dims=1, node=0)
    np.testing.assert_array_equal(got, CUBE[[0, 1, 2], [0, 3, 1]])
    run("gather_nd", CUBE, i32([[3, 0]]), batch_dims=0, node=7)
    assert failure() == (1, 7)


def test_diagonal() -> None:
    x = CUBE[:, :3, :3]
    (got,) = run("diagonal", x, first=0, second=2)
    np.testing.assert_array_equal(got, np.einsum("iji->ij", x))


@symbolic
def test_one_hot(symbolic: bool) -> None:
    values = np.array([2, 5], np.float32)
    indices = i32([0, -1, 3, -4])
    (got,) = run("one_hot", indices, Sizes([3]), values, axis=1, symbolic=symbolic)
    np.testing.assert_array_equal(got, [[5, 2, 2], [2, 2, 5], [2, 2, 2], [2, 2, 2]])


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_scatter_nd(dtype: str, reduction: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 100, (4, 5, 17)).astype(dtype)
    x = x * np.int32(10**8) if dtype == "int32" else x
    indices = i32([[-1, 0], [0, 4], [-1, 0]])
    updates = rng.integers(0, 100, (3, 17)).astype(dtype)
    with np.errstate(over="ignore"):
        want = scatter_nd(x, indices, updates, reduction)
    (got,) = run("scatter_nd", x, indices, updates, reduction=reduction, node=1)
    np.testing.assert_array_equal(got, want)


@symbolic
@pytest.mark.parametrize("axis", [0, 1])
def test_scatter_elements(axis: int, symbolic: bool) -> None:
    x = np.full((4, 3), 2, np.float32)
    indices, updates = i32([[0, 2, -1], [0, 1, 2]]), np.arange(6, dtype="f").reshape(2, 3)
    attrs: Any = {"axis": axis, "reduction": "add", "node": 2, "symbolic": symbolic}
    (got,) = run("scatter_elements", x, indices, updates, **attrs)
    np.testing.assert_array_equal(got, scatter_elements(x, indices, updates, axis, "add"))


def test_scatter_out_of_range() -> None:
    x, update = np.arange(5, dtype="f"), np.array([9], "f")
    (got,) = run("scatter_nd", x, i32([[5]]), update, reduction="none", node=1)
    assert failure() == (1, 1)
    np.testing.assert_array_equal(got, x)
    attrs: Any = {"axis": 0, "reduction": "none", "node": 2}
    (got,) = run("scatter_elements", x, i32([-6]), update, **attrs)
    assert failure() == (1, 2)
    np.testing.assert_array_equal(got, x)
