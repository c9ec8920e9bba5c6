"""Weights beyond the reach of 32-bit offsets: a table of 2.2 GB, nearly all of it holes."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

import rten_aot
from rten_aot.codegen.elf import read_library
from tests.codegen.nets import run_python
from tests.support.rten_writer import encode

pytestmark = pytest.mark.slow

WIDTH = 1 << 16
ROWS = 8600
LAST = 12345.0
SPACE = 8 << 30

RUN = """
import sys, numpy, rten_aot.runtime
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
before = resident()
model = rten_aot.runtime.load(sys.argv[1], num_threads=2)
rows = numpy.array([0, 1, -1], numpy.int32)
chosen, doubled = model(rows)
print(resident() - before, *chosen[:, -1].tolist(), *doubled.tolist())
"""


def write_sparse(path: Path) -> None:
    """Gather and Add on a table whose first and last elements of row 0, 1 and the last are set.

    As a file of version 2, whose tensor data lie outside of the FlatBuffers part.
    """
    tensors = [
        {"name": "rows", "data": ("ValueNode", {"shape": [{"name": "n"}], "dtype": "Int32"})},
        {
            "name": "table",
            "data": (
                "ConstantNode",
                {"shape": [ROWS, WIDTH], "dtype": "Float32", "data_offset": 64},
            ),
        },
        {
            "name": "tail",
            "data": (
                "ConstantNode",
                {"shape": [4], "dtype": "Float32", "data_offset": 64 + 4 * ROWS * WIDTH},
            ),
        },
        {"name": "chosen", "data": ("ValueNode", {})},
        {
            "name": "gather",
            "data": (
                "OperatorNode",
                {
                    "type": "Gather",
                    "attrs": ("GatherAttrs", {"axis": 0}),
                    "inputs": [1, 0],
                    "outputs": [3],
                },
            ),
        },
        {"name": "kept", "data": ("ValueNode", {})},
        {
            "name": "gather_tail",
            "data": (
                "OperatorNode",
                {
                    "type": "Gather",
                    "attrs": ("GatherAttrs", {"axis": 0}),
                    "inputs": [2, 0],
                    "outputs": [5],
                },
            ),
        },
    ]
    graph = {"nodes": tensors, "inputs": [0], "outputs": [3, 5]}
    model = encode({"schema_version": 1, "graph": graph})
    start = -(-(32 + len(model)) // 64) * 64
    with open(path, "wb") as file:
        file.write(struct.pack("<4sIQQQ", b"RTEN", 2, 32, len(model), start) + model)
        table = start + 64
        for row, value in ((0, 1.0), (1, 2.0), (ROWS - 1, LAST)):
            file.seek(table + 4 * (row * WIDTH + WIDTH - 1))
            file.write(np.float32(value).tobytes())
        file.seek(table + 4 * ROWS * WIDTH)
        file.write(np.array([5, 6, 7, 8], np.float32).tobytes())


def test_two_gigabytes(tmp_path: Path) -> None:
    if shutil.disk_usage(tmp_path).free < SPACE:
        pytest.skip("needs 8 GB of disk space")
    model = tmp_path / "large.rten"
    write_sparse(model)
    library = rten_aot.compile(model, target="llvm -mcpu=native")
    model.unlink()
    assert library.stat().st_size > 4 * ROWS * WIDTH > 1 << 31
    assert "rten_aot_run" in read_library(library).exports
    by_run, *values = map(float, run_python(RUN, library).split())
    assert values == [1, 2, LAST, 5, 6, 8]
    assert by_run < 32e6
    library.unlink()
