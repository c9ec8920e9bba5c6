"""Real models compiled for machines that this one is not, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

import rten_aot
from tests.edge.emulation import Emulated, EmulatorFaultError, Wasm, each_machine, quick_on
from tests.models.conftest import available
from tests.models.test_end_to_end import assert_matches
from tests.support import models
from tests.support.models import Case

QUICK = Case("mtcnn_onet", (3, 48, 48, 3))
CASES = [
    QUICK,
    Case("ppocr_cls", (1, 3, 48, 192)),
    Case("ppocr_det", (1, 3, 96, 160)),
    Case("silero", (1, 576)),
    Case("minilm", (1, 16)),
]


@quick_on("cortex-a72", "neoverse-n1", "riscv64v")
def test_quick_model(machine: Emulated | Wasm, tmp_path: Path) -> None:
    check(QUICK, machine, tmp_path)


@pytest.mark.emulated
@each_machine
@pytest.mark.parametrize("free", [False, True], ids=["fixed", "free"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_answers(case: Case, free: bool, machine: Emulated | Wasm, tmp_path: Path) -> None:
    check(case, machine, tmp_path, free=free)


def check(case: Case, machine: Emulated | Wasm, folder: Path, *, free: bool = False) -> None:
    """Compare the answers on the machine with those of ONNX Runtime here."""
    machine.require()
    library = rten_aot.compile(
        available(case.model),
        folder / f"libmodel{machine.suffix}",
        target=machine.target,
        shapes=None if free else case.shapes(),
    )
    feed = case.inputs("realistic")
    try:
        got = machine.run(library, models.rten_inputs(feed))
    except EmulatorFaultError as err:
        pytest.skip(str(err))
    assert_matches(got, models.reference(case.model, feed))
