"""Kernels that make tensors from sizes, and selection of the largest elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rten_aot.dialect.generate
import rten_aot.dialect.sort  # noqa: F401
from tests.dialect.harness import Sizes, run
from tests.support.reference import top_k

Array = np.ndarray[Any, Any]
symbolic = pytest.mark.parametrize("symbolic", [False, True])


@symbolic
def test_full(symbolic: bool) -> None:
    (got,) = run("full", Sizes([2, 17]), value=-3, dtype="int8", symbolic=symbolic)
    np.testing.assert_array_equal(got, np.full((2, 17), -3, np.int8))


@symbolic
def test_arange(symbolic: bool) -> None:
    (got,) = run("arange", Sizes([7, -2]), Sizes([5]), dtype="int32", symbolic=symbolic)
    np.testing.assert_array_equal(got, np.array([7, 5, 3, 1, -1], np.int32))


@symbolic
def test_eye(symbolic: bool) -> None:
    (got,) = run("eye", Sizes([3, 5]), k=-1, dtype="uint8", symbolic=symbolic)
    np.testing.assert_array_equal(got, np.eye(3, 5, -1, np.uint8))


@symbolic
@pytest.mark.parametrize("upper", [False, True])
def test_trilu(upper: bool, symbolic: bool) -> None:
    x = np.arange(1, 31, dtype=np.int32).reshape(2, 3, 5)
    want = (np.triu if upper else np.tril)(x, 1)
    for k in (Sizes([1]), np.array(1, np.int32), np.array([1], np.int32)):
        (got,) = run("trilu", x, k, upper=upper, symbolic=symbolic and isinstance(k, Sizes))
        np.testing.assert_array_equal(got, want)


@symbolic
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(
    ("shape", "axis", "k"),
    [
        ((3, 50, 2), 1, 7),
        ((4, 9), 1, 9),
        ((5,), 0, 1),
        ((6, 33), 1, 20),
        ((7,), 0, 0),
        ((0, 3), 1, 2),
    ],
)
def test_top_k(shape: tuple[int, ...], axis: int, k: int, largest: bool, symbolic: bool) -> None:
    x = np.random.default_rng(0).integers(0, 20, shape).astype(np.float32)
    x.flat[5:9] = np.nan
    got = run("top_k", x, Sizes([k]), axis=axis, largest=largest, symbolic=symbolic)
    for g, w in zip(got, top_k(x, k, axis, largest=largest), strict=True):
        np.testing.assert_array_equal(g, w)
