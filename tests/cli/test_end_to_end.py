"""The commands on the example network, with the real compiler."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import rten_aot
from rten_aot.cli import main
from rten_aot.cli.choices import EMITS
from tests.cli.conftest import Command

# Something that each text holds.
MARKS = {
    "relax": "R.function",
    "tir": "T.prim_func",
    "llvm": "define ",
    "asm": ".text",
    "cuda": "__global__",
    "header": "rten_aot_run",
}


@pytest.fixture(scope="module")
def folder(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the network and the library compiled from it."""
    path = tmp_path_factory.mktemp("digits")
    shutil.copy(root / "examples/digits/digits.rten", path)
    words = ["compile", str(path / "digits.rten"), "--target", "llvm", "-mcpu=native"]
    assert main(words) == 0
    return path


def test_run_shows_and_writes_the_same(command: Command, folder: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(3).random((2, 1, 8, 8), np.float32)
    np.save(tmp_path / "x.npy", x)
    words = ["--input", f"input={tmp_path / 'x.npy'}", "--output", tmp_path / "y.npz"]
    done = command("run", folder / "digits.so", "--threads", "1", *words)
    assert (done.code, done.err) == (0, "")
    title, line = done.out.splitlines()
    assert title == "outputs:"
    assert line.split()[:4] == ["probabilities", "float32", "[2,", "10]"]
    with np.load(tmp_path / "y.npz") as archive:
        written = archive["probabilities"]
    np.testing.assert_allclose(written.sum(axis=1), 1, rtol=1e-5)
    model = rten_aot.load(folder / "digits.so", num_threads=1)
    np.testing.assert_array_equal(written, model.run({"input": x})["probabilities"])


def test_run_on_random_values(command: Command, folder: Path) -> None:
    done = command("run", folder / "digits.so")
    assert (done.code, done.err) == (0, "")
    assert "  input  float32  [1, 1, 8, 8]" in done.out.splitlines()


def test_run_errors(command: Command, folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 1, 8, 9), np.float32))
    done = command("run", folder / "digits.so", "--input", f"input={tmp_path / 'x.npy'}")
    assert done.code == 1
    assert done.err.startswith("rten-aot: error: ")
    assert '"input"' in done.err
    done = command("run", folder / "digits.rten")
    assert done.code == 1
    assert done.err.startswith("rten-aot: error: ")


def test_inspect(command: Command, folder: Path) -> None:
    facts = json.loads(command("inspect", folder / "digits.so", "--json").out)
    assert facts["inputs"] == [{"name": "input", "dtype": "float32", "shape": ["batch", 1, 8, 8]}]
    assert facts["model"]["format"].startswith("rten-v")
    lines = command("inspect", folder / "digits.so").out.splitlines()
    assert "  input  float32  [batch, 1, 8, 8]" in lines
    assert "  probabilities  float32  [batch, 10]" in lines


@pytest.mark.parametrize("emit", EMITS)
def test_emit(command: Command, folder: Path, emit: str) -> None:
    model = folder / "digits.rten"
    target = "cuda" if emit == "cuda" else "llvm"
    words = "--target", target, "--emit", emit, "-o", folder / f"out.{emit}", "-O1"
    done = command("compile", model, *words)
    assert (done.code, done.out, done.err) == (0, "", "")
    written = (folder / f"out.{emit}").read_bytes()
    if emit == "obj":
        assert written.startswith(b"\x7fELF")
    elif emit == "static":
        assert written.startswith(b"!<arch>\n")
        assert MARKS["header"] in (folder / "out.h").read_text()
    else:
        assert MARKS[emit] in written.decode()


def test_shapes_reach_the_compiler(command: Command, folder: Path) -> None:
    model = folder / "digits.rten"
    done = command("compile", model, "--dim", "batch=3", "-o", folder / "three.so", "--explain")
    assert (done.code, done.err) == (0, "")
    facts = json.loads(command("inspect", folder / "three.so", "--json").out)
    assert facts["inputs"][0]["shape"] == [3, 1, 8, 8]
    wrong = command("compile", model, "--dim", "bacth=3", "-o", folder / "four.so")
    assert wrong.code == 1
    assert 'the model has no dimension "bacth"' in wrong.err
    assert not (folder / "four.so").exists()


def test_unknown_target(command: Command, folder: Path) -> None:
    done = command("compile", folder / "digits.rten", "--target", "x86-64-v33")
    assert done.code == 1
    assert "x86-64-v3" in done.err.replace("x86-64-v33", "")
