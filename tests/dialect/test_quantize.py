"""Quantisation against NumPy; divisions are those of float32."""

from __future__ import annotations

import numpy as np
import pytest

import rten_aot.dialect.quantize  # noqa: F401
from tests.dialect.harness import Array, run

NAN, INF = np.nan, np.inf


def quantize(x: Array, scale: Array, zero: Array, dtype: str) -> Array:
    info = np.iinfo(dtype)
    rounded = np.rint(np.float32(x) / np.float32(scale)) + zero.astype("float64")
    result: Array = np.clip(rounded, info.min, info.max).astype(dtype)
    return result


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_quantize(dtype: str, symbolic: bool) -> None:
    x = np.random.default_rng(0).normal(size=(3, 5, 7)).astype("float32") * 40
    for shape, axis in (((), 0), ((5,), 1), ((7,), 2)):
        scale = np.linspace(0.3, 0.9, int(np.prod(shape)), dtype="float32").reshape(shape)
        zero = np.arange(3, 3 + scale.size).astype(dtype).reshape(shape)
        along = [slice(None) if k == axis else None for k in range(3)] if shape else [...]
        expected = quantize(x, scale[tuple(along)], zero[tuple(along)], dtype)
        attrs = {"axis": axis, "dtype": dtype, "symbolic": symbolic}
        (result,) = run("quantize_linear", x, scale, zero, **attrs)
        np.testing.assert_array_equal(result, expected)
        (result,) = run("quantize_linear", x, scale, **attrs)
        expected = quantize(x, scale[tuple(along)], np.array(0), dtype)
        np.testing.assert_array_equal(result, expected)


def test_quantize_rounds_half_to_even_and_saturates() -> None:
    x = np.array([0.5, 1.5, -0.5, 2.5, 1e30, -1e30, INF, -INF, NAN], "float32")
    one, zero = np.array(1, "float32"), np.array(128, "uint8")
    (result,) = run("quantize_linear", x, one, zero, axis=0, dtype="uint8")
    assert result.tolist() == [128, 130, 128, 130, 255, 0, 255, 0, 0]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
def test_dequantize(dtype: str, symbolic: bool) -> None:
    info = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(info.min, info.max, (4, 5), dtype, endpoint=True)
    x[0, :2] = info.min, info.max
    scale, zero = np.array([0.5, 0.25, 2, 1, 3], "float32"), np.array([0, 1, 7, 100, 5], dtype)
    (result,) = run("dequantize_linear", x, scale, zero, axis=1, symbolic=symbolic)
    expected = (x.astype("int64") - zero).astype("float32") * scale
    np.testing.assert_array_equal(result, expected)
    (result,) = run("dequantize_linear", x, scale[0].reshape(()), axis=0, symbolic=symbolic)
    np.testing.assert_array_equal(result, x.astype("float32") * np.float32(0.5))


@pytest.mark.parametrize(
    ("values", "scale", "zero", "quantized"),
    [
        ([-127, 128, 0.5], 1.0, 127, [0, 255, 127]),
        ([-2.5, 2.5, 0.3], 5 / 255, 127, [0, 254, 142]),
        ([2, 4], 4 / 255, 0, [127, 255]),
        ([-2, -4], 4 / 255, 255, [128, 0]),
        ([0, 0], 1.0, 0, [0, 0]),
    ],
)
def test_dynamic_quantize(
    values: list[float], scale: float, zero: int, quantized: list[int]
) -> None:
    x = np.array(values, "float32")
    (found_scale,) = run("dynamic_scale", x.min().reshape(()), x.max().reshape(()))
    assert found_scale == np.float32(scale)
    (found_zero,) = run("dynamic_zero_point", x.min().reshape(()), found_scale)
    assert found_zero == zero
    (result,) = run("quantize_linear", x, found_scale, found_zero, axis=0, dtype="uint8")
    assert result.tolist() == quantized
