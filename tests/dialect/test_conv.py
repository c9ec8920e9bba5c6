"""Convolutions in the model's own layout, as their TE definitions say."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import rten_aot.dialect.conv  # noqa: F401
from tests.dialect.harness import Sizes, run

Array = npt.NDArray[Any]


def random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype="float32")


def convolved(
    x: Array, w: Array, pads: list[int], strides: list[int], dilations: list[int], groups: int
) -> Array:
    """ONNX Conv in float64 or exact integers, tap by tap."""
    wide = np.int64 if x.dtype.kind in "iu" else np.float64
    top, left, bottom, right = pads
    x = np.pad(x.astype(wide), ((0, 0), (0, 0), (top, bottom), (left, right)))
    sizes = [
        (x.shape[2 + d] - (w.shape[2 + d] - 1) * dilations[d] - 1) // strides[d] + 1 for d in (0, 1)
    ]
    result = np.zeros((x.shape[0], w.shape[0], *sizes), wide)
    own_out, own_in = w.shape[0] // groups, w.shape[1]
    for g in range(groups):
        for i, j in np.ndindex(*w.shape[2:]):
            y, z = i * dilations[0], j * dilations[1]
            part = x[
                :,
                g * own_in : (g + 1) * own_in,
                y : y + strides[0] * (sizes[0] - 1) + 1 : strides[0],
                z : z + strides[1] * (sizes[1] - 1) + 1 : strides[1],
            ]
            kernel = w[g * own_out : (g + 1) * own_out, :, i, j].astype(wide)
            result[:, g * own_out : (g + 1) * own_out] += np.einsum("nchw,oc->nohw", part, kernel)
    return result


def transposed(
    x: Array,
    w: Array,
    pads: list[int],
    strides: list[int],
    dilations: list[int],
    output_padding: list[int],
    groups: int,
) -> Array:
    """ONNX ConvTranspose in float64, tap by tap."""
    n, channels, height, width = x.shape
    own_in, own_out = channels // groups, w.shape[1]
    lengths = [
        ((height, width)[d] - 1) * strides[d]
        + (w.shape[2 + d] - 1) * dilations[d]
        + 1
        + output_padding[d]
        for d in (0, 1)
    ]
    full = np.zeros((n, own_out * groups, *lengths))
    for g in range(groups):
        for i, j in np.ndindex(*w.shape[2:]):
            y, z = i * dilations[0], j * dilations[1]
            own = slice(g * own_in, (g + 1) * own_in)
            full[
                :,
                g * own_out : (g + 1) * own_out,
                y : y + (height - 1) * strides[0] + 1 : strides[0],
                z : z + (width - 1) * strides[1] + 1 : strides[1],
            ] += np.einsum("nchw,co->nohw", x[:, own].astype(np.float64), w[own, :, i, j])
    top, left, bottom, right = pads
    return full[:, :, top : lengths[0] - bottom, left : lengths[1] - right]


CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "padded": {"pads": [1, 2, 0, 1], "strides": [2, 1]},
    "dilated": {"dilations": [2, 3], "pads": [2, 0, 2, 3]},
    "grouped": {"groups": 2},
    "depthwise": {"groups": 4},
    "padding-beyond-image": {"pads": [7, 8, 7, 8], "groups": 4},
    "stride-beyond-kernel": {"strides": [4, 5]},
}


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_conv(name: str, symbolic: bool, layout: str) -> None:
    attrs = {"strides": [1, 1], "dilations": [1, 1], "groups": 1, **CONVOLUTIONS[name]}
    pads = attrs.pop("pads", [0, 0, 0, 0])
    x, w = random(2, 4, 7, 8), random(8, 4 // attrs["groups"], 3, 2)
    expected = convolved(x, w, pads, **attrs)
    operand = x if layout == "NCHW" else x.transpose(0, 2, 3, 1)
    (result,) = run("conv", operand, w, Sizes(pads), symbolic=symbolic, layout=layout, **attrs)
    if layout == "NHWC":
        result = result.transpose(0, 3, 1, 2)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_conv_of_bytes_is_summed_exactly() -> None:
    x = np.full((1, 9, 3, 3), 255, "uint8")
    w = np.full((2, 9, 3, 3), -128, "int8")
    attrs: dict[str, Any] = {"strides": [1, 1], "dilations": [1, 1], "groups": 1}
    (result,) = run("conv", x, w, Sizes([0, 0, 0, 0]), **attrs)
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, np.full((1, 2, 1, 1), -128 * 255 * 81))


TRANSPOSED: dict[str, dict[str, Any]] = {
    "plain": {},
    "doubling": {"strides": [2, 2], "pads": [1, 0, 1, 1]},
    "output-padding": {"strides": [2, 3], "output_padding": [1, 2]},
    "dilated": {"dilations": [2, 3], "strides": [1, 2]},
    "grouped": {"groups": 2, "strides": [2, 1]},
    "stride-beyond-kernel": {"strides": [5, 4]},
}


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", TRANSPOSED)
def test_conv_transpose(name: str, symbolic: bool, layout: str) -> None:
    attrs = {
        "strides": [1, 1],
        "dilations": [1, 1],
        "output_padding": [0, 0],
        "groups": 1,
        **TRANSPOSED[name],
    }
    pads = attrs.pop("pads", [0, 0, 0, 0])
    x, w = random(2, 4, 5, 3), random(4, 3, 3, 2)
    expected = transposed(x, w, pads, **attrs)
    operand = x if layout == "NCHW" else x.transpose(0, 2, 3, 1)
    (result,) = run(
        "conv_transpose", operand, w, Sizes(pads), symbolic=symbolic, layout=layout, **attrs
    )
    if layout == "NHWC":
        result = result.transpose(0, 3, 1, 2)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_conv_transpose_tap_that_touches_no_input() -> None:
    x = np.ones((1, 1, 1, 1), "float32")
    w = np.array([[[[1, 2]]]], "float32")
    attrs: dict[str, Any] = {
        "strides": [1, 1],
        "dilations": [1, 1],
        "output_padding": [0, 0],
        "groups": 1,
    }
    (result,) = run("conv_transpose", x, w, Sizes([0, 1, 0, 0]), **attrs)
    np.testing.assert_array_equal(result, [[[[2]]]])


def test_interleave_phases() -> None:
    x = random(1, 3, 2, 2 * 3 * 5)
    first, sizes = [1, 2], [4, 4]
    (result,) = run("interleave_phases", x, Sizes(first), Sizes(sizes), strides=[2, 3])
    full = x.reshape(1, 3, 2, 2, 3, 5).transpose(0, 1, 3, 2, 4, 5).reshape(1, 6, 6, 5)
    np.testing.assert_array_equal(result, full[:, 1:5, 2:6])
