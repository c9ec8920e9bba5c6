"""Real models with weights stored as float16, against ONNX Runtime on the ONNX originals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rten_aot
from rten_aot.cli.artifact import read_metadata
from tests.models.conftest import TARGET, available
from tests.models.test_end_to_end import marked
from tests.support import models
from tests.support.model_feeds import Array
from tests.support.models import CASES, DYNAMIC_CASES, Case

PRECISION = 2.0**-11
"""Of float16: what one rounding loses at most."""
LOST = 8 * PRECISION
"""What an answer may lose, taken as a vector: roundings of many layers add up."""
SIZES = {"minilm": 0.51, "resnet50": 0.56}
"""What part of the model's file the weights may be; ResNet-50 has more of them for Winograd."""
QUICK = "mtcnn_onet-8x48x48x3"
"""The case whose test belongs to the default suite."""


def losses(library: Path, case: Case) -> list[float]:
    """What part of each answer is lost; of answers that vanish, a part of 0.01 is nothing."""
    with rten_aot.load(library, num_threads=2) as model:
        got = list(model.run(models.rten_inputs(case.inputs("realistic"))).values())
    want = models.reference(case.model, case.inputs("realistic"))
    return [loss(a, b) for a, b in zip(got, want, strict=True)]


def loss(got: Array, want: Array) -> float:
    error = np.linalg.norm((got.astype(np.float64) - want).ravel())
    least = 0.01 * np.sqrt(want.size)
    return float(error / max(np.linalg.norm(want.astype(np.float64).ravel()), least))


def compiled(case: Case, path: Path, **options: Any) -> Path:
    return rten_aot.compile(available(case.model), path, target=TARGET, weights="fp16", **options)


@pytest.mark.parametrize("case", marked(CASES, lambda case: str(case) == QUICK))
def test_fixed_shapes(case: Case, tmp_path: Path) -> None:
    library = compiled(case, tmp_path / "model.so", shapes=case.shapes())
    lost = losses(library, case)
    print(f"\n{case}: loses {', '.join(f'{x / PRECISION:.2f}' for x in lost)} of fp16's precision")
    assert max(lost) < LOST
    if case.model in SIZES:
        whole = available(case.model).stat().st_size
        assert read_metadata(library)["sizes"]["weights"] < SIZES[case.model] * whole


@pytest.mark.models
@pytest.mark.parametrize("case", {case.model: case for case in DYNAMIC_CASES}.values(), ids=str)
def test_free_shapes(case: Case, tmp_path: Path) -> None:
    assert max(losses(compiled(case, tmp_path / "model.so"), case)) < LOST
