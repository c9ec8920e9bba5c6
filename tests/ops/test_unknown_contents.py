"""Operands that must be known at compile time, and what is said when they are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rten_aot
from tests.support.cases import Case, run_case

X = np.ones((2, 3), np.float32)
I32 = np.array([1, 2], np.int32)
SCALAR = np.array(1, np.int32)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "what"),
    [
        ("Reshape", [X, I32], {}, "the new shape"),
        ("Expand", [X, I32], {}, "the shape to expand to"),
        ("Tile", [X, I32], {}, "repeats"),
        ("Slice", [X, I32, I32], {}, "starts"),
        ("Split", [X, I32], {"axis": 1}, "the sizes of the parts"),
        ("Pad", [X, I32], {}, "pads"),
        ("Unsqueeze", [X, I32], {}, "axes"),
        ("Squeeze", [X, I32], {}, "axes"),
        ("ConstantOfShape", [I32], {}, "the shape"),
        ("Range", [SCALAR, SCALAR, SCALAR], {}, "start, limit and delta"),
        ("OneHot", [I32, SCALAR, np.ones(2, np.float32)], {}, "depth"),
        ("TopK", [X, SCALAR], {}, "k"),
    ],
)
def test_operand_must_be_known(
    op: str, inputs: list[Any], attrs: dict[str, Any], what: str
) -> None:
    if op == "ConstantOfShape":
        from onnx import numpy_helper

        attrs = {"value": numpy_helper.from_array(np.zeros(1, np.float32))}
    case = Case("run-time", op, inputs, [], attrs, outputs=2 if op in ("Split", "TopK") else 1)
    with pytest.raises(rten_aot.UnsupportedOpError) as caught:
        run_case(case)
    message = str(caught.value)
    assert message.startswith(f'in node "run-time" ({op}): {what} must be known at compile time')


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
        ("Pad", [X, np.array([0, 0])], {}, "2 pads are given for 2 axes"),
        ("Pad", [X, np.array([-3, 0, 0, 0])], {}, "leave less than 0"),
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
