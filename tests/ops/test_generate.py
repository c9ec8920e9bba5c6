"""Tensors made of sizes and numbers, OneHot, Trilu and TopK."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import rten_aot
from tests.support.cases import Case, Mode, Suite, run_case
from tests.support.reference import top_k

Array = np.ndarray[Any, Any]
DTYPES = ("float32", "int32", "int8", "uint8")


def i64(*values: int) -> Array:
    return np.array(values, dtype=np.int64)


def full(id: str, shape: Sequence[int], value: Any) -> Case:
    from onnx import numpy_helper

    filler = np.array([value])
    tensor = numpy_helper.from_array(
        filler.astype(np.float32 if filler.dtype.kind == "f" else np.int64)
    )
    want = np.full(shape, value, np.float32 if filler.dtype.kind == "f" else np.int32)
    return Case(
        f"constant_of_shape-{id}",
        "ConstantOfShape",
        [i64(*shape)],
        [want],
        {"value": tensor},
        modes=["folded"],
    )


def arange(id: str, start: Any, limit: Any, delta: Any, dtype: str = "int32") -> Case:
    operands = [np.array(v, dtype) for v in (start, limit, delta)]
    count = max(int(np.ceil((limit - start) / delta)), 0)
    want = (start + np.arange(count) * delta).astype(dtype)
    tolerance: Any = "close" if dtype == "float32" else "exact"
    return Case(f"range-{id}", "Range", operands, [want], tolerance=tolerance, modes=["folded"])


def one_hot(id: str, indices: Any, depth: int | np.float32, values: Array, axis: int = -1) -> Case:
    indices = np.asarray(indices)

    def expected(i: Array, _: Array, v: Array) -> Array:
        place = axis % (i.ndim + 1)
        wide = np.expand_dims(np.where(i < 0, i + depth, i), place)
        grid = np.arange(depth).reshape([-1 if a == place else 1 for a in range(i.ndim + 1)])
        return np.asarray(np.where(wide == grid, v[1], v[0]))

    inputs = [indices, np.array(depth, np.int32 if isinstance(depth, int) else np.float32), values]
    return Case(f"one_hot-{id}", "OneHot", inputs, expected, {"axis": axis}, constant=[1])


def trilu(id: str, x: Array, k: int | None, upper: int, run_time: bool = False) -> Case:
    function = np.triu if upper else np.tril
    near = min(max(k or 0, -99), 99)  # NumPy fails on the limits of int32
    inputs = [x] if k is None else [x, np.array(k, np.int64)]
    return Case(
        f"trilu-{id}",
        "Trilu",
        inputs,
        lambda x, *_: function(x, near),
        {"upper": upper},
        constant=[] if run_time or k is None else [1],
    )


def eye(id: str, shape: tuple[int, int], k: int = 0, dtype: int | None = None) -> Case:
    attrs = {"k": k} | ({} if dtype is None else {"dtype": dtype})
    kind = {None: np.uint8, 1: np.float32, 6: np.int32, 3: np.int8}[dtype]
    want = np.eye(*shape, k=k, dtype=kind)
    return Case(f"eye_like-{id}", "EyeLike", [np.zeros(shape, np.uint8)], [want], attrs)


def best(id: str, x: Array, k: int, axis: int = -1, largest: int = 1, sorted: int = 1) -> Case:
    return Case(
        f"top_k-{id}",
        "TopK",
        [x, i64(k)],
        lambda x, _: top_k(x, k, axis, largest=bool(largest)),
        {"axis": axis, "largest": largest, "sorted": sorted},
        outputs=2,
        constant=[1],
        modes=["static", "dynamic", "folded"],
    )


def shuffled(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    """Numbers with many repeats."""
    count = int(np.prod(shape))
    return np.random.default_rng(seed).integers(0, count // 2 + 1, shape).astype(dtype)


PAIR = np.array([2, 5], np.float32)
WITH_NAN = np.array([[1, np.nan, 3, -np.inf], [np.inf, 2, np.nan, np.nan]], np.float32)

SUITE = Suite(
    [
        full("float", [2, 3], 1.5),
        full("int", [4], 7),
        full("scalar", [], -2),
        full("empty", [0, 3], 1.0),
        full("large", [33, 20], 2.5),
        full("large-int", [1000], -9),
        full("nan", [2], np.nan),
        arange("plain", 0, 5, 1),
        arange("steps", 3, 11, 3),
        arange("down", 10, -3, -4),
        arange("empty", 5, 3, 1),
        arange("large", 0, 1000, 3),
        arange("float", 0.5, 3.0, 0.75, "float32"),
        arange("float-down", 1.0, -1.0, -0.25, "float32"),
        arange("float-large", 0.0, 400.0, 0.5, "float32"),
        one_hot("plain", np.array([0, 2, 1], np.int32), 3, PAIR),
        one_hot("negative", np.array([[0, -1], [-3, 1]], np.int32), 3, PAIR, 0),
        one_hot("middle", np.array([[0, -1], [-3, 1]], np.int32), 3, PAIR, 1),
        one_hot("outside", np.array([3, -4, 7], np.int32), 3, PAIR),
        one_hot("scalar", np.array(1, np.int32), 4, PAIR),
        one_hot("float-index", np.array([1, 0], np.float32), 2, PAIR),
        one_hot("float-depth", np.array([1, 0], np.int32), np.float32(2), PAIR),
        one_hot("int-values", np.array([1, 0], np.int32), 17, np.array([0, 1], np.int32)),
        one_hot("negative-axis", np.array([[0, -1], [-3, 5]], np.int32), 3, PAIR, -2),
        one_hot("first-axis", np.array([[0, -1], [-3, 5]], np.int32), 3, PAIR, -3),
        one_hot("negative-number", np.array(-1, np.int32), 3, PAIR, 0),
        one_hot("negative-float", np.array([-1, 1, 7], np.float32), 3, PAIR),
        one_hot("no-indices", np.zeros((0, 2), np.int32), 3, PAIR, 0),
        *[
            one_hot(f"{d}-values", np.array([1, -3], np.int32), 3, np.array([1, 0], d), 0)
            for d in ("int8", "uint8")
        ],
        one_hot("no-depth", np.array([1, 0], np.int32), 0, PAIR),
        trilu("upper", shuffled(4, 5), None, 1),
        trilu("lower", shuffled(4, 5), None, 0),
        trilu("upper-k", shuffled(2, 4, 5), 2, 1),
        trilu("lower-k", shuffled(2, 5, 3), -2, 0),
        trilu("far", shuffled(3, 3), 9, 1),
        *[
            trilu(f"{k}-{upper}{'-run-time' * late}", shuffled(2, 3, 4), k, upper, run_time=late)
            for k in (-(2**31), -3, 3, 2**31 - 1)
            for upper in (0, 1)
            for late in (False, True)
        ],
        trilu("run-time-k", shuffled(4, 5), -1, 1, run_time=True),
        trilu("empty", shuffled(0, 5), 1, 1),
        trilu("nan", np.full((3, 3), np.nan, np.float32), 0, 1),
        *[trilu(dtype, shuffled(17, 17, dtype=dtype), 1, 0) for dtype in DTYPES],
        eye("same", (3, 3)),
        eye("wide", (2, 5), 1),
        eye("tall", (5, 2), -2, 1),
        eye("int32", (3, 4), 0, 6),
        eye("int8", (3, 4), -1, 3),
        best("ties", np.array([3, 5, 5, 5, 1], np.float32), 2),
        best("smallest", np.array([3, 1, 5, 1, 1], np.float32), 2, largest=0),
        best("all", shuffled(3, 40), 40),
        best("middle", shuffled(3, 20, 5), 7, axis=1),
        best("first", shuffled(33, 4), 3, axis=0, largest=0),
        best("unsorted", shuffled(2, 10), 10, sorted=0),
        best("nan", WITH_NAN, 4),
        best("nan-smallest", WITH_NAN, 4, largest=0),
        best("none", shuffled(3, 4), 0),
        best("of-empty", np.zeros((0, 4), np.float32), 2),
        best("one", shuffled(300, 200), 1),
        *[best(dtype, shuffled(5, 31, dtype=dtype), 9) for dtype in DTYPES],
        *[
            best(
                f"ties-{dtype}-{'largest' if largest else 'smallest'}",
                np.array([3, 5, 5, 5, 1, 1], dtype),
                3,
                largest=largest,
            )
            for dtype in DTYPES
            for largest in (0, 1)
        ],
        best("signs-of-zero", np.array([-0.0, 0.0, -0.0, 0.0], np.float32), 3),
        *[
            best(
                f"limits-{d}-{largest}",
                np.array([0, np.iinfo(d).min, np.iinfo(d).max, 0], d),
                4,
                largest=largest,
            )
            for d in ("int32", "int8", "uint8")
            for largest in (0, 1)
        ],
        best("first-of-cube", shuffled(3, 4, 5), 2, axis=-3, largest=0, sorted=0),
        best("ties-columns", np.array([[3, 5], [5, 5], [5, 1]], np.float32), 2, axis=0),
        best("infinite", np.array([-np.inf, np.inf, np.nan, np.nan, 0], np.float32), 5),
    ]
)


@pytest.mark.parametrize(("case", "mode"), SUITE.parameters())
def test_generate(case: Case, mode: Mode) -> None:
    SUITE.check(case, mode)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (best("k", shuffled(3, 4), 5), "k is 5, but the axis has 4 elements"),
        (trilu("vector", shuffled(3), None, 1), "rank 1; needed: 2"),
    ],
    ids=lambda value: value.id if isinstance(value, Case) else None,
)
def test_refused(case: Case, message: str) -> None:
    with pytest.raises(rten_aot.CompileError, match=message):
        run_case(case)
