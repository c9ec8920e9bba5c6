"""Conversions between element types."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import rten_aot.dialect.convert  # noqa: F401
from tests.dialect.harness import run

INTEGER_TYPES = ["int32", "int8", "uint8"]
INT_MIN, INT_MAX = -(2**31), 2**31 - 1


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        (
            "uint8",
            [300, -1, 255.7, 0.9, -0.9, np.nan, np.inf, -np.inf],
            [255, 0, 255, 0, 0, 0, 255, 0],
        ),
        ("int8", [300, -129, -128.9, 127.5, np.nan, -np.inf], [127, -128, -128, 127, 0, -128]),
        (
            "int32",
            [3e9, -3e9, 2**31, 2147483520, -(2.0**31), 1.9, -1.9, np.nan, np.inf, -np.inf],
            [INT_MAX, INT_MIN, INT_MAX, 2147483520, INT_MIN, 1, -1, 0, INT_MAX, INT_MIN],
        ),
    ],
)
def test_floats_are_truncated_and_saturate(
    dtype: str, values: list[float], expected: list[int]
) -> None:
    (result,) = run("cast", np.array(values, "float32"), dtype=dtype)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(("source", "dtype"), list(itertools.product(INTEGER_TYPES, INTEGER_TYPES)))
def test_integers_keep_their_low_bits(source: str, dtype: str) -> None:
    info = np.iinfo(source)
    values = np.array([info.min, info.min + 1, 0, 44, 100, info.max], source)
    if source == "int32":
        values = np.concatenate([values, np.array([300, 255, 128, -129], source)])
    (result,) = run("cast", values, dtype=dtype)
    np.testing.assert_array_equal(result, values.astype(dtype))


@pytest.mark.parametrize("source", INTEGER_TYPES)
def test_integers_become_floats(source: str) -> None:
    info = np.iinfo(source)
    values = np.array([info.min, 0, 7, info.max], source)
    np.testing.assert_array_equal(run("cast", values, dtype="float32")[0], values.astype("float32"))
