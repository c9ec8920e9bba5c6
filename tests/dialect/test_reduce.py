"""Reductions, positions of extremes and running sums against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rten_aot.dialect.reduce  # noqa: F401
from tests.dialect.harness import Array, run

AXES = [[1], [0, 2], [0, 1, 2], []]
NAN, INF = np.nan, np.inf

REDUCTIONS: dict[str, Callable[..., Any]] = {
    "reduce_max": np.max,
    "reduce_mean": np.mean,
    "reduce_min": np.min,
    "reduce_prod": np.prod,
    "reduce_sum": np.sum,
    "reduce_l2": lambda x, **kw: np.sqrt(np.sum(x * x, **kw)),
    "reduce_sum_square": lambda x, **kw: np.sum(x * x, **kw),
}


def sample(dtype: str, shape: tuple[int, ...] = (2, 7, 3)) -> Array:
    rng = np.random.default_rng(3)
    if dtype == "float32":
        return rng.normal(size=shape).astype("float32")
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_floats(name: str, axes: list[int], symbolic: bool) -> None:
    x = sample("float32")
    (result,) = run(name, x, axes=axes, symbolic=symbolic)
    expected = REDUCTIONS[name](x.astype("float64"), axis=tuple(axes), keepdims=True)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8"])
@pytest.mark.parametrize("name", sorted(REDUCTIONS.keys() - {"reduce_mean", "reduce_l2"}))
def test_integers_wrap(name: str, dtype: str) -> None:
    x = sample(dtype)
    (result,) = run(name, x, axes=[1])
    assert result.dtype == dtype
    expected = REDUCTIONS[name](x.astype("int64"), axis=1, keepdims=True)
    np.testing.assert_array_equal(result, expected.astype(dtype))


def test_mean_of_integers_is_truncated() -> None:
    (result,) = run("reduce_mean", np.array([[-7, 0], [3, 4]], "int32"), axes=[1])
    np.testing.assert_array_equal(result, [[-3], [3]])


@pytest.mark.parametrize("name", ["reduce_max", "reduce_min"])
def test_extremes_propagate_nan(name: str) -> None:
    x = np.array([[2, NAN, 1], [NAN, 1, 3], [-INF, INF, 0]], "float32")
    np.testing.assert_array_equal(
        run(name, x, axes=[1])[0], REDUCTIONS[name](x, axis=1, keepdims=True)
    )


def test_scalars() -> None:
    for name in REDUCTIONS:
        (result,) = run(name, np.array(-2.0, "float32"), axes=[])
        assert result == REDUCTIONS[name](np.array(-2.0))


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
@pytest.mark.parametrize("name", ["arg_max", "arg_min"])
def test_positions(name: str, dtype: str, symbolic: bool) -> None:
    x = sample(dtype, (3, 9, 4)) // 64 if dtype == "uint8" else sample(dtype, (3, 9, 4))
    function = getattr(np, name.replace("_", ""))
    for axis in range(3):
        (result,) = run(name, x, axis=axis, symbolic=symbolic)
        assert result.dtype == np.int32
        np.testing.assert_array_equal(result, np.expand_dims(function(x, axis), axis))


def test_positions_of_equals_and_nan() -> None:
    x = np.array([[1, 3, 3, 1], [NAN, 2, NAN, 5], [0, NAN, -1, 7], [INF, INF, 0, -INF]], "float32")
    np.testing.assert_array_equal(run("arg_max", x, axis=1)[0].ravel(), [1, 0, 1, 0])
    np.testing.assert_array_equal(run("arg_min", x, axis=1)[0].ravel(), [0, 0, 1, 3])


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("shape", [(5,), (2, 3, 4), (3, 1, 33), (0, 2), (2, 0), (2, 40000)])
def test_cumsum(shape: tuple[int, ...], dtype: str, symbolic: bool) -> None:
    x = sample(dtype, shape)
    for axis in range(len(shape)):
        (result,) = run("cumsum", x, axis=axis, symbolic=symbolic)
        expected = np.cumsum(x.astype("float64" if dtype == "float32" else "int32"), axis)
        if dtype == "float32":
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-3)
        else:
            np.testing.assert_array_equal(result, expected.astype("int32"))
