"""The examples run and say what they should; the example network knows its digits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

import rten_aot


def said(root: Path, script: str) -> str:
    done = subprocess.run(
        [sys.executable, root / "examples" / script],
        env={"PYTHONPATH": str(root), "HOME": str(Path.home())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("01_compile_and_run.py", ["input float32 ('batch', 1, 8, 8)", "This is a 1\n"]),
        (
            "02_dynamic_shapes.py",
            ["64 pictures -> (64, 10)", "fixed: (4, 1, 8, 8)", "five pictures: input"],
        ),
    ],
)
def test_scripts(root: Path, script: str, words: list[str]) -> None:
    output = said(root, script)
    for word in words:
        assert word in output


def test_every_script_is_tried(root: Path) -> None:
    scripts = {path.name for path in (root / "examples").glob("[0-9]*.py")}
    (mark,) = test_scripts.pytestmark  # type: ignore[attr-defined]
    assert scripts == {script for script, _ in mark.args[1]}


def test_the_network_recognises_digits(root: Path, tmp_path: Path) -> None:
    """On scans it has not been trained on; several at once, and one by one."""
    library = rten_aot.compile(
        root / "examples" / "digits" / "digits.rten", tmp_path / "x.so", target="llvm -mcpu=native"
    )
    data = load_digits()
    pictures = (data.images / 16).astype(np.float32)[:, None]
    model = rten_aot.load(library, num_threads=2)
    probabilities = model.run({"input": pictures})["probabilities"]
    assert (probabilities.argmax(axis=1) == data.target).mean() > 0.97
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    for i in range(5):
        (alone,) = model(pictures[i : i + 1])
        np.testing.assert_allclose(alone[0], probabilities[i], rtol=1e-4, atol=1e-6)
