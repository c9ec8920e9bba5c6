from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rten_aot
from rten_aot.runtime.errors import InputError
from tests.support.cases import Array, Case, Mode, Suite, run_case

NAN, INF = np.nan, np.inf


def rng(*shape: int, scale: float = 1.0) -> Array:
    return (np.random.default_rng(sum(shape)).normal(size=shape) * scale).astype("float32")


def along(values: Array, axis: int, rank: int) -> Array:
    if values.size == 1:
        return values.reshape(())
    return values.reshape([-1 if d == axis % rank else 1 for d in range(rank)])


def quantize(axis: int = 1, dtype: str = "uint8") -> Any:
    def function(x: Array, scale: Array, zero: Array | None = None) -> Array:
        kind = dtype if zero is None else zero.dtype
        info = np.iinfo(kind)
        rounded = np.rint(x.astype("float32") / along(scale, axis, x.ndim))
        shift = 0.0 if zero is None else along(zero, axis, x.ndim).astype("float64")
        result = np.clip(np.nan_to_num(rounded + shift, nan=0.0), info.min, info.max)
        return np.asarray(result).astype(kind)

    return function


def dequantize(axis: int = 1) -> Any:
    def function(x: Array, scale: Array, zero: Array | None = None) -> Array:
        wide = x.astype("int64")
        if zero is not None:
            wide = wide - along(zero, axis, x.ndim)
        return np.asarray(wide.astype("float32") * along(scale, axis, x.ndim))

    return function


def dynamic(x: Array) -> list[Array]:
    low, high = min(x.min(initial=0), 0), max(x.max(initial=0), 0)
    scale = np.float32(high - low) / np.float32(255)
    scale = np.float32(1) if scale == 0 else scale
    zero = np.uint8(np.rint(np.clip(np.float32(0) - np.float32(low) / scale, 0, 255)))
    quantized = np.clip(np.rint(x / scale) + np.float32(zero), 0, 255).astype("uint8")
    return [quantized, np.asarray(scale), np.asarray(zero)]


f32 = np.float32
HALVES = np.array([0.5, 1.5, -0.5, 2.5, 1e30, -1e30, INF, -INF, NAN], "float32")
BYTES = np.arange(256, dtype="uint8")
SCALES = np.array([0.1, 0.25, 0.5, 2.0, 3.0], "float32")

CASES = [
    *[
        Case(f"quantize-{label}", "QuantizeLinear", inputs, quantize(axis), {"axis": axis})
        for label, axis, inputs in (
            ("uint8", 1, [rng(3, 33, scale=40), f32(0.3).reshape(()), np.array(128, "uint8")]),
            ("int8", 1, [rng(3, 33, scale=40), f32(0.3).reshape(()), np.array(-3, "int8")]),
            ("one", 1, [rng(3, 33, scale=40), np.array([0.3], "float32"), np.array([7], "uint8")]),
            ("no-zero-point", 1, [rng(3, 33, scale=40), f32(0.3).reshape(())]),
            ("halves", 0, [HALVES, f32(1).reshape(()), np.array(128, "uint8")]),
            ("axis", 1, [rng(2, 5, 7, scale=40), SCALES, np.arange(5).astype("int8")]),
            ("axis-last", -1, [rng(2, 7, 5, scale=40), SCALES, np.arange(5).astype("uint8")]),
            ("axis-first", 0, [rng(5, 4, scale=40), SCALES, np.arange(5).astype("uint8")]),
            ("halves-odd", 0, [HALVES, f32(1).reshape(()), np.array(1, "int8")]),
            ("halves-negative", 0, [HALVES, f32(1).reshape(()), np.array(-128, "int8")]),
            ("tiny-scale", 0, [HALVES, f32(1e-3).reshape(()), np.array(5, "uint8")]),
            ("axis-negative", -3, [rng(5, 3, 4, scale=400), SCALES, np.arange(5).astype("int8")]),
            ("axis-no-zero-point", 0, [rng(5, 3, 4, scale=40), SCALES]),
            ("one-with-axis", 2, [rng(2, 3, 4, scale=40), SCALES[:1], np.array([9], "int8")]),
            ("axis-empty", 0, [np.zeros((5, 0), "float32"), SCALES, np.arange(5).astype("int8")]),
            ("int32", 0, [np.int32([-300, 5, 7, 1000]), f32(2).reshape(()), np.array(3, "uint8")]),
            ("scalar", 0, [np.array(3.7, "float32"), f32(0.5).reshape(()), np.array(2, "uint8")]),
            ("empty", 1, [np.zeros((2, 0), "float32"), f32(1).reshape(()), np.array(0, "uint8")]),
        )
    ],
    Case(
        "quantize-output-dtype",
        "QuantizeLinear",
        [rng(3, 9, scale=40), f32(0.5).reshape(())],
        quantize(dtype="int8"),
        rten={"axis": 1, "output_dtype": "Int8"},
    ),
    *[
        Case(f"dequantize-{label}", "DequantizeLinear", inputs, dequantize(axis), {"axis": axis})
        for label, axis, inputs in (
            ("uint8", 1, [BYTES, f32(0.3).reshape(()), np.array(128, "uint8")]),
            ("int8", 1, [BYTES.view("int8"), f32(0.3).reshape(()), np.array(-9, "int8")]),
            ("int32", 1, [np.array([-(2**31), -5, 2**31 - 1], "int32"), f32(0.3).reshape(())]),
            ("no-zero-point", 1, [BYTES, np.array([0.5], "float32")]),
            ("axis", 1, [BYTES[:70].reshape(2, 5, 7), SCALES, BYTES[:5]]),
            ("axis-last", -1, [BYTES[:70].reshape(2, 7, 5), SCALES, BYTES[:5]]),
            ("axis-first", 0, [BYTES[:20].reshape(5, 4), SCALES, BYTES[:5]]),
            ("axis-negative", -2, [BYTES[:60].reshape(3, 5, 4).view("int8"), -SCALES,
                                   BYTES[100:105].view("int8")]),
            ("axis-no-zero-point", 1, [BYTES[:70].reshape(2, 5, 7), SCALES]),
            ("int32-axis", 0, [np.int32([[2**31 - 1], [-(2**31)], [5]]), SCALES[:3]]),
            ("scalar", 0, [np.array(200, "uint8"), f32(0.5).reshape(()), np.array(100, "uint8")]),
            ("empty", 0, [np.zeros((0, 3), "int8"), f32(2).reshape(())]),
        )
    ],
    *[
        Case(f"dynamic-{label}", "DynamicQuantizeLinear", [x], dynamic, outputs=3)
        for label, x in (
            ("plain", np.array([-127, 128, 0.5], "float32")),
            ("float32", np.array([-2.5, 2.5, 0.3], "float32")),
            ("positive", np.array([2, 4, 3.3], "float32")),
            ("negative", np.array([-2, -4], "float32")),
            ("zeros", np.zeros((2, 3), "float32")),
            ("matrix", rng(7, 33)),
            ("long", rng(3, 5000)),
            ("scalar", np.array(5, "float32")),
            ("number", np.array([7], "float32")),
            ("far", np.array([3e38, -1e38], "float32")),
            ("empty", np.zeros((0, 3), "float32")),
        )
    ],
]  # fmt: skip
SUITE = Suite(CASES)


