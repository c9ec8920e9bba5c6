"""Real models compiled for other CPUs and run under emulation, against ONNX Runtime."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import rten_aot
from rten_aot.format import read_model
from rten_aot.runtime import abi
from tests.codegen.nets import build_program
from tests.models.conftest import available
from tests.models.test_end_to_end import assert_matches
from tests.support import models
from tests.support.model_feeds import Array
from tests.support.models import Case

pytestmark = [pytest.mark.emulated]

PROGRAM = Path(__file__).with_name("run_raw.c")


class Emulated(NamedTuple):
    """A CPU: its name for the compiler and for zig, the emulator, the folder of its C library."""

    target: str
    zig: str
    emulator: str
    libraries: str


CPUS = [
    Emulated("aarch64", "aarch64-linux-gnu.2.17", "qemu-aarch64-static", "aarch64-linux-gnu"),
    Emulated("armv7", "arm-linux-gnueabihf.2.17", "qemu-arm-static", "arm-linux-gnueabihf"),
]
CASES = [
    Case("mtcnn_onet", (3, 48, 48, 3)),
    Case("ppocr_cls", (1, 3, 48, 192)),
    Case("silero", (1, 576)),
    Case("minilm", (1, 16)),
]


@pytest.mark.parametrize("cpu", CPUS, ids=lambda cpu: cpu.target)
@pytest.mark.parametrize("free", [False, True], ids=["fixed", "free"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_emulated(case: Case, free: bool, cpu: Emulated, tmp_path: Path) -> None:
    emulator, libraries = shutil.which(cpu.emulator), Path("/usr", cpu.libraries)
    if emulator is None or not libraries.is_dir():
        pytest.skip(f"needs {cpu.emulator} and the C library for {cpu.libraries}")
    library = rten_aot.compile(
        available(case.model),
        tmp_path / "libmodel.so",
        target=cpu.target,
        shapes=None if free else case.shapes(),
    )
    program = build_program(tmp_path, PROGRAM, library, "-Wl,-rpath,$ORIGIN", target=cpu.zig)
    feed = case.inputs("realistic")
    want = models.reference(case.model, feed)
    given = models.rten_inputs(feed)
    graph = read_model(available(case.model)).graph
    (tmp_path / "in").write_bytes(b"".join(pack(given[graph.nodes[i].name]) for i in graph.inputs))
    done = subprocess.run(
        [emulator, "-L", libraries, program, tmp_path / "in", tmp_path / "out", str(len(want))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert_matches(list(unpack((tmp_path / "out").read_bytes())), want)


def pack(array: Array) -> bytes:
    """A tensor as run_raw.c reads it."""
    head = [*abi.DTYPES[array.dtype.name], array.ndim, *array.shape]
    return np.array(head, np.int64).tobytes() + array.tobytes()


def unpack(data: bytes) -> Iterator[Array]:
    """The tensors that run_raw.c wrote."""
    names = {kind: name for name, kind in abi.DTYPES.items()}
    at = 0

    def numbers(count: int) -> list[int]:
        nonlocal at
        at += 8 * count
        return [int(n) for n in np.frombuffer(data, np.int64, count, at - 8 * count)]

    while at < len(data):
        code, bits, rank = numbers(3)
        shape = numbers(rank)
        count = int(np.prod(shape))
        yield np.frombuffer(data, names[code, bits], count, at).reshape(shape)
        at += count * bits // 8
