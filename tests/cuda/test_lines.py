"""Operators along an axis, by a thread for each line of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rten_aot
from rten_aot.codegen import nvrtc
from rten_aot.runtime import ModelRunError
from tests.cuda import emulator
from tests.cuda.emulator import Emulator
from tests.cuda.test_operators import check
from tests.support.cases import Array, Case, Mode, write_cases

RANDOM = np.random.default_rng(1)


@pytest.fixture(autouse=True)
def text_for_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "compile_image", emulator.text_image)


def numbers(*shape: int, dtype: str = "float32") -> Array:
    return RANDOM.integers(-9, 9, shape).astype(dtype)


def running_sum(name: str, x: Array, axis: int) -> Case:
    return Case(
        name, "CumSum", [x, np.array(axis, np.int32)],
        lambda x, axis: np.cumsum(x, int(axis), dtype=x.dtype), constant=[1],
    )  # fmt: skip


REDUCTIONS = {
    "none": lambda old, new: new,
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def scatter(
    name: str, x: Array, shape: tuple[int, ...], axis: int, reduction: str = "none"
) -> Case:
    """Indices of the shape, many of them alike and some negative."""
    indices = RANDOM.integers(-x.shape[axis], x.shape[axis], shape).astype(np.int32)

    def expected(x: Array, indices: Array, updates: Array) -> Array:
        result = x.copy()
        for i in np.ndindex(indices.shape):
            where = (*i[:axis], indices[i], *i[axis + 1 :])
            result[where] = REDUCTIONS[reduction](result[where], updates[i])
        return result

    return Case(
        name, "ScatterElements", [x, indices, numbers(*shape, dtype=str(x.dtype))], expected,
        attrs={"axis": axis, "reduction": reduction},
    )  # fmt: skip


CASES = [
    running_sum("first", numbers(7, 40), 0),
    running_sum("last", numbers(300, 5), 1),
    running_sum("middle", numbers(6, 5, 7), 1),
    running_sum("integers", numbers(50, 3, dtype="int32"), 1),
    scatter("rows", numbers(40, 6), (40, 9), 1),
    scatter("columns", numbers(6, 300), (9, 300), 0),
    scatter("corner", numbers(40, 6), (17, 4), 1),
    scatter("cube", numbers(6, 5, 7), (4, 8, 3), 1),
    scatter("words", numbers(40, 6, dtype="int32"), (40, 3), 1),
    *[scatter(r, numbers(33, 6), (33, 5), 1, r) for r in REDUCTIONS if r != "none"],
]


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_results(mode: Mode, gpu: Emulator) -> None:
    check(CASES, mode, gpu)


def explained(cases: list[Case], mode: Mode, folder: Path) -> list[str]:
    notes: list[str] = []
    write_cases(cases, mode, folder / "model.rten")
    rten_aot.compile(
        folder / "model.rten", folder / "model.cu", target="cuda -arch=sm_80", emit="cuda",
        explain=notes.append,
    )  # fmt: skip
    return [note for note in notes if "runs on the CPU" in note]


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_they_run_on_the_gpu(mode: Mode, tmp_path: Path) -> None:
    assert explained(CASES, mode, tmp_path) == []


def test_a_few_lines_are_left_to_the_cpu(tmp_path: Path) -> None:
    few = [running_sum("few", numbers(31, 5), 1), scatter("line", numbers(50), (9,), 0)]
    assert len(explained(few, "static", tmp_path)) == 2


def test_indices_out_of_range(tmp_path: Path, gpu: Emulator) -> None:
    case = scatter("place", numbers(40, 6), (40, 2), 1)
    write_cases([case], "static", tmp_path / "model.rten")
    library = rten_aot.compile(tmp_path / "model.rten", target="cuda -arch=sm_80")
    x, indices, updates = case.inputs
    assert indices is not None
    wrong = indices.copy()
    wrong[30, 1] = 6
    with rten_aot.load(library) as model:
        with pytest.raises(
            ModelRunError, match=r'node "place" \(ScatterElements\): index 6 is out'
        ):
            model(x, wrong, updates)
        (got,) = model(x, indices, updates)
    np.testing.assert_array_equal(got, case.want()[0])
