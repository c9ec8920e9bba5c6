"""``rten-aot export-onnx`` on the example network."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
import pytest

from tests.cli.conftest import Command


@pytest.fixture
def source(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copy(root / "examples/digits/digits.rten", tmp_path))


def test_writes_a_valid_model(command: Command, source: Path, tmp_path: Path) -> None:
    done = command("export-onnx", source, "out.onnx")
    assert (done.code, done.out, done.err) == (0, "", "")
    proto = onnx.load("out.onnx")
    onnx.checker.check_model(proto, full_check=True)
    assert [i.name for i in proto.graph.input] == ["input"]
    assert [o.name for o in proto.graph.output] == ["probabilities"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["digits.rten", "out.onnx"]


def test_default_output(command: Command, source: Path, tmp_path: Path) -> None:
    assert command("export-onnx", "digits.rten").code == 0
    source.rename("other.bin")
    assert command("export-onnx", "other.bin").code == 0
    names = ["digits.onnx", "other.bin", "other.bin.onnx"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names


def test_errors(command: Command, source: Path) -> None:
    done = command("export-onnx", "digits.rten", "digits.rten")
    assert done.code == 2
    assert 'the output "digits.rten" is the model itself' in done.err
    done = command("export-onnx", "digits.rten", "no/where.onnx")
    assert (done.code, done.err) == (1, "rten-aot: error: no: the folder does not exist\n")
    done = command("export-onnx", "none.rten")
    assert (done.code, done.err) == (1, "rten-aot: error: none.rten: No such file or directory\n")
    Path("bad.rten").write_bytes(b"RTEN" + bytes(60))
    done = command("export-onnx", "bad.rten")
    assert done.code == 1
    assert not Path("bad.onnx").exists()
