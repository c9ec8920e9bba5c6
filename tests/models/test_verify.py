"""``rten-aot verify`` on the real models: the way from .rten to ONNX and back to numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rten_aot.cli import main
from rten_aot.cli.arrays import write_npz
from tests.models.conftest import available
from tests.support.models import CASES, Case

QUICK = {"mtcnn_pnet-1x192x192x3", "silero-1x576"}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(c, id=str(c), marks=() if str(c) in QUICK else pytest.mark.models)
        for c in CASES
    ],
)
def test_verify(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    feed = case.inputs("realistic")
    small = {n: x.astype(np.int32) if x.dtype == np.int64 else x for n, x in feed.items()}
    write_npz(tmp_path / "x.npz", small)
    words = ["verify", str(available(case.model)), "--inputs", str(tmp_path / "x.npz")]
    for name, shape in case.shapes().items():
        words += ["--shape", f"{name}={','.join(map(str, shape))}"]
    status = main(words)
    out = capsys.readouterr().out
    assert status == 0, out
    assert out.endswith("equal to ONNX Runtime (tolerance 0.0001)\n")
