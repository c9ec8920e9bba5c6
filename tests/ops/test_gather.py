"""Gather, Scatter and their kin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import rten_aot
from tests.support.cases import Case, Mode, Suite, run_case
from tests.support.reference import scatter_elements, scatter_nd

Array = np.ndarray[Any, Any]
INT_MIN = -(2**31)
DTYPES = ("float32", "int32", "int8", "uint8")


def numbers(*shape: int, dtype: str = "float32") -> Array:
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def i32(values: Any) -> Array:
    return np.array(values, dtype=np.int32)


def gather(id: str, x: Array, indices: Any, axis: int = 0) -> Case:
    return Case(
        f"gather-{id}",
        "Gather",
        [x, i32(indices)],
        lambda x, i: np.take(x, i, axis),
        {"axis": axis},
        modes=["static", "dynamic", "constant", "folded"],
    )


def gather_elements(id: str, x: Array, indices: Any, axis: int = 0) -> Case:
    def expected(x: Array, i: Array) -> Array:
        part = x[tuple(slice(None) if a == axis % x.ndim else slice(n)
                       for a, n in enumerate(i.shape))]  # fmt: skip
        return np.take_along_axis(part, i % max(x.shape[axis], 1), axis)

    inputs = [x, i32(indices)]
    return Case(f"gather_elements-{id}", "GatherElements", inputs, expected, {"axis": axis})


def gather_nd(id: str, x: Array, indices: Any, batch_dims: int = 0) -> Case:
    def expected(x: Array, i: Array) -> Array:
        batch = x.shape[:batch_dims]
        shape = batch + i.shape[batch_dims:-1] + x.shape[batch_dims + i.shape[-1] :]
        result = np.zeros(shape, x.dtype)
        for outer in np.ndindex(*batch):
            for inner in np.ndindex(*i.shape[batch_dims:-1]):
                result[outer + inner] = x[outer][tuple(i[outer + inner])]
        return result

    inputs = [x, i32(indices)]
    attrs = {"batch_dims": batch_dims}
    return Case(
        f"gather_nd-{id}", "GatherND", inputs, expected, attrs, fixed=[(1, inputs[1].ndim - 1)]
    )


def scatter(
    op: str,
    id: str,
    x: Array,
    indices: Any,
    updates: Any,
    expected: Callable[..., Array],
    **attrs: Any,
) -> Case:
    inputs = [x, i32(indices), np.array(updates, x.dtype)]
    name = "scatter_nd" if op == "ScatterND" else "scatter_elements"
    fixed = [(1, inputs[1].ndim - 1)] if op == "ScatterND" else []
    # A file cannot say that a size is 0: it means "unknown" there.
    stored = [1] if op == "ScatterND" and inputs[1].shape[-1] == 0 else []
    return Case(f"{name}-{id}", op, inputs, expected, attrs, fixed=fixed, constant=stored)


def elements(
    id: str, x: Array, indices: Any, updates: Any, axis: int = 0, reduction: str = "none"
) -> Case:
    return scatter(
        "ScatterElements", id, x, indices, updates,
        lambda x, i, u: scatter_elements(x, i, u, axis, reduction),
        axis=axis, reduction=reduction,
    )  # fmt: skip


def slices(id: str, x: Array, indices: Any, updates: Any, reduction: str = "none") -> Case:
    return scatter(
        "ScatterND", id, x, indices, updates,
        lambda x, i, u: scatter_nd(x, i, u, reduction),
        reduction=reduction,
    )  # fmt: skip


CUBE = numbers(3, 4, 5)
PATCH = [[5, 3], [100, 9]]
SPECIAL = np.array([1, np.nan, -np.inf, 4], np.float32)

SUITE = Suite(
    [
        gather("negative", numbers(6)[1:], [-1, -3, 0]),
        gather("scalar", CUBE, 2, 1),
        gather("negative-scalar", CUBE, -1, 2),
        gather("matrix", CUBE, [[0, 2], [-1, -3]], 0),
        gather("last", CUBE, [4, 4, 0, 1], -1),
        gather("consecutive", CUBE, [1, 2, 3], 1),
        gather("consecutive-negative", CUBE, [-3, -2], 2),
        gather("across-zero", CUBE, [-1, 0, 1], 2),
        gather("number-of-vector", numbers(5), -5),
        gather("of-empty-axis", numbers(2, 0, 3), [1, -1], 2),
        gather("none", CUBE, np.zeros((0, 2)), 1),
        gather("of-empty", numbers(0, 3), np.zeros(0), 0),
        gather("embedding", numbers(50, 384), [[3, 49, 0, 3, 17]], 0),
        *[gather(f"{d}", numbers(7, 33, dtype=d), [6, -7, 2], 0) for d in DTYPES],
        gather_elements("plain", CUBE, [[[0, -1, 1, 2, 3]]], 1),
        gather_elements("last", numbers(3, 3), [[0, 0], [-1, 2]], 1),
        gather_elements("first", numbers(3, 3), [[1, 2, 0], [2, -3, 0]], 0),
        gather_elements("none", numbers(3, 3), np.zeros((0, 3)), 0),
        gather_elements("int8", numbers(4, 9, dtype="int8"), np.full((4, 2), -1), 1),
        gather_nd("elements", numbers(2, 2), [[0, 0], [1, -1]]),
        gather_nd("rows", numbers(2, 2), [[1], [-2]]),
        gather_nd("matrices", CUBE, [[[0], [-1]]]),
        gather_nd("batch", CUBE, [[1], [0], [-1]], 1),
        gather_nd("batch-2", CUBE, np.full((3, 4, 2, 1), -2), 2),
        gather_nd("batch-pairs", numbers(2, 3, 4, 5), [[[-1, 0], [0, 1]], [[2, -4], [1, 3]]], 1),
        gather_nd("batch-3", numbers(2, 3, 4, 5), np.full((2, 3, 4, 1), -5), 3),
        gather_nd("one-tuple", numbers(5), [-1]),
        gather_nd("suffix", CUBE, [[-1, -1, -1]]),
        gather_nd("suffix-pairs", CUBE, [[[-1, -2], [2, 3]], [[0, -4], [1, -1]]]),
        gather_nd("batch-suffix", CUBE, [[[-1, -1]], [[0, 0]], [[-4, -5]]], 1),
        gather_nd("empty-batch", numbers(0, 3, 4), np.zeros((0, 2, 1)), 1),
        gather_nd("none", CUBE, np.zeros((0, 2))),
        gather_nd("empty-slices", numbers(3, 0), [[-1], [0]]),
        gather_nd("uint8", numbers(5, 40, dtype="uint8"), [[4], [-5]]),
        elements(
            "documented",
            np.full((4, 3), 2, np.float32),
            [[0, 2, 3], [0, 2, 3]],
            [[3, 5, 7], [11, 13, 17]],
            0,
            "add",
        ),
        *[
            elements(f"documented-{d}-{r}", np.full((4, 3), 2, d), [[0, 2, 3], [0, 2, 3]],
                     [[3, 5, 7], [11, 13, 17]], 0, r)
            for d in DTYPES
            for r in ("none", "add", "mul", "min", "max")
        ],
        elements("documented-across", np.full((3, 4), 2, np.float32), [[0, 0], [2, 2], [3, -1]],
                 [[3, 11], [5, 13], [7, 17]], -1, "add"),
        elements("one-place", np.zeros(1, np.float32), np.zeros(1000), np.ones(1000), 0, "add"),
        elements("plain", numbers(1, 5), [[1, 3]], [[11, 21]], 1),
        elements("negative", numbers(1, 5), [[1, -3]], [[11, 21]], 1),
        elements("smaller", CUBE, [[[2, -1]]], [[[7, 8]]], -1),
        elements("none", numbers(3, 3), np.zeros((0, 3)), np.zeros((0, 3)), 0),
        elements("large", numbers(300, 200), np.full((3, 200), -1), numbers(3, 200), 0),
        *[
            elements(f"{r}-{d}", numbers(2, 5, dtype=d), [[1, 1], [-1, 4]], PATCH, 1, r)
            for d in DTYPES
            for r in ("none", "add", "mul", "min", "max")
        ],
        *[
            elements(f"deep-{r}-{d}", numbers(3, 4, 2, dtype=d),
                     [[[-1, 2], [0, 0], [2, -3]], [[1, 1], [1, 1], [-2, 2]]],
                     numbers(2, 3, 2, dtype=d) - np.array(3, d), 0, r)
            for d in DTYPES
            for r in ("none", "add", "mul", "min", "max")
        ],
        *[
            elements(f"nan-{r}", SPECIAL, [0, 1, 1, 2, 3, 3], [1, 5, np.nan, np.nan, np.inf, 3], -1,
                     r)
            for r in ("add", "mul")
        ],
        *[
            slices(f"nan-{r}", SPECIAL, [[0], [1], [1], [2], [3], [-1]],
                   [1, 5, np.nan, np.nan, np.inf, 3], r)
            for r in ("add", "mul", "min", "max")
        ],
        slices("of-empty", numbers(0, 3), np.zeros((0, 1)), np.zeros((0, 3))),
        slices("pairs", numbers(2, 3), [[[0, 0], [1, -1]], [[0, 1], [-2, -1]]], [[7, 8], [9, 4]]),
        elements("wrap", i32([2**31 - 1, -5]), [0, 1, 1], [1, INT_MIN, -3], 0, "add"),
        elements("nan-max", SPECIAL, [0, 1, 2, 3], [np.nan, 1, 5, np.inf], 0, "max"),
        elements("nan-min", SPECIAL, [0, 1, 2, 3], [np.nan, 1, 5, -np.inf], 0, "min"),
        slices("negative", numbers(4, 3), [[-1], [0]], [[90, 91, 92], [93, 94, 95]]),
        slices("elements", CUBE, [[0, 1, 2], [-1, -1, -1]], [7, 8]),
        slices("matrices", CUBE, [[[1]]], 100 + numbers(1, 1, 4, 5)),
        slices("whole", numbers(2, 3), np.zeros((1, 0)), 9 * numbers(1, 2, 3)),
        slices("none", numbers(3, 3), np.zeros((0, 1)), np.zeros((0, 3))),
        slices("deep-indices", numbers(3), np.zeros((2, 2, 2, 1)), np.ones((2, 2, 2)), "add"),
        slices("deep-rows", CUBE, [[[0, 1]], [[-1, -1]]], 100 + numbers(2, 1, 5), "add"),
        slices("one-tuple", numbers(3, 4), [-1, -4], 5),
        slices("long", numbers(5, 100), [[4], [2]], numbers(2, 100)),
        *[
            slices(f"{r}-{d}", numbers(4, 2, dtype=d), [[1], [1]], PATCH, r)
            for d in DTYPES
            for r in ("none", "add", "mul", "min", "max")
        ],
    ]
)  # fmt: skip


@pytest.mark.parametrize(("case", "mode"), SUITE.parameters())
def test_gather(case: Case, mode: Mode) -> None:
    SUITE.check(case, mode)


def test_documented_sums() -> None:
    case = elements("sums", np.full((4, 3), 2, np.float32), [[0, 2, 3], [0, 2, 3]],
                    [[3, 5, 7], [11, 13, 17]], 0, "add")  # fmt: skip
    (result,) = run_case(case)
    np.testing.assert_array_equal(result, [[16, 2, 2], [2, 2, 2], [2, 20, 2], [2, 2, 26]])


OUT_OF_RANGE = [
    gather("bad", numbers(5), [7]),
    gather("bad-negative", numbers(5), [0, -6]),
    gather("bad-int-min", numbers(5), [INT_MIN]),
    gather("bad-of-empty", numbers(0, 3), [0]),
    gather_elements("bad", numbers(3, 3), [[3]], 1),
    gather_elements("bad-int-min", numbers(3, 3), [[INT_MIN]], 1),
    gather_nd("bad", CUBE, [[0, 4]]),
    gather_nd("bad-int-min", CUBE, [[INT_MIN, 0]]),
    gather_nd("bad-suffix", CUBE, [[0, 0, -6]]),
    elements("bad", numbers(5), [-6], [1.0]),
    elements("bad-int-min", numbers(5), [INT_MIN], [1.0], 0, "add"),
    slices("bad", numbers(5), [[5]], [1.0]),
    slices("bad-int-min", CUBE, [[0, INT_MIN]], numbers(1, 5)),
]


@pytest.mark.parametrize("mode", ["static", "dynamic", "constant", "folded"])
@pytest.mark.parametrize("case", OUT_OF_RANGE, ids=lambda case: str(case.id))
def test_index_out_of_range(case: Case, mode: Mode) -> None:
    # That an axis of unknown size is too short for a constant index is told before the run.
    with pytest.raises((rten_aot.ModelRunError, rten_aot.InputError), match=case.id):
        run_case(case, mode)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (gather("axis", CUBE, [0], 3), "axis"),
        (gather_nd("deep", numbers(2, 2), [[0, 0, 0]]), "index tuples have 3 elements; most: 2"),
        (gather_nd("batch", numbers(2, 2), [[0]], 2), "batch_dims 2 is out of range"),
        (gather_elements("larger", numbers(2, 2), np.zeros((3, 1)), 1), "larger than the input"),
        (elements("updates", numbers(3), [0, 1], [1.0]), "sizes of updates and indices"),
        (slices("updates", numbers(3, 2), [[0]], [[1.0]]), "sizes of updates and indices"),
    ],
    ids=lambda value: value.id if isinstance(value, Case) else None,
)
def test_refused(case: Case, message: str) -> None:
    expected: Sequence[Any] = [case.id, message]
    with pytest.raises(rten_aot.CompileError) as caught:
        run_case(case)
    for part in expected:
        assert part in str(caught.value)
