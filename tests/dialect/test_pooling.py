"""Pooling: edges, NaN, divisors, ceil mode, both layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import rten_aot.dialect.pooling  # noqa: F401
from tests.dialect.harness import Sizes, run

Array = npt.NDArray[Any]


def windows(x: Array, pads: list[int], sizes: list[int], attrs: dict[str, Any]) -> Array:
    """For each output the taps of its window; NaN on padding, infinity beyond the padding."""
    kernel, strides, dilations = attrs["kernel"], attrs["strides"], attrs["dilations"]
    top, left, bottom, right = pads
    padded = np.pad(
        x.astype(np.float64),
        ((0, 0), (0, 0), (top, bottom), (left, right)),
        constant_values=np.nan,
    )
    padded = np.pad(padded, ((0, 0), (0, 0), (0, 9), (0, 9)), constant_values=np.inf)
    taps = np.empty((*x.shape[:2], *sizes, kernel[0] * kernel[1]))
    for t, (i, j) in enumerate(np.ndindex(*kernel)):
        y, z = i * dilations[0], j * dilations[1]
        taps[..., t] = padded[
            :,
            :,
            y : y + strides[0] * (sizes[0] - 1) + 1 : strides[0],
            z : z + strides[1] * (sizes[1] - 1) + 1 : strides[1],
        ]
    return taps


CASES: dict[str, dict[str, Any]] = {
    "plain": {"kernel": [2, 2], "strides": [2, 2], "sizes": [3, 4]},
    "padded": {"kernel": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "sizes": [4, 4]},
    "ceil": {"kernel": [3, 2], "strides": [2, 3], "pads": [0, 1, 1, 0], "sizes": [4, 3]},
    "dilated": {
        "kernel": [2, 3],
        "strides": [1, 1],
        "dilations": [3, 2],
        "pads": [1, 2, 1, 2],
        "sizes": [6, 8],
    },
    "1-d": {"kernel": [1, 3], "strides": [1, 2], "pads": [0, 1, 0, 1], "sizes": [7, 4]},
}


def unpacked(name: str) -> tuple[list[int], list[int], dict[str, Any]]:
    attrs = {"dilations": [1, 1], "pads": [0, 0, 0, 0], **CASES[name]}
    return attrs.pop("pads"), attrs.pop("sizes"), attrs


def pooled(op: str, x: Array, pads: list[int], sizes: list[int], **attrs: Any) -> Array:
    """The result, which must be the same in both layouts."""
    symbolic = attrs.pop("symbolic", False)
    (first,) = run(op, x, Sizes(pads), Sizes(sizes), symbolic=symbolic, **attrs)
    last_layout = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    (last,) = run(
        op, last_layout, Sizes(pads), Sizes(sizes), symbolic=symbolic, layout="NHWC", **attrs
    )
    np.testing.assert_array_equal(first, last.transpose(0, 3, 1, 2))
    return first


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_max_pool(name: str, symbolic: bool) -> None:
    pads, sizes, attrs = unpacked(name)
    x = -1 - np.random.default_rng(0).random((2, 3, 7, 8), dtype="float32")
    taps = windows(x, pads, sizes, attrs)
    taps[~np.isfinite(taps)] = -np.inf
    result = pooled("max_pool", x, pads, sizes, symbolic=symbolic, **attrs)
    np.testing.assert_array_equal(result, taps.max(-1).astype("float32"))


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_average_pool(name: str, include: bool, symbolic: bool) -> None:
    pads, sizes, attrs = unpacked(name)
    x = np.random.default_rng(0).standard_normal((2, 3, 7, 8), dtype="float32")
    taps = windows(x, pads, sizes, attrs)
    counted = ~np.isinf(taps) if include else np.isfinite(taps)
    total = np.where(np.isfinite(taps), taps, 0).sum(-1)
    result = pooled(
        "average_pool", x, pads, sizes, symbolic=symbolic, count_include_pad=include, **attrs
    )
    np.testing.assert_allclose(result, total / counted.sum(-1), rtol=1e-5, atol=1e-6)


def test_max_pool_keeps_nan() -> None:
    x = np.array([[[[1, np.nan, 3, 4]]]], "float32")
    result = pooled(
        "max_pool", x, [0, 0, 0, 0], [1, 2], kernel=[1, 2], strides=[1, 2], dilations=[1, 1]
    )
    np.testing.assert_array_equal(result, [[[[np.nan, 4]]]])


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 7, 5), (2, 3, 9), (1, 2, 3, 4, 5)])
def test_global_pools(shape: tuple[int, ...], symbolic: bool) -> None:
    x = np.random.default_rng(0).standard_normal(shape, dtype="float32")
    last = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    axes = tuple(range(2, x.ndim))
    for op, expected in (
        ("global_max_pool", x.max(axes, keepdims=True)),
        ("global_average_pool", x.mean(axes, keepdims=True, dtype=np.float64)),
    ):
        (result,) = run(op, x, symbolic=symbolic)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
        (result,) = run(op, last, symbolic=symbolic, layout="NHWC")
        np.testing.assert_allclose(np.moveaxis(result, -1, 1), expected, rtol=1e-5, atol=1e-6)
