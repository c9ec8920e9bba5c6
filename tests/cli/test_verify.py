"""``rten-aot verify`` on the example network, right and made wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rten_aot import ModelRunError, driver
from rten_aot.cli import verify
from rten_aot.cli.arrays import Array
from rten_aot.format import Constant, Graph, Model, OpNode, Value
from rten_aot.runtime import TensorInfo
from tests.cli.conftest import Command
from tests.support.rten_writer import write_model


@pytest.fixture
def digits(root: Path) -> Path:
    return root / "examples/digits/digits.rten"


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """exp(-x + k): an operator to be put wrong, and one before and one after it."""
    nodes = (
        Value("x", ("n",), "float32"),
        Constant("k", np.array([0.5], np.float32)),
        Value("minus", None, None),
        OpNode("first", "Neg", (0,), (2,)),
        Value("sum", None, None),
        OpNode("second", "Add", (2, 1), (4,)),
        Value("y", ("n",), "float32"),
        OpNode("third", "Exp", (4,), (6,)),
    )
    return write_model(Graph(nodes, (0,), (6,)), tmp_path / "chain.rten")


def test_equal(command: Command, digits: Path) -> None:
    done = command("verify", digits, "--dim", "batch=3", "--threads", "1")
    assert (done.code, done.err) == (0, "")
    row, verdict = done.out.splitlines()
    assert row.split()[:5] == ["probabilities", "float32", "[3,", "10]", "equal"]
    assert verdict == "equal to ONNX Runtime (tolerance 0.0001)"


def test_weights_in_fp16(command: Command, digits: Path) -> None:
    done = command("verify", digits, "--weights", "fp16", "--threads", "1")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1] == "equal to ONNX Runtime (tolerance 0.05)"
    words = ["--weights", "fp16", "--tolerance", "0.0001"]
    assert "DIFFERENT" in command("verify", digits, *words).out


def test_inputs_from_files(command: Command, chain: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(5, np.float32))
    assert command("verify", chain, "--input", f"x={tmp_path / 'x.npy'}", "-O1").code == 0
    np.savez(tmp_path / "x.npz", x=np.ones(5, np.float32))
    assert command("verify", chain, "--inputs", tmp_path / "x.npz", "-O1").code == 0
    np.savez(tmp_path / "y.npz", y=np.ones(5, np.float32))
    done = command("verify", chain, "--inputs", tmp_path / "y.npz", "-O1")
    assert done.code == 1
    assert 'the model has no input "y"' in done.err


def test_the_first_wrong_operator_is_named(
    command: Command, chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = driver.compile

    def wrong(model: Model, *args: Any, **options: Any) -> Path:
        """Compiles the model with another constant."""
        nodes = [
            Constant(n.name, n.data + np.float32(1)) if isinstance(n, Constant) else n
            for n in model.graph.nodes
        ]
        graph = Graph(nodes, model.graph.inputs, model.graph.outputs)
        return right(Model(graph, model.format, model.sha256), *args, **options)

    monkeypatch.setattr(driver, "compile", wrong)
    done = command("verify", chain, "-O1")
    assert (done.code, done.err) == (1, "")
    row, looking, first, error, place = done.out.splitlines()
    assert row.split()[:4] == ["y", "float32", "[n]", "DIFFERENT"]
    assert looking.startswith("different from ONNX Runtime")
    assert first == 'first difference: output 0 of node "second" (Add)'
    assert error.startswith("  worst error 1, ")
    assert place.startswith("  at [0]: ")
    # The tolerance decides.
    assert command("verify", chain, "-O1", "--tolerance", "9").code == 0


def test_a_search_that_fails(
    command: Command, chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Model] = []

    def run(engine: verify._Engine, model: Model) -> Sequence[Array]:
        runs.append(model)
        if len(runs) > 1:
            raise ModelRunError("out of memory")
        engine.inputs = [np.ones(1, np.float32)]
        engine.outputs = [TensorInfo("y", "float32", ("n",))]
        return [np.zeros(2, np.float32)]

    monkeypatch.setattr(verify._Engine, "run", run)
    done = command("verify", chain)
    assert done.code == 1
    row, *_, last = done.out.splitlines()
    assert row.endswith("DIFFERENT  shape [2], not [1]")
    assert last == "it cannot be found: out of memory"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tolerance", "x"], '"x" is not a number of at least 0'),
        (["--tolerance", "nan"], '"nan" is not a number of at least 0'),
        (["--dim", "n=1", "--dim", "n=2"], '"n" is given twice'),
        (["--shapes", "x=1"], 'unknown option "--shapes"; did you mean "--shape"?'),
    ],
)
def test_wrong_usage(command: Command, chain: Path, words: list[str], message: str) -> None:
    done = command("verify", chain, *words)
    assert done.code == 2
    assert message in done.err
