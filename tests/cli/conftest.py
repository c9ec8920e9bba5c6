"""A command line to call in this process, with stand-ins for the compiler and a loaded model."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import rten_aot
from rten_aot.cli import main
from rten_aot.runtime import TensorInfo


@dataclass
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Command:
    def call(*words: str | Path) -> Outcome:
        try:
            code = main([str(word) for word in words])
        except SystemExit as stop:  # argparse ends --help that way
            code = int(stop.code or 0)
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@dataclass
class FakeDriver:
    """Stands in for the compiler: writes a file, and remembers what it was asked for."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    error: BaseException | None = None

    def compile(self, model: Path, output: Path, **options: Any) -> Path:
        self.calls.append({"model": model, "output": output, **options})
        options["progress"]("importing", 0.0)
        options["progress"]("scheduling", 1.25)
        if options["explain"] is not None:
            options["explain"]("fold-batch-norm: 3 folded")
        if self.error is not None:
            raise self.error
        output.write_bytes(bytes(1500))
        return output

    @property
    def options(self) -> dict[str, Any]:
        (call,) = self.calls
        return call


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake = FakeDriver()
    module = ModuleType("rten_aot.driver")
    module.compile = fake.compile  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rten_aot.driver", module)
    return fake


@dataclass
class FakeModel:
    """Stands in for a loaded model; answers with prepared outputs."""

    inputs: list[TensorInfo]
    answers: dict[str, npt.NDArray[Any]]
    given: dict[str, npt.NDArray[Any]] | None = None
    num_threads: int | None = None
    error: BaseException | None = None

    def run(self, inputs: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        self.given = inputs
        if self.error is not None:
            raise self.error
        return self.answers


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> FakeModel:
    fake = FakeModel(
        [TensorInfo("x", "float32", (1, "h", None)), TensorInfo("a=b/c", "int32", ())],
        {"y/z": np.array([[1, 2, 3, 4, 6]], np.float32), "file": np.array(7, np.int32)},
    )

    def load(path: str | Path, *, num_threads: int | None = None) -> FakeModel:
        fake.num_threads = num_threads
        return fake

    monkeypatch.setattr(rten_aot, "load", load, raising=False)
    return fake
