"""``rten-aot ops`` and ``rten-aot targets``."""

from __future__ import annotations

from dataclasses import replace

from rten_aot import targets
from rten_aot.cli import ops
from rten_aot.importer.registry import OpSpec
from tests.cli.conftest import Command


def spec(name: str, required: int, maximum: int | None, limits: str = "") -> OpSpec:
    return OpSpec(name, lambda: None, required, maximum or required, maximum is None, limits)


SPECS = {
    "Add": spec("Add", 2, 2),
    "Concat": spec("Concat", 1, None),
    "Conv": spec("Conv", 2, 3, "no 4-D kernels"),
    "Tile": replace(spec("Tile", 2, 2), types=("float32", "int32"), data_dependent=True),
}


def test_markdown() -> None:
    lines = ops.markdown(SPECS).splitlines()
    assert lines[0].startswith("4 of the ")
    assert lines[0].endswith(" operators of the .rten format.")
    assert "| Add | 2 | all | fixed, free | |" in lines
    assert "| Concat | 1 or more | all | fixed, free | |" in lines
    assert "| Conv | 2 to 3 | all | fixed, free | no 4-D kernels |" in lines
    assert "| Tile | 2 | float32, int32 | fixed, free, computed | |" in lines
    assert "| Relu | | | | not supported |" in lines


def test_ops(command: Command) -> None:
    done = command("ops")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].split() == ["operator", "inputs", "types", "sizes", "limits"]
    assert lines[-1].endswith(" operators of the .rten format.")
    assert command("ops", "--markdown").out.splitlines()[0] == lines[-1]


def test_targets(command: Command) -> None:
    done = command("targets")
    assert (done.code, done.err) == (0, "")
    first, *lines = done.out.splitlines()
    assert first.split()[:3] == ["target", "CPU", "what"]
    assert [line.split()[0] for line in lines] == list(targets.names())
    (board,) = (line for line in lines if line.startswith("raspberry-pi-5 "))
    assert board.split()[1] == "cortex-a76"
    assert "64-bit system, 4 cores" in board
    assert board.endswith("  dotprod, fullfp16, lse, rcpc, rdm")
    assert next(line for line in lines if line.startswith("wasm32 ")).endswith("  -")
