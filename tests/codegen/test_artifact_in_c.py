"""Artifacts in C programs: the example, objects that are linked in, other names, another CPU."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import rten_aot
from rten_aot.codegen.elf import read_library
from tests.codegen.nets import Array, build_program, expected, write_net

NATIVE = "llvm -mcpu=native"
PROGRAM = Path(__file__).with_name("run_net.c")
QEMU = shutil.which("qemu-aarch64-static")
CROSS = Path("/usr/aarch64-linux-gnu")


def inputs() -> dict[str, Array]:
    """What run_net.c feeds the net with."""
    image = (np.arange(2 * 3 * 8 * 8) % 17).astype(np.float32) / 8 - 1
    return {"image": image.reshape(2, 3, 8, 8), "rows": np.array([3, -1, 0], np.int32)}


def check(printed: str) -> None:
    want = np.concatenate([array.ravel() for array in expected(inputs()).values()])
    got = np.array([float(line) for line in printed.split()])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def output_of(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_net(tmp_path_factory.mktemp("source") / "net.rten")


def test_the_example(root: Path, tmp_path: Path) -> None:
    examples = root / "examples"
    library = rten_aot.compile(
        examples / "digits" / "digits.rten", tmp_path / "libdigits.so", target=NATIVE
    )
    program = build_program(tmp_path, examples / "c" / "main.c", library, "-Wl,-rpath,$ORIGIN")
    assert output_of(program, examples / "digits" / "seven.pgm").startswith("7 (")


def test_an_object_is_linked_into_the_program(source: Path, tmp_path: Path) -> None:
    made = rten_aot.compile(source, tmp_path / "net.o", target=NATIVE, emit="obj")
    program = build_program(tmp_path, PROGRAM, made, '-DHEADER="rten_aot.h"')
    check(output_of(program))


def test_two_models_in_one_program(source: Path, tmp_path: Path) -> None:
    """Objects with names of their own; the header for each is made too."""
    objects = []
    for prefix in ("first", "second"):
        out = tmp_path / f"{prefix}.o"
        objects.append(
            rten_aot.compile(source, out, target=NATIVE, emit="obj", symbol_prefix=prefix)
        )
        header = tmp_path / f"{prefix}.h"
        rten_aot.compile(source, header, emit="header", symbol_prefix=prefix)
    for prefix in ("first", "second"):
        names = (f"-DPREFIX={prefix}", f'-DHEADER="{prefix}.h"', f"-I{tmp_path}")
        check(output_of(build_program(tmp_path, PROGRAM, *objects, *names)))


def test_a_library_with_another_prefix(source: Path, tmp_path: Path) -> None:
    library = rten_aot.compile(
        source, tmp_path / "libnet.so", target=NATIVE, symbol_prefix="my_net"
    )
    assert all(name.startswith("my_net_") for name in read_library(library).exports)
    got = rten_aot.load(library).run(inputs())
    check("\n".join(str(x) for array in got.values() for x in array.ravel()))
    rten_aot.compile(source, tmp_path / "my_net.h", emit="header", symbol_prefix="my_net")
    names = ("-DPREFIX=my_net", '-DHEADER="my_net.h"', f"-I{tmp_path}", "-Wl,-rpath,$ORIGIN")
    check(output_of(build_program(tmp_path, PROGRAM, library, *names)))


@pytest.mark.emulated
@pytest.mark.parametrize("target", ["llvm -mtriple=aarch64-linux-gnu", "cortex-a72"])
@pytest.mark.parametrize("emit", ["lib", "obj"])
def test_another_cpu(
    source: Path, target: str, emit: Literal["lib", "obj"], tmp_path: Path
) -> None:
    if QEMU is None or not CROSS.is_dir():
        pytest.skip("needs qemu-user-static and libc6-arm64-cross")
    out = tmp_path / ("libnet.so" if emit == "lib" else "net.o")
    made = rten_aot.compile(source, out, target=target, emit=emit)
    if emit == "lib":
        assert read_library(made).machine == "aarch64"
        with pytest.raises(rten_aot.ModelLoadError, match="was compiled for aarch64"):
            rten_aot.load(made)
    names = ('-DHEADER="rten_aot.h"', "-Wl,-rpath,$ORIGIN")
    program = build_program(tmp_path, PROGRAM, made, *names, target="aarch64-linux-gnu.2.17")
    check(output_of(QEMU, "-L", CROSS, program))
