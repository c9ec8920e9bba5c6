"""The tables of operators on an emulated GPU, threads and blocks in order and backwards."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import rten_aot
from rten_aot.codegen import nvrtc
from rten_aot.codegen.nvrtc import compile_image
from tests.cuda import emulator
from tests.cuda.emulator import Emulator
from tests.cuda.test_nvrtc import needs_nvrtc
from tests.memory.tables import SUITES, one_of_each
from tests.support.cases import Array, Case, Mode, feeds, outcomes, rten_dtype, write_cases
from tests.support.tolerances import assert_matches


@pytest.fixture(autouse=True)
def text_for_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "compile_image", emulator.text_image)


def check(cases: Sequence[Case], mode: Mode, gpu: Emulator) -> None:
    """Run all cases in as few models as possible, and fail with a list of those that are wrong."""
    found = outcomes(cases, mode, lambda batch, mode: run(batch, mode, gpu))
    faults = []
    for case in cases:
        match found[case.id]:
            case Exception() as err:
                faults.append(f"{case.id}: {err}")
            case results:
                faults += differences(case, results)
    assert not faults, "\n".join(faults)


def run(batch: Sequence[Case], mode: Mode, gpu: Emulator) -> list[list[list[Array]]]:
    """The results by case, order of threads, output."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_cases(batch, mode, folder / "model.rten")
        library = rten_aot.compile(
            folder / "model.rten", folder / "model.so", target="cuda -arch=sm_80"
        )
        given = {k: x.astype(rten_dtype(x)) for k, x in feeds(batch, mode).items()}
        runs = []
        with rten_aot.load(library) as model:
            for backward in (False, True):
                gpu.set_backward(backward=backward)
                runs.append(model.run(given))
    return [
        [[r[f"c{i}_y{k}"] for k in range(case.outputs)] for r in runs]
        for i, case in enumerate(batch)
    ]


def differences(case: Case, results: list[list[Array]]) -> list[str]:
    """What is wrong with the results of a case, which no order of threads may change."""
    try:
        for got, want in zip(results[0], case.want(), strict=True):
            assert_matches(got, want, case.tolerance)
        for got, want in zip(results[1], results[0], strict=True):
            np.testing.assert_array_equal(got, want)
    except AssertionError as err:
        return [f"{case.id}: {err}"]
    return []


def test_one_case_of_each_operator(gpu: Emulator) -> None:
    check([c for c in one_of_each("static") if not c.op.startswith("Random")], "static", gpu)


@needs_nvrtc
@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_nvrtc_takes_the_text_of_each_operator(mode: Mode, tmp_path: Path) -> None:
    for written in (False, True):
        cases = [c for c in one_of_each(mode) if (c.rten is not None) == written]
        write_cases(cases, mode, tmp_path / "model.rten")
        text = rten_aot.compile(
            tmp_path / "model.rten", tmp_path / "model.cu", target="cuda -arch=sm_80", emit="cuda"
        ).read_text()
        kernels = compile_image(text, 80).kernels
        assert len(kernels) >= text.count("__global__")


@pytest.mark.emulated
@pytest.mark.parametrize("mode", ["static", "dynamic", "constant"])
@pytest.mark.parametrize("family", SUITES)
def test_all_cases(family: str, mode: Mode, gpu: Emulator) -> None:
    check(SUITES[family].cases(mode), mode, gpu)
