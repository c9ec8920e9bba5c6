"""The text of kernels on PoCL: what another compiler makes of it, with other threads."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest

from rten_aot.targets.cuda import product, tiles
from tests.cuda import pocl
from tests.cuda.test_kernels import PRODUCTS, conv, matmul, numbers
from tests.support.cases import Array, Case, feeds, write_cases
from tests.support.tolerances import assert_matches

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("pyopencl") is None
        or importlib.util.find_spec("pocl_binary_distribution") is None,
        reason="the packages pyopencl and pocl-binary-distribution are not installed",
    ),
]


def softmax(x: Array) -> Array:
    exp = np.exp(x - x.max(-1, keepdims=True))
    return exp / exp.sum(-1, keepdims=True)


OTHERS = [
    conv("depthwise", (1, 8, 9, 11), (8, 1, 3, 3), groups=8),
    Case("softmax", "Softmax", [numbers(5, 300)], softmax, attrs={"axis": -1},
         tolerance="approximate"),
    Case("few", "Softmax", [numbers(40, 5)], softmax, attrs={"axis": -1}, tolerance="approximate"),
    Case("sum", "ReduceSum", [numbers(7, 500)], lambda x: x.sum(1, keepdims=True),
         attrs={"axes": [1]}, tolerance="approximate"),
    Case("mean", "ReduceMean", [numbers(3, 50, 8)], lambda x: x.mean(1, keepdims=True),
         attrs={"axes": [1]}, tolerance="approximate"),
    Case("max", "ReduceMax", [numbers(3, 50)], lambda x: x.max(1, keepdims=True),
         attrs={"axes": [1]}),
    Case("add", "Add", [numbers(6, 7), numbers(7)], np.add),
    Case("erf", "Erf", [numbers(6, 7)], np.vectorize(math.erf), tolerance="approximate"),
    Case("tanh", "Tanh", [numbers(6, 7)], np.tanh, tolerance="approximate"),
    Case("transpose", "Transpose", [numbers(40, 50)], np.transpose),
]  # fmt: skip


def check(cases: list[Case], folder: Path) -> None:
    write_cases(cases, "static", folder / "model.rten")
    results = pocl.run(folder / "model.rten", list(feeds(cases, "static").values()))
    for case, result in zip(cases, results, strict=True):
        (want,) = case.want()
        got = np.frombuffer(result, np.float32).reshape(want.shape)
        assert_matches(got, want.astype(np.float32), case.tolerance)


@pytest.mark.parametrize("parts", [1, 3])
def test_products(parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "count_parts", lambda *_: parts)
    check([*PRODUCTS, matmul("rows", (3, 40), (40, 50))], tmp_path)


def test_large_tiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "choose_tile", lambda *_: tiles.LARGE)
    check([matmul("odd", (150, 37), (37, 151))], tmp_path)


def test_others(tmp_path: Path) -> None:
    check(OTHERS, tmp_path)


def test_differences_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without barriers threads see what is not there yet."""
    keep = pocl.opencl
    monkeypatch.setattr(pocl, "opencl", lambda text: keep(text.replace("__syncthreads();", "")))
    with pytest.raises(AssertionError, match=r"Mismatched elements|nan location"):
        check([matmul("odd", (77, 37), (37, 51))], tmp_path)
