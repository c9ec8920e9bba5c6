"""``rten-aot inspect``, on the example model and on stand-ins for libraries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rten_aot.cli.text import bytes_text, shape_text
from tests.cli.conftest import Command

METADATA: dict[str, Any] = {
    "abi": 1,
    "model": {
        "sha256": "ab12",
        "format": "rten-v2",
        "weights": "fp16",
        "metadata": {"license": "MIT\nno more"},
    },
    "inputs": [{"name": "x", "dtype": "float32", "shape": [1, "batch", None]}],
    "outputs": [{"name": "ü", "dtype": "int32", "shape": []}],
    "target": {"kind": "llvm", "triple": "x86_64-unknown-linux-gnu", "features": ["+a", "+b"]},
    "sizes": {"weights": 1234567, "code": 999, "workspace": None},
    "versions": {"rten-aot": "0.1.0"},
}


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Bytes with metadata among them, after two places that only look like it."""
    path = tmp_path / "m.so"
    text = json.dumps(METADATA, ensure_ascii=False, separators=(",", ":")).encode()
    path.write_bytes(b'\x7fELF....{"abi":}\0..{"abi":1}\0..' + text + b"\0 more")
    return path


def test_model(command: Command, root: Path) -> None:
    path = root / "examples/digits/digits.rten"
    done = command("inspect", path)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith(f"{path}: rten-v")
    assert lines[1].startswith("sha256: ")
    for title in ("inputs:", "outputs:", "unsupported operators: none"):
        assert title in lines


def test_model_as_json(command: Command, root: Path) -> None:
    facts = json.loads(command("inspect", root / "examples/digits/digits.rten", "--json").out)
    assert set(facts) == {
        *("format", "sha256", "inputs", "outputs", "operators"),
        *("parameters", "weight_bytes", "metadata", "unsupported"),
    }
    assert facts["unsupported"] == []
    assert facts["parameters"] * 4 == facts["weight_bytes"] > 0
    assert facts["inputs"][0]["name"] == "input"


def test_library(command: Command, library: Path) -> None:
    done = command("inspect", library)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"{library}: compiled model, interface version 1",
        "inputs:",
        "  x  float32  [1, batch, ?]",
        "outputs:",
        "  ü  int32  []",
        "target:",
        "  kind      llvm",
        "  triple    x86_64-unknown-linux-gnu",
        "  features  +a +b",
        "sizes:",
        "  weights    1.2 MB",
        "  code       999 bytes",
        "  workspace  depends on the shapes",
        "versions:",
        "  rten-aot  0.1.0",
        "model:",
        "  sha256   ab12",
        "  format   rten-v2",
        "  weights  fp16",
        "metadata:",
        "  license  MIT no more",
    ]


def test_library_as_json(command: Command, library: Path) -> None:
    assert json.loads(command("inspect", "--json", library).out) == METADATA


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x7fELF no metadata", "{path}: not a library that rten-aot compiled"),
        (b'\x7fELF {"abi":1,"inputs":[', "{path}: not a library that rten-aot compiled"),
        (b"", "the file is empty"),
        (b"no model, no library", "not a .rten model"),
    ],
)
def test_other_files(command: Command, tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    done = command("inspect", path)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("rten-aot: error: " + message.format(path=path))


def test_missing_file(command: Command, tmp_path: Path) -> None:
    done = command("inspect", tmp_path / "no")
    assert done.err == f"rten-aot: error: {tmp_path / 'no'}: No such file or directory\n"


def test_sizes() -> None:
    assert [bytes_text(n) for n in (0, 999, 1000, 1_234_567, 5 * 10**9, 5 * 10**12)] == [
        *("0 bytes", "999 bytes", "1.0 kB", "1.2 MB", "5.0 GB", "5000.0 GB"),
    ]
    assert (shape_text(None), shape_text(()), shape_text((1, None, "n"))) == (
        *("[…]", "[]", "[1, ?, n]"),
    )
