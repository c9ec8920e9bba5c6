"""``rten-aot bench`` on the example network, alone and against stand-ins and the real thing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import rten_aot
from rten_aot.interop import peers
from rten_aot.interop.peers import Peer
from tests.cli.conftest import Command
from tests.cli.test_profile import fields, warnings_of

NATIVE = "llvm -mcpu=native"
FIXED = ("--dim", "batch=2", "--runs", "6")


@pytest.fixture(scope="module")
def source(root: Path) -> Path:
    return root / "examples/digits/digits.rten"


@pytest.fixture(scope="module")
def library(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("digits") / "digits.so"
    return rten_aot.compile(source, path, target=NATIVE)


class StandIns:
    """Runtimes that only remember what they are given."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, Path, int]] = []
        self.feeds: list[Mapping[str, npt.NDArray[Any]]] = []
        self.ran: list[str] = []

    def open(self, name: str) -> Any:
        def make(model: Path, feed: Mapping[str, npt.NDArray[Any]], threads: int) -> Peer:
            self.opened.append((name, model, threads))
            self.feeds.append(feed)
            return Peer(name, "1.2", lambda: self.ran.append(name))

        return make


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> StandIns:
    made = StandIns()
    for name in list(peers.PEERS):
        monkeypatch.setitem(peers.PEERS, name, made.open(name))  # type: ignore[arg-type]
    return made


@pytest.fixture
def onnx(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    path.touch()
    return path


def test_alone(command: Command, library: Path) -> None:
    done = command("bench", library, *FIXED, "--threads", "1")
    assert done.code == 0
    warnings_of(done.err)
    title, headings, row = done.out.splitlines()
    assert title == f"{library}: 1 thread, input [2, 1, 8, 8]"
    assert fields(headings) == ["median ms", "10 % below", "10 % above", "runs"]
    name, median, low, high, runs = fields(row)
    assert (name, runs) == (f"rten-aot {rten_aot.__version__}", "6")
    assert 0 < float(low) <= float(median) <= float(high)


def test_against_others(command: Command, library: Path, others: StandIns, onnx: Path) -> None:
    against = ("--against", "onnxruntime", "openvino", "onnxruntime", "--onnx", onnx)
    done = command("bench", library, *FIXED, "--threads", "2", *against)
    assert done.code == 0
    assert others.opened == [("onnxruntime", onnx, 2), ("openvino", onnx, 2)]
    assert [feed["input"].shape for feed in others.feeds] == [(2, 1, 8, 8)] * 2
    assert others.ran[-6:] == ["openvino"] * 6
    title, headings, own, first, second = done.out.splitlines()
    assert title == f"{library}: 2 threads, input [2, 1, 8, 8]"
    assert fields(headings)[-1] == "ratio"
    assert fields(own)[-1] == "12"
    assert [fields(line)[0] for line in (first, second)] == ["onnxruntime 1.2", "openvino 1.2"]
    assert all(float(fields(line)[-1]) < 1 for line in (first, second))


def test_facts(command: Command, library: Path, others: StandIns, onnx: Path) -> None:
    against = ("--against", "openvino", "--onnx", onnx, "--json")
    facts = json.loads(command("bench", library, *FIXED, *against).out)
    assert facts["version"] == rten_aot.__version__
    assert facts["threads"] == others.opened[0][2] >= 1
    assert facts["inputs"] == {"input": {"dtype": "float32", "shape": [2, 1, 8, 8]}}
    assert facts["load_average"] >= 0
    assert facts["seconds"]["runs"] == 6
    other = facts["against"]["openvino"]
    assert other["version"] == "1.2"
    assert other["own_seconds"] == facts["seconds"]
    ratio = other["seconds"]["median"] / facts["seconds"]["median"]
    assert other["ratio"] == pytest.approx(ratio)


def test_inputs_from_files(
    command: Command, library: Path, others: StandIns, onnx: Path, tmp_path: Path
) -> None:
    x = np.random.default_rng(1).random((3, 1, 8, 8), np.float32)
    np.save(tmp_path / "x.npy", x)
    words = ("--input", f"input={tmp_path / 'x.npy'}", "--runs", "5")
    assert command("bench", library, *words, "--against", "openvino", "--onnx", onnx).code == 0
    np.testing.assert_array_equal(others.feeds[0]["input"], x)


def test_the_real_thing(command: Command, source: Path, tmp_path: Path) -> None:
    path = tmp_path / "digits.onnx"
    assert command("export-onnx", source, path).code == 0
    against = ("--against", "onnxruntime", "--onnx", path, "--threads", "1")
    done = command("bench", source, *FIXED, *against)
    assert done.code == 0
    name, *_, runs, ratio = fields(done.out.splitlines()[-1])
    assert name.startswith("onnxruntime 1.")
    assert (runs, float(ratio) > 0) == ("6", True)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("--against onnxruntime", 2, "--against needs the model as ONNX: --onnx MODEL.onnx"),
        ("--onnx m.onnx", 2, "--onnx needs a runtime: --against onnxruntime or openvino"),
        ("--against onxruntime --onnx m", 2, '"onxruntime" is not known; did you mean'),
        ("--against tvm --onnx m", 2, '"tvm" is not known; choose from onnxruntime, openvino'),
        ("--dim batch=1 --against onnxruntime --onnx none.onnx", 1, "none.onnx: No such file"),
        ("", 1, 'input "input" has the free dimensions [batch, 1, 8, 8]'),
    ],
)
def test_wrong_words(command: Command, library: Path, words: str, code: int, message: str) -> None:
    done = command("bench", library, *words.split())
    assert (done.code, done.out) == (code, "")
    assert message in done.err
