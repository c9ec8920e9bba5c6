"""Resize: coordinates, rounding, scales that are not the quotient of the sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import rten_aot.dialect.resize  # noqa: F401
from tests.dialect.harness import Sizes, run

Array = npt.NDArray[Any]

COORDINATES = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
NEAREST = ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]


def positions(source: int, result: int, coordinates: str, scale: float | None) -> Array:
    """Where the elements of the result lie on the source, in float32 as the operator says."""
    i = np.arange(result, dtype="float32")
    factor = np.float32(result) / np.float32(source) if scale is None else np.float32(scale)
    half, one = np.float32(0.5), np.float32(1)
    if coordinates == "align_corners":
        return i * np.float32(source - 1) / np.float32(max(result - 1, 1))
    if coordinates == "asymmetric":
        return i / factor
    if coordinates == "pytorch_half_pixel" and result == 1:
        return i * one
    return (i + half) / factor - half


def matrix(source: int, where: Array, mode: str, nearest: str) -> Array:
    """The linear map of one axis."""
    result = np.zeros((len(where), source))
    for row, x in enumerate(where):
        if mode == "nearest":
            rounded = {
                "floor": np.floor(x),
                "ceil": np.ceil(x),
                "round_prefer_floor": np.ceil(x - np.float32(0.5)),
                "round_prefer_ceil": np.floor(x + np.float32(0.5)),
            }[nearest]
            result[row, int(np.clip(rounded, 0, source - 1))] = 1
        else:
            x = np.clip(x, 0, source - 1)
            low = int(np.floor(x))
            result[row, low] += 1 - (x - low)
            result[row, min(low + 1, source - 1)] += x - low
    return result


def resized(
    x: Array, sizes: list[int], mode: str, coordinates: str, nearest: str, scales: Any = None
) -> Array:
    """Resize of the last axes of ``x``."""
    result = x.astype(np.float64)
    for n, size in enumerate(sizes):
        axis = x.ndim - len(sizes) + n
        where = positions(x.shape[axis], size, coordinates, None if scales is None else scales[n])
        step = matrix(x.shape[axis], where, mode, nearest)
        result = np.moveaxis(np.tensordot(step, result, (1, axis)), 0, axis)
    return result


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("sizes", [[6, 10], [2, 3], [3, 1], [5, 13]], ids=str)
def test_linear(sizes: list[int], coordinates: str, symbolic: bool) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 3, 5), dtype="float32")
    expected = resized(x, sizes, "linear", coordinates, "")
    attrs = {"mode": "linear", "coordinates": coordinates}
    (result,) = run("resize", x, Sizes(sizes), symbolic=symbolic, **attrs)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    (result,) = run("resize", last, Sizes(sizes), symbolic=symbolic, layout="NHWC", **attrs)
    np.testing.assert_allclose(result.transpose(0, 3, 1, 2), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("nearest", NEAREST)
def test_nearest(nearest: str, coordinates: str) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 6), dtype="float32")
    for sizes in ([8, 9], [3, 4], [1, 6], [6, 6]):
        (result,) = run(
            "resize", x, Sizes(sizes), mode="nearest", coordinates=coordinates, nearest=nearest
        )
        expected = resized(x, sizes, "nearest", coordinates, nearest).astype("float32")
        np.testing.assert_array_equal(result, expected)


def test_scales_count_and_not_the_quotient_of_the_sizes() -> None:
    x = np.arange(9, dtype="float32").reshape(1, 1, 3, 3)
    (result,) = run(
        "resize", x, Sizes([4, 4]), mode="linear", coordinates="half_pixel", scales=[1.5, 1.5]
    )
    np.testing.assert_allclose(result[0, 0, 0], [0, 0.5, 7 / 6, 11 / 6], rtol=1e-6)
    (result,) = run(
        "resize", x, Sizes([3, 3]), mode="nearest", coordinates="asymmetric", nearest="floor",
        scales=[1.25, 1.25],
    )  # fmt: skip
    expected = resized(x, [3, 3], "nearest", "asymmetric", "floor", [1.25, 1.25])
    np.testing.assert_array_equal(result, expected.astype("float32"))


def test_any_rank_and_any_axes() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 5), dtype="float32")
    (result,) = run("resize", x, Sizes([7]), mode="linear", coordinates="half_pixel")
    np.testing.assert_allclose(
        result, resized(x, [7], "linear", "half_pixel", ""), rtol=1e-5, atol=1e-6
    )
    (result,) = run(
        "resize_axes", x, Sizes([4, 6]), axes=[0, 1], mode="nearest", coordinates="asymmetric",
        nearest="floor",
    )  # fmt: skip
    moved = resized(x.transpose(2, 0, 1), [4, 6], "nearest", "asymmetric", "floor")
    np.testing.assert_array_equal(result, moved.transpose(1, 2, 0).astype("float32"))


def test_bytes() -> None:
    x = np.arange(6, dtype="uint8").reshape(1, 1, 2, 3)
    (result,) = run("resize", x, Sizes([4, 6]), mode="nearest", coordinates="asymmetric",
                    nearest="floor")  # fmt: skip
    np.testing.assert_array_equal(result, x.repeat(2, 2).repeat(2, 3))
