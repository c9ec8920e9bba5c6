"""A Python that has NumPy and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

CHECK = """
import importlib.util
for name in ("rten_aot", "tvm", "tvm_ffi", "ziglang", "flatbuffers", "onnx", "onnxruntime", "pip"):
    assert importlib.util.find_spec(name) is None, name
import numpy
"""


def plain_python(folder: Path) -> Path:
    """The interpreter of a new environment in ``folder``; NumPy in it is this Python's own."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    numpy = Path(np.__file__).parent
    for package in (numpy, numpy.with_name("numpy.libs")):
        if package.is_dir():
            (site / package.name).symlink_to(package)
    python = folder / "bin" / "python"
    run(python, "-I", "-c", CHECK)
    return python


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """What a program prints that ends well; it knows nothing of this checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
