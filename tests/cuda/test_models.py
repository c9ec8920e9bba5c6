"""Real models for GPUs, on the emulator, against ONNX Runtime on the ONNX originals."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rten_aot
from rten_aot.codegen import nvrtc
from rten_aot.runtime import Model
from tests.cuda import emulator, gpu_kit
from tests.cuda.emulator import Emulator
from tests.cuda.jetson import JETSON
from tests.models.conftest import available
from tests.models.test_end_to_end import assert_matches
from tests.support import models
from tests.support.model_feeds import Array, Kind
from tests.support.models import CASES, DYNAMIC_CASES, Case

QUICK = {"mtcnn_onet-8x48x48x3", "silero_ifless-1x576"}
QUICK_DYNAMIC = {"silero_ifless"}


def marked(cases: Sequence[Case], quick: Callable[[Case], bool]) -> list[Any]:
    """The cases as parameters; all but the quick ones are marked ``models``."""
    return [
        pytest.param(case, id=str(case), marks=() if quick(case) else pytest.mark.models)
        for case in cases
    ]


static_cases = pytest.mark.parametrize("case", marked(CASES, lambda case: str(case) in QUICK))
dynamic_cases = pytest.mark.parametrize(
    "case", marked(DYNAMIC_CASES, lambda case: case.model in QUICK_DYNAMIC)
)


@dataclass(frozen=True)
class Made:
    """A library, and what the compiler explained."""

    library: Path
    notes: tuple[str, ...]


Maker = Callable[[Case | str], Made]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Maker]:
    """Compiles a case for exactly its shapes, or a model named by a string with its own."""
    folder, done = tmp_path_factory.mktemp("models"), dict[str, Made]()

    def make(wanted: Case | str) -> Made:
        if str(wanted) not in done:
            name = wanted.model if isinstance(wanted, Case) else wanted
            shapes = wanted.shapes() if isinstance(wanted, Case) else None
            library, notes = folder / f"{wanted}.so", list[str]()
            rten_aot.compile(
                available(name), library, target="cuda -arch=sm_80", shapes=shapes,
                explain=notes.append,
            )  # fmt: skip
            done[str(wanted)] = Made(library, tuple(notes))
        return done[str(wanted)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvrtc, "compile_image", emulator.text_image)
        yield make


def answers(model: Model, case: Case, kind: Kind) -> list[Array]:
    """What the compiled model says to a case's inputs."""
    return list(model.run(models.rten_inputs(case.inputs(kind))).values())


@static_cases
def test_fixed_shapes(case: Case, made: Maker, gpu: Emulator) -> None:
    with rten_aot.load(made(case).library) as model:
        want = models.reference(case.model, case.inputs("realistic"))
        first = answers(model, case, "realistic")
        assert_matches(first, want)
        # A race shows in results that depend on which thread runs first.
        gpu.set_backward(backward=True)
        for one, other in zip(first, answers(model, case, "realistic"), strict=True):
            np.testing.assert_array_equal(one, other)


@dynamic_cases
def test_free_shapes(case: Case, made: Maker, gpu: Emulator) -> None:
    assert not [note for note in made(case.model).notes if "runs on the CPU" in note]
    with rten_aot.load(made(case.model).library) as model:
        for kind in ("random", "realistic"):
            want = models.reference(case.model, case.inputs(kind))
            assert_matches(answers(model, case, kind), want)


@static_cases
def test_nothing_runs_on_the_cpu(case: Case, made: Maker, gpu: Emulator) -> None:
    assert not [note for note in made(case).notes if "runs on the CPU" in note]
    with rten_aot.load(made(case).library) as model:
        answers(model, case, "random")
        gpu.take_log()
        answers(model, case, "random")
        copies = [line.split()[0] for line in gpu.take_log() if line.startswith("cuMemcpy")]
    # Of a model without failures, inputs and outputs alone are copied.
    inputs, outputs = len(model.inputs), len(model.outputs)
    assert copies.count("cuMemcpyHtoDAsync_v2") == inputs
    assert copies.count("cuMemcpyDtoHAsync_v2") in (outputs, outputs + 1)


@static_cases
def test_runs_are_recorded(case: Case, made: Maker, gpu: Emulator) -> None:
    if case.model.startswith("silero"):
        pytest.skip("reads a condition that the GPU computes")
    with rten_aot.load(made(case).library, cuda_graph=True) as model:
        first = answers(model, case, "random")
        for _ in range(2):
            gpu.take_log()
            for one, other in zip(first, answers(model, case, "random"), strict=True):
                np.testing.assert_array_equal(one, other)
        calls = [line.split()[0] for line in gpu.take_log()]
        assert calls.count("cuGraphLaunch") == 1
        assert "cuLaunchKernel" not in calls


@pytest.mark.models
def test_kit_for_a_machine_with_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "compile_image", emulator.text_image)
    case = next(case for case in CASES if str(case) == "mtcnn_onet-8x48x48x3")
    available(case.model)
    gpu_kit.make(tmp_path, [case], "sm_80")
    done = subprocess.run(
        [tmp_path / "run.sh", "0.1"],
        env={**os.environ, **emulator.environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    form = r"\./mtcnn_onet\S+ difference \S+, [\d.]+ ms, [\d.]+ ms as a graph\n"
    assert re.fullmatch(form, done.stdout), done.stdout


@pytest.mark.emulated
@pytest.mark.parametrize("target", [JETSON.target, "cuda -arch=sm_87 -mtriple=aarch64-linux-gnu"])
def test_jetson(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    JETSON.require()
    monkeypatch.setattr(nvrtc, "compile_image", emulator.text_image)
    case = next(case for case in CASES if str(case) == "mtcnn_onet-8x48x48x3")
    library = tmp_path / "libmodel.so"
    rten_aot.compile(available(case.model), library, target=target, shapes=case.shapes())
    feed = case.inputs("realistic")
    results = JETSON.run(library, models.rten_inputs(feed))
    assert_matches(results, models.reference(case.model, feed))
