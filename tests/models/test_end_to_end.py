"""Real models, from .rten to numbers, against ONNX Runtime on the ONNX originals."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import rten_aot
from rten_aot.runtime import Model
from tests.models.conftest import TARGET, Compiler, Loader, available
from tests.support import models
from tests.support.model_feeds import Array, Kind
from tests.support.models import CASES, DYNAMIC_CASES, Case

# Models whose tests belong to the default suite, compiled for one shape or for any.
QUICK = {"ppocr_cls-1x3x48x192", "mtcnn_onet-8x48x48x3", "silero_ifless-1x576"}
QUICK_DYNAMIC = {"minilm"}
THREADS = (1, 2)
# The classic networks have random weights: that their answers depend on the input at all is part
# of the proof.
CLASSIC = {"resnet50", "densenet121", "squeezenet", "shufflenet", "inception_v2", "vgg19"}
MINUTE = 60.0


def marked(cases: Sequence[Case], quick: Callable[[Case], bool]) -> list[Any]:
    """The cases as parameters; all but the quick ones are marked ``models``."""
    return [
        pytest.param(case, id=str(case), marks=() if quick(case) else pytest.mark.models)
        for case in cases
    ]


static_cases = pytest.mark.parametrize("case", marked(CASES, lambda c: str(c) in QUICK))
dynamic_cases = pytest.mark.parametrize(
    "case", marked(DYNAMIC_CASES, lambda c: c.model in QUICK_DYNAMIC)
)
kinds = pytest.mark.parametrize("kind", get_args(Kind))
threads = pytest.mark.parametrize("threads", THREADS)


def assert_matches(got: Sequence[Array], want: Sequence[Array]) -> None:
    """Fail unless all outputs are within 1e-4 of the greatest value expected (at least of 0.01)."""
    assert len(got) == len(want)
    for index, (actual, expected) in enumerate(zip(got, want, strict=True)):
        assert actual.shape == expected.shape, f"output {index}"
        assert not expected.size or expected.dtype.kind != "f" or np.isfinite(expected).all()
        if not expected.size:
            continue
        scale = max(float(np.abs(expected).max()), 0.01)
        error = float(np.abs(actual.astype(np.float64) - expected).max())
        assert error <= 1e-4 * scale, f"output {index} is off by {error / scale:.2g} of its scale"


def answers(model: Model, case: Case, kind: Kind, seed: int = 0) -> list[Array]:
    """What the compiled model says to a case's inputs."""
    return list(model.run(models.rten_inputs(case.inputs(kind, seed))).values())


@static_cases
@threads
@kinds
def test_fixed_shapes(
    case: Case, threads: int, kind: Kind, compiled: Compiler, loaded: Loader
) -> None:
    model = loaded(compiled(case), threads)
    want = models.reference(case.model, case.inputs(kind))
    assert_matches(answers(model, case, kind), want)
    # The workspace is used again.
    assert_matches(answers(model, case, kind), want)


@dynamic_cases
@threads
@kinds
def test_free_shapes(
    case: Case, threads: int, kind: Kind, compiled: Compiler, loaded: Loader
) -> None:
    model = loaded(compiled(case.model), threads)
    want = models.reference(case.model, case.inputs(kind))
    assert_matches(answers(model, case, kind), want)


@static_cases
def test_answers_depend_on_the_input(case: Case, compiled: Compiler, loaded: Loader) -> None:
    model = loaded(compiled(case), 1)
    first, second = (answers(model, case, "realistic", seed)[0] for seed in (0, 1))
    least = 0.05 if case.model in CLASSIC else 0.001
    assert np.abs(first - second).max() > least * np.abs(first).max()


@static_cases
def test_size_and_load_time(case: Case, compiled: Compiler) -> None:
    library = compiled(case).library
    with rten_aot.load(library) as model:
        weights = model.metadata["sizes"]["weights"]
    assert library.stat().st_size - weights < 1.5e6
    best = min(_load_seconds(library) for _ in range(5))
    assert best < 0.010


def _load_seconds(library: Path) -> float:
    """In a process of its own: this one has the library open already."""
    script = (
        "import sys, time, rten_aot.runtime as r\n"
        "t = time.perf_counter(); m = r.load(sys.argv[1]); print(time.perf_counter() - t)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(library)], check=True, capture_output=True, text=True
    )
    return float(done.stdout)


@pytest.mark.models
@pytest.mark.parametrize("case", CASES, ids=str)
def test_compile_time(case: Case, compiled: Compiler) -> None:
    """Measured as time on two processors, so that other work on the machine does not count."""
    made = compiled(case)
    print(f"\n{case}: compiled in {made.seconds:.1f} s, {made.cpu_seconds:.1f} s of CPU time")
    assert made.cpu_seconds < 2 * MINUTE


@pytest.mark.parametrize(
    "case",
    marked(
        [
            Case("mtcnn_onet", (8, 48, 48, 3)),
            Case("ppocr_rec", (1, 3, 48, 320)),
            Case("silero", (1, 576)),
        ],
        lambda case: case.model == "mtcnn_onet",
    ),
)
def test_command_line(case: Case, tmp_path: Path) -> None:
    source = available(case.model)
    feed = case.inputs("realistic")
    np.savez(tmp_path / "x.npz", **models.rten_inputs(feed))  # type: ignore[arg-type]
    shapes = [f"{name}={','.join(map(str, sizes))}" for name, sizes in case.shapes().items()]
    options = [word for text in shapes for word in ("--shape", text)]
    rten_aot_command(
        "compile", source, "-o", tmp_path / "model.so", "--target", *TARGET.split(), *options
    )
    rten_aot_command(
        "run", tmp_path / "model.so", "--inputs", tmp_path / "x.npz",
        "--output", tmp_path / "y.npz", "--threads", "2",
    )  # fmt: skip
    with np.load(tmp_path / "y.npz") as archive:
        got = [archive[name] for name in archive.files]
    assert_matches(got, models.reference(case.model, feed))


def rten_aot_command(*words: str | Path) -> str:
    """What ``rten-aot …`` prints."""
    command = [sys.executable, "-m", "rten_aot", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