@pytest.mark.parametrize(("case", "mode"), SUITE.parameters())
def test_quantize(case: Case, mode: Mode) -> None:
    SUITE.check(case, mode)


def test_dynamic_quantization_of_whole_numbers() -> None:
    case = Case("dql", "DynamicQuantizeLinear", [f32([-127, 128, 0.5])], [], outputs=3)
    quantized, scale, zero = run_case(case)
    np.testing.assert_array_equal(quantized, np.uint8([0, 255, 127]))
    assert (scale, zero) == (1, 127)


@pytest.mark.parametrize(
    ("op", "dtype"), [("DequantizeLinear", "uint8"), ("QuantizeLinear", "float32")]
)
@pytest.mark.parametrize("axis", [1, -1])
def test_a_scale_of_another_length_is_refused(op: str, dtype: str, axis: int) -> None:
    x, scale = np.zeros((2, 3), dtype), np.ones(4, "float32")
    case = Case("wrong", op, [x, scale], [], {"axis": axis})
    message = f'in node "wrong" \\({op}\\): sizes of axis 1 and scale'
    with pytest.raises(rten_aot.ShapeError, match=f"{message} 3 and 4 differ"):
        run_case(case)
    with pytest.raises(InputError, match=f"{message} .* differ"):
        run_case(case, "dynamic")


@pytest.mark.parametrize(
    ("op", "dtype"), [("DequantizeLinear", "uint8"), ("QuantizeLinear", "float32")]
)
def test_a_zero_point_of_another_length_is_refused(op: str, dtype: str) -> None:
    inputs = [np.zeros((2, 3), dtype), np.ones(3, "float32"), np.zeros(2, "uint8")]
    case = Case("wrong", op, inputs, [], {"axis": 1})
    message = f'in node "wrong" \\({op}\\): sizes of axis 1 and zero point'
    with pytest.raises(rten_aot.ShapeError, match=f"{message} 3 and 2 differ"):
        run_case(case)
    with pytest.raises(InputError, match=f"{message} .* differ"):
        run_case(case, "dynamic")


def test_a_zero_point_without_scales_to_match_is_refused() -> None:
    inputs = [np.zeros((2, 3), "uint8"), np.array(1, "float32"), np.zeros(3, "uint8")]
    with pytest.raises(rten_aot.ShapeError, match="one number is needed as zero point"):
        run_case(Case("dq", "DequantizeLinear", inputs, [], {"axis": 1}))
