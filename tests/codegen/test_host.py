"""``rten_prepare``: sizes of buffers and outputs, and the first check that fails."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tvm import relax, tirx
from tvm.target import Target

from rten_aot.codegen.host import host_module
from rten_aot.codegen.objects import generate
from rten_aot.codegen.program import Program, SizeCheck
from rten_aot.dialect.broadcast import index
from tests.codegen.programs import program_of
from tests.passes.modules import Body, module, tensor

Prepare = Callable[[list[int]], tuple[int, list[int], list[int]]]

N, M = (tirx.Var(name, "int64") for name in "nm")


@pytest.fixture(scope="module")
def program() -> Program:
    """From (n, m) and (m) to (n, 3 * m) and (2, n)."""

    def build(b: Body, x: relax.Var, y: relax.Var) -> list[relax.Expr]:
        lines = b.call("relu", b.call("add", x, y))
        joined = b.call("concat", *[lines] * 3, axis=1)
        rows = b.call("reduce_sum", lines, axes=[1])
        rows = b.call("transpose", rows, axes=[1, 0])
        return [b.call("exp", joined), b.call("concat", rows, rows, axis=0)]

    checks = [
        SizeCheck(tirx.EQ(tirx.floormod(N, index(2)), index(0)), 0, "n is odd"),
        SizeCheck(M > 1, 1, "m is small"),
    ]
    return program_of(module(build, tensor("x", N, M), tensor("y", M)), {"main": checks})


@pytest.fixture(scope="module")
def prepare(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Prepare:
    """The function as machine code."""
    folder = tmp_path_factory.mktemp("host")
    functions = {"rten_prepare": host_module(program, None)["rten_prepare"]}
    target = Target({"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "mcpu": "x86-64"})
    library = linked(generate(functions, target, folder / "host.o"), folder / "host.so")
    function = ctypes.CDLL(str(library)).rten_prepare

    def call(syms: list[int]) -> tuple[int, list[int], list[int]]:
        sizes = (ctypes.c_int64 * len(program.buffers))()
        dims = (ctypes.c_int64 * 4)()
        failed = ctypes.c_int64()
        slots = (ctypes.c_int64 * program.slots)(*syms)
        assert function(slots, sizes, dims, ctypes.byref(failed)) == 0
        return failed.value, list(sizes), list(dims)

    return call


def linked(source: Path, library: Path) -> Path:
    command = [sys.executable, "-m", "ziglang", "cc", "-shared", "-rtlib=none"]
    subprocess.run(
        [*command, str(source), "-o", str(library)], check=True, capture_output=True, cwd="/"
    )
    return library


def test_sizes_follow_the_inputs(program: Program, prepare: Prepare) -> None:
    assert [str(v.name) for v in program.sizes] == ["n", "m"]
    for n, m in ((2, 3), (4, 5)):
        verdict, sizes, dims = prepare([n, m])
        assert verdict == 0
        assert dims == [n, 3 * m, 2, n]
        by_shape = {4 * n * m, 12 * n * m, 4 * n}
        assert set(sizes) <= by_shape
        assert len(sizes) == len(program.buffers)


def test_the_first_check_that_fails_is_named(prepare: Prepare) -> None:
    assert prepare([3, 3])[0] == 1
    assert prepare([2, 1])[0] == 2
    assert prepare([3, 1])[0] == 1


def test_sizes_that_overflow_are_marked(prepare: Prepare) -> None:
    _, sizes, _ = prepare([1 << 31, 1 << 31])
    assert -1 in sizes
    # One factor alone fits.
    assert 4 << 31 in sizes


def test_static_offsets_are_constants() -> None:
    def build(b: Body, x: relax.Var) -> relax.Expr:
        return b.call("exp", b.call("relu", x))

    program = program_of(module(build, tensor("x", 5, 7)))
    text = host_module(program, [128])["rten_main"].script()
    assert "128" in text


def test_nothing_is_stored_for_buffers_that_are_placed_already() -> None:
    """The runtime has no memory for their sizes."""

    def build(b: Body, x: relax.Var) -> relax.Expr:
        return b.call("exp", b.call("relu", x))

    checks = {"main": [SizeCheck(tirx.EQ(index(1), index(1)), 0, "holds")]}
    program = program_of(module(build, tensor("x", 5, 7)), checks)
    assert len(program.buffers) == 1
    assert "140" not in host_module(program, [0])["rten_prepare"].script()
    assert "140" in host_module(program, None)["rten_prepare"].script()
