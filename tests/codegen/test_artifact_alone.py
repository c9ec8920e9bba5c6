"""An artifact where there is nothing but NumPy and the runtime, out of a wheel."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rten_aot
from tests.codegen.nets import assert_right, feed, write_net

pytestmark = pytest.mark.slow

RUN = """
import importlib.util, sys, numpy, rten_aot
for name in ("tvm", "tvm_ffi", "ziglang", "flatbuffers", "onnx", "onnxruntime"):
    assert importlib.util.find_spec(name) is None, name
library, inputs, outputs = sys.argv[1:]
model = rten_aot.load(library)
numpy.savez(outputs, **model.run(dict(numpy.load(inputs))))
try:
    rten_aot.compile("model.rten")
except rten_aot.CompileError as err:
    print(err)
"""


def call(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_runs_beside_numpy_alone(root: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, source)
    for name in ("rten_aot", "passes", "targets"):
        shutil.copytree(root / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    call(sys.executable, "-m", "venv", "plain", cwd=tmp_path)
    python = tmp_path / "plain" / "bin" / "python"
    call(python, "-m", "pip", "install", "--quiet", source, cwd=tmp_path)

    library = rten_aot.compile(write_net(tmp_path / "net.rten"), target="llvm -mcpu=native")
    np.savez(tmp_path / "x.npz", **feed())  # type: ignore[arg-type]
    printed = call(python, "-c", RUN, library, "x.npz", "y.npz", cwd=tmp_path)
    assert 'pip install "rten-aot[compiler]"' in printed
    with np.load(tmp_path / "y.npz") as archive:
        assert_right(dict(archive), feed())
    command = tmp_path / "plain" / "bin" / "rten-aot"
    shown = call(command, "run", library, "--inputs", "x.npz", cwd=tmp_path)
    assert "scores" in shown
