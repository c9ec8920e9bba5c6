"""Large weights are mapped at once before a kernel that reads all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rten_aot
from tests.support.cases import Case, convert


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, "float32")


MATRIX, SMALL = zeros(3, 512), zeros(3, 16)
ROWS = np.array([2, 1], "int32")
CASES = {
    "product": (Case("c", "MatMul", [MATRIX, zeros(512, 512)], [], constant=(1,)), 1),
    "small product": (Case("c", "MatMul", [SMALL, zeros(16, 16)], [], constant=(1,)), 0),
    "convolution": (
        Case("c", "Conv", [zeros(1, 128, 9, 9), zeros(128, 128, 3, 3)], [], constant=(1,)),
        1,
    ),
    "table of which some rows are read": (
        Case("c", "Gather", [zeros(1000, 512), ROWS], [], constant=(0,)),
        0,
    ),
}


@pytest.mark.parametrize(("case", "count"), CASES.values(), ids=CASES)
def test_large_weights_that_are_read_whole(case: Case, count: int, tmp_path: Path) -> None:
    model = tmp_path / "model.rten"
    convert([case], "static", model)
    text = rten_aot.compile(model, tmp_path / "model.tir", emit="tir").read_text()
    assert text.count("rten_aot_map") == count
