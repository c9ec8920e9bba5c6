"""Operands that must be known at compile time, and what is said when they are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rten_aot
from tests.support.cases import Case, run_case

X = np.ones((2, 3), np.float32)
I32 = np.array([1, 2], np.int32)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "message"),
    [
        (
            "STFT",
            [X, I32[:1], X[0]],
            {"onesided": True},
            "frame_step must be known at compile time",
        ),
        ("Dropout", [X, None, I32[:1]], {}, "training_mode must be known at compile time"),
    ],
)
def test_operand_must_be_known(
    op: str, inputs: list[Any], attrs: dict[str, Any], message: str
) -> None:
    case = Case("run-time", op, inputs, [], rten=attrs)
    with pytest.raises(rten_aot.UnsupportedOpError) as caught:
        run_case(case)
    assert str(caught.value).startswith(f'in node "run-time" ({op}): {message}')


@pytest.mark.parametrize(
    ("op", "inputs", "what"),
    [
        ("Reshape", [X, I32], "the new shape"),
        ("Expand", [X, I32], "the shape to expand to"),
        ("Slice", [X, I32, I32], "starts, ends, axes and steps"),
        ("Pad", [X, I32, None, I32], "axes"),
    ],
)
def test_the_rank_must_be_known(op: str, inputs: list[Any], what: str) -> None:
    with pytest.raises(rten_aot.UnsupportedOpError) as caught:
        run_case(Case("run-time", op, inputs, []), "dynamic")
    assert f"({op}): the number of elements of {what} must be known" in str(caught.value)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "message"),
    [
        ("Reshape", [X, np.array([4, 2])], {}, r"cannot reshape \[2, 3\] to \[4, 2\]"),
        ("Reshape", [X, np.array([-1, 4])], {}, r"\[2, 3\] cannot be divided into groups of \[4\]"),
        ("Reshape", [X, np.array([-1, -1])], {}, "more than one size"),
        ("Expand", [X, np.array([4, 3])], {}, "sizes 2 and 4 cannot be broadcast"),
        ("Squeeze", [X, np.array([0])], {}, "axis 0 is squeezed"),
        ("Unsqueeze", [X, np.array([0, 0])], {}, "name one axis twice"),
        ("Transpose", [X], {"perm": [0, 0]}, "is no order of 2 axes"),
        ("Tile", [X, np.array([2])], {}, "1 repeats are given for 2 axes"),
        ("Slice", [X, *[np.array([0])] * 3, np.array([0])], {}, "a step is 0"),
        ("Split", [X, np.array([1, 1])], {"axis": 1}, "sum of parts"),
        ("Split", [X, np.array([-1, 4])], {"axis": 1}, "the sizes of the parts: -1 is negative"),
        ("Expand", [X, np.array([-1, 3])], {}, "the shape to expand to: -1 is negative"),
        ("Tile", [X, np.array([1, -2])], {}, "repeats: -2 is negative"),
        ("Reshape", [X, np.array([-2, -3])], {}, "the new shape: -2 is negative"),
        ("Pad", [X, np.array([0, 0])], {}, "2 pads are given for 2 axes"),
        ("Pad", [X, np.array([-3, 0, 0, 0])], {}, "leave less than 0"),
        ("Pad", [X, np.array([1] * 4), X[0, :2]], {}, "the value must have one element"),
        ("Pad", [X, np.array([1] * 4), X[0, :0]], {}, "the value must have one element"),
        ("Pad", [X, I32, None, np.array([1, 0])], {}, "2 pads are given for 2 axes"),
        ("Pad", [X, np.array([1] * 4), None, np.array([1, -1])], {}, "name one axis twice"),
        ("Pad", [X, np.array([-3, 1]), None, I32[:1]], {"mode": "edge"}, "nothing to repeat"),
        ("Concat", [X, X[:, :2]], {"axis": 0}, "sizes of axis 1 3 and 2 differ"),
        ("Concat", [X, I32], {"axis": 0}, "ranks 2 and 1"),
    ],
)
def test_contradictions_are_refused(
    op: str, inputs: list[Any], attrs: dict[str, Any], message: str
) -> None:
    stored = () if op == "Concat" else range(1, len(inputs))
    outputs = 2 if op == "Split" else 1
    with pytest.raises(rten_aot.ShapeError, match=message):
        run_case(Case("wrong", op, inputs, [], attrs, constant=tuple(stored), outputs=outputs))
