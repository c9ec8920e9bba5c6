"""Operators under valgrind: no access outside a buffer, no use of values that were never written.

Every buffer is an allocation of its own, so that valgrind knows where it ends and what is in it.
Numbers are not compared: valgrind 3.19 takes scalar FMA to clear the other lanes.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import rten_aot
from rten_aot.codegen.program import Input, Output, Planned, Storage
from rten_aot.targets import get_machine
from tests.codegen.nets import build_program
from tests.memory.faults import leave_out, shift
from tests.memory.tables import one_of_each
from tests.support.cases import Case, Mode, convert, feeds, rten_dtype, write_directly
from tests.support.guard import guarded
from tests.support.raw_run import PROGRAM, pack, unpack

pytestmark = pytest.mark.sanitizer

# With the widest vectors that valgrind knows, and without FMA and masks.
TARGETS = ("x86-64-v3", "x86-64-v2")


def complaints(cases: Sequence[Case], mode: Mode, target: str, folder: Path) -> str:
    """What valgrind says to a model of these cases."""
    valgrind = shutil.which("valgrind")
    if valgrind is None or platform.machine() != "x86_64":
        pytest.skip("needs valgrind on x86-64")
    if not get_machine(target).runs_here():
        pytest.skip(f"this CPU is no {target}")
    write = convert if cases[0].rten is None else write_directly
    write(cases, mode, folder / "model.rten")
    with guarded():
        library = rten_aot.compile(folder / "model.rten", folder / "libmodel.so", target=target)
    program = build_program(folder, PROGRAM, library, "-Wl,-rpath,$ORIGIN")
    given = [x.astype(rten_dtype(x)) for x in feeds(cases, mode).values()]
    (folder / "in").write_bytes(b"".join(map(pack, given)))
    count = sum(case.outputs for case in cases)
    command = [valgrind, "--quiet", "--redzone-size=256", program]
    done = subprocess.run(
        [*command, folder / "in", folder / "out", str(count)],
        env={**os.environ, "RTEN_GUARD": "heap"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(list(unpack((folder / "out").read_bytes()))) == count
    return done.stderr


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("converted", [True, False], ids=["converted", "written"])
@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_one_case_of_each_operator(
    mode: Mode, converted: bool, target: str, tmp_path: Path
) -> None:
    cases = [case for case in one_of_each(mode) if (case.rten is None) == converted]
    assert complaints(cases, mode, target, tmp_path) == ""


SOFTMAX = Case("softmax", "Softmax", [np.ones((3, 4), np.float32)], [], {"axis": 1})


@pytest.mark.parametrize("offset", [-4, 4])
@pytest.mark.parametrize(
    ("kind", "complaint"),
    [(Input, "Invalid read"), (Output, "Invalid write"), (Planned, "Invalid write")],
)
def test_one_element_beside_a_buffer(
    kind: type[Storage],
    complaint: str,
    offset: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shift(monkeypatch, "softmax", kind, offset)
    assert complaint in complaints([SOFTMAX], "static", TARGETS[0], tmp_path)


def test_a_result_that_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, "softmax")
    assert "uninitialised byte" in complaints([SOFTMAX], "static", TARGETS[0], tmp_path)
