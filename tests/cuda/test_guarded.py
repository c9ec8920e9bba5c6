"""Operators and models for GPUs: kernels touch nothing outside of a buffer."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

import rten_aot
from tests.cuda.emulator import Emulator, install
from tests.cuda.guard import guarded
from tests.memory.tables import SUITES, one_of_each
from tests.models.conftest import available
from tests.models.test_end_to_end import assert_matches as assert_model_matches
from tests.support import models
from tests.support.cases import Array, Case, Mode, assert_matches, feeds, outcomes, write_cases

TARGET = "cuda -arch=sm_80"


def run(cases: Sequence[Case], mode: Mode) -> list[list[list[Array]]]:
    """Results of all cases in one model, which runs twice, the second time the other way round."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "model.rten", Path(folder) / "model.so"
        write_cases(cases, mode, source)
        rten_aot.compile(source, library, target=TARGET)
        runs = []
        with rten_aot.load(library) as model:
            for backward in (False, True):
                install().set_backward(backward=backward)
                runs.append(model.run(feeds(cases, mode)))
    return [
        [[run[f"c{i}_y{k}"] for k in range(case.outputs)] for run in runs]
        for i, case in enumerate(cases)
    ]


def check(cases: Sequence[Case], mode: Mode) -> None:
    """Fail with a list of the cases that are wrong."""
    with guarded():
        found = outcomes(cases, mode, run)
    faults = []
    for case in cases:
        outcome = found[case.id]
        if isinstance(outcome, Exception):
            faults.append(f"{case.id}: {outcome}")
            continue
        for results in outcome:
            for got, want in zip(results, case.want(), strict=True):
                try:
                    assert_matches(got, want, case.tolerance)
                except AssertionError as err:
                    faults.append(f"{case.id}: {err}")
    assert not faults, "\n".join(faults)


@pytest.mark.emulated
@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_one_case_of_each_operator(mode: Mode, gpu: Emulator) -> None:
    check(one_of_each(mode), mode)


@pytest.mark.emulated
@pytest.mark.parametrize("mode", ["static", "dynamic", "constant"])
@pytest.mark.parametrize("family", SUITES)
def test_all_cases(family: str, mode: Mode, gpu: Emulator) -> None:
    check(SUITES[family].cases(mode), mode)


@pytest.mark.models
@pytest.mark.parametrize("free", [False, True], ids=["fixed", "free"])
@pytest.mark.parametrize(
    "case",
    [
        models.Case("ppocr_det", (1, 3, 64, 96)),
        models.Case("ppocr_rec", (1, 3, 48, 64)),
        models.Case("silero", (1, 576)),
        models.Case("minilm", (2, 9)),
        models.Case("resnet50", (1, 3, 224, 224)),
        models.Case("shufflenet", (1, 3, 224, 224)),
    ],
    ids=str,
)
def test_models(case: models.Case, free: bool, tmp_path: Path, gpu: Emulator) -> None:
    feed = case.inputs("random")
    want = models.reference(case.model, feed)
    shapes = None if free else case.shapes()
    library = tmp_path / "model.so"
    with guarded():
        rten_aot.compile(available(case.model), library, target=TARGET, shapes=shapes)
        with rten_aot.load(library) as model:
            got = model.run(models.rten_inputs(feed))
    assert_model_matches(list(got.values()), want)
