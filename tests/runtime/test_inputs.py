"""What is taken for an array of an input's data type, and what is refused."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
import pytest

from rten_aot.runtime import InputError
from rten_aot.runtime.inputs import convert

I64 = 2**31


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("float32", 1.5, 1.5),
        ("float32", 2, 2.0),
        ("float32", True, 1.0),
        ("float32", [[1, 2.5], [3, 4]], [[1, 2.5], [3, 4]]),
        ("float32", ((1.0,), (2.0,)), [[1], [2]]),
        ("float32", [], []),
        ("float32", [[], []], [[], []]),
        ("float32", 1e39, np.inf),
        ("float32", np.float64(0.1), np.float32(0.1)),
        ("float32", [np.float32(1), 2], [1, 2]),
        ("float32", array.array("f", [1, 2]), [1, 2]),
        ("float32", np.ones((2, 2), ">f4"), np.ones((2, 2))),
        ("int32", 7, 7),
        ("int32", [True, False], [1, 0]),
        ("int32", -(2**31), -(2**31)),
        ("int32", np.int64(5), 5),
        ("int32", np.array([1, -(2**31), 2**31 - 1]), [1, -(2**31), 2**31 - 1]),
        ("int32", np.zeros((0, 3), np.int64), np.zeros((0, 3))),
        ("int32", np.array([[True], [False]]), [[1], [0]]),
        ("int32", np.array(3).astype(">i8"), 3),
        ("int32", [np.int64(1), 2], [1, 2]),
        ("int32", [np.array([1, 2]), np.array([3, 4])], [[1, 2], [3, 4]]),
        ("uint8", [0, 255], [0, 255]),
        ("int8", [-128, 127], [-128, 127]),
        ("uint8", b"", None),
    ],
)
def test_taken(dtype: str, value: object, expected: Any) -> None:
    if expected is None:
        with pytest.raises(InputError):
            convert("x", np.dtype(dtype), value)
        return
    result = convert("x", np.dtype(dtype), value)
    assert result.dtype == dtype
    assert result.flags.c_contiguous
    assert result.shape == np.shape(expected)
    np.testing.assert_array_equal(result, np.asarray(expected, dtype))


@pytest.mark.parametrize(
    ("dtype", "value", "message"),
    [
        ("float32", np.zeros(2), r"expected float32, got float64\nhint: .*astype\(numpy.float32\)"),
        ("float32", [np.zeros(2), np.zeros(2)], "expected float32, got float64"),
        ("float32", np.zeros(2, np.int32), r"expected float32, got int32\nhint: "),
        ("float32", np.zeros(2, np.float16), r"expected float32, got float16\nhint: "),
        ("float32", 1j, r"expected float32, got complex128$"),
        ("float32", None, "expected float32, got objects that are no numbers$"),
        ("float32", [1, None], "expected float32, got objects that are no numbers$"),
        ("float32", {"a": 1}, "expected float32, got objects that are no numbers$"),
        ("float32", ["1"], "expected float32, got text$"),
        ("float32", [[1, 2], [3]], "expected float32, got no array: "),
        ("float32", 10**400, "expected float32, got objects that are no numbers$"),
        ("int32", 1.0, "expected int32, got float64$"),
        ("int32", I64, "the value 2147483648 does not fit int32$"),
        ("int32", 10**30, f"the value {10**30} does not fit int32$"),
        ("int32", np.array([1, I64]), "the value 2147483648 does not fit int32$"),
        ("int32", np.array([-I64 - 1]), "the value -2147483649 does not fit int32$"),
        ("int32", np.zeros(2, np.uint8), r"expected int32, got uint8\nhint: "),
        ("int32", np.zeros(2, np.float32), r"expected int32, got float32\nhint: "),
        ("uint8", [256], "the value 256 does not fit uint8$"),
        ("uint8", [-1], "the value -1 does not fit uint8$"),
        ("uint8", np.zeros(2, np.int64), r"expected uint8, got int64\nhint: "),
        ("int8", np.zeros(2, np.bool_), r"expected int8, got bool\nhint: "),
        ("uint8", b"text", "expected uint8, got text$"),
    ],
)
def test_refused(dtype: str, value: object, message: str) -> None:
    with pytest.raises(InputError, match='^input "a/b": ' + message):
        convert("a/b", np.dtype(dtype), value)


def test_foreign_objects() -> None:
    class Tensor:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray[Any, Any]:
            return np.ones(3, np.float32)

    class OnGpu:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray[Any, Any]:
            raise TypeError("call .cpu() first")

    assert convert("x", np.dtype("float32"), Tensor()).tolist() == [1, 1, 1]
    with pytest.raises(InputError, match=r'input "x": expected float32, got no array: call .cpu'):
        convert("x", np.dtype("float32"), OnGpu())


def test_the_array_itself_is_passed_on() -> None:
    value = np.zeros((2, 3), np.float32)
    assert convert("x", value.dtype, value) is value
