"""Kernels that move elements, against NumPy; static and symbolic sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rten_aot.dialect.movement  # noqa: F401
from tests.dialect.harness import Sizes, run

Array = np.ndarray[Any, Any]
symbolic = pytest.mark.parametrize("symbolic", [False, True])


def numbers(*shape: int, dtype: str = "float32") -> Array:
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


@symbolic
@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 0, 1), (2, 1, 0)])
def test_transpose(axes: tuple[int, ...], symbolic: bool) -> None:
    x = numbers(3, 4, 33)
    (got,) = run("transpose", x, axes=list(axes), symbolic=symbolic)
    np.testing.assert_array_equal(got, x.transpose(axes))


@symbolic
def test_slice(symbolic: bool) -> None:
    x = numbers(3, 4, 5)
    begins, sizes = Sizes([3, 1]), Sizes([3, 2])
    (got,) = run("slice", x, begins, sizes, axes=[2, 1], steps=[-1, 1], symbolic=symbolic)
    np.testing.assert_array_equal(got, x[:, 1:3, 3:0:-1])


@symbolic
def test_slice_of_nothing(symbolic: bool) -> None:
    sizes = Sizes([0])
    (got,) = run("slice", numbers(3, 4), sizes, sizes, axes=[0], steps=[1], symbolic=symbolic)
    assert got.shape == (0, 4)


@symbolic
@pytest.mark.parametrize("shape", [(3, 1), (1,), (), (1, 4)])
def test_expand(shape: tuple[int, ...], symbolic: bool) -> None:
    x = numbers(*shape)
    (got,) = run("expand", x, Sizes([2, 3, 4]), symbolic=symbolic)
    np.testing.assert_array_equal(got, np.broadcast_to(x, (2, 3, 4)))


@symbolic
@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pad(mode: Any, symbolic: bool) -> None:
    x = numbers(3, 5)
    befores, afters = Sizes([2, -1]), Sizes([1, 7])
    (got,) = run("pad", x, befores, afters, axes=[0, 1], mode=mode, symbolic=symbolic)
    np.testing.assert_array_equal(got, np.pad(x[:, 1:], ((2, 1), (0, 7)), mode))


def test_pad_with_run_time_value() -> None:
    value = np.array(7, np.int8)
    x = numbers(2, 2, dtype="int8")
    (got,) = run("pad", x, Sizes([1]), Sizes([0]), value, axes=[1], mode="constant")
    np.testing.assert_array_equal(got, [[7, 0, 1], [7, 2, 3]])


@symbolic
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_concat(axis: int, dtype: str, symbolic: bool) -> None:
    x = numbers(3, 4, 40, dtype=dtype)
    parts = [x, x.take([1, 2], axis), x.take([], axis)]
    (got,) = run("concat", *parts, axis=axis, symbolic=symbolic)
    np.testing.assert_array_equal(got, np.concatenate(parts, axis))


@symbolic
@pytest.mark.parametrize("shape", [(70_000,), (1, 40, 1000)])
def test_large_concat(shape: tuple[int, ...], symbolic: bool) -> None:
    x = numbers(*shape)
    axis = len(shape) - 1
    (got,) = run("concat", x, x[..., :13], axis=axis, symbolic=symbolic)
    np.testing.assert_array_equal(got, np.concatenate([x, x[..., :13]], axis))
