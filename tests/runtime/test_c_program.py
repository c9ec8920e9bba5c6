"""Programs in C: the example, and a thorough one on other CPUs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rten_aot.codegen.link import _find_zig, link
from rten_aot.codegen.platforms import platform_of
from rten_aot.runtime import abi
from tests.runtime.fake_library import TRIPLE, build_fake

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
INCLUDE = Path(abi.__file__).parents[1] / "include"


def build_program(folder: Path, sources: list[Path], library: Path, *options: str) -> Path:
    program = folder / "program"
    done = subprocess.run(
        [
            *(*_find_zig(), "cc", *options, "-std=c99", "-D_GNU_SOURCE", "-O1", "-Wall"),
            *("-Wextra", "-Werror", f"-I{INCLUDE}", *map(str, sources), str(library)),
            *(f"-Wl,-rpath,{library.parent}", "-lm", "-lpthread", "-o", str(program)),
        ],
        cwd=folder,
        env={**os.environ, "ZIG_LOCAL_CACHE_DIR": str(folder / "zig")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return program


def test_example(tmp_path: Path) -> None:
    library = tmp_path / "libdigits.so"
    link([], library, TRIPLE, c_sources=[HERE / "fake_digits.c"])
    program = build_program(tmp_path, [EXAMPLES / "c" / "main.c"], library)
    picture = EXAMPLES / "digits" / "seven.pgm"
    done = subprocess.run([program, picture], capture_output=True, text=True, check=True)
    header, pixels = picture.read_bytes()[:13], picture.read_bytes()[13:]
    assert header == b"P5 64 64 255\n"
    found = re.fullmatch(r"7 \((\d+\.\d) %\)\n", done.stdout)
    assert found is not None
    assert abs(float(found[1]) - 100 * sum(pixels) / 255 / 64**2) < 0.11
    wrong = subprocess.run([program, HERE], capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stderr) == (1, "digits: expected a PGM picture\n")


def test_many_threads_and_handles(tmp_path: Path) -> None:
    program = build_program(tmp_path, [HERE / "stress.c"], build_fake(tmp_path))
    subprocess.run([program], check=True, timeout=120)


@pytest.mark.emulated
@pytest.mark.parametrize(
    ("triple", "emulator", "root"),
    [
        ("aarch64-unknown-linux-gnu", "qemu-aarch64", "aarch64-linux-gnu"),
        ("armv7-unknown-linux-gnueabihf", "qemu-arm", "arm-linux-gnueabihf"),
        ("riscv64-unknown-linux-gnu", "qemu-riscv64", "riscv64-linux-gnu"),
    ],
)
def test_on_other_cpus(tmp_path: Path, triple: str, emulator: str, root: str) -> None:
    found = shutil.which(f"{emulator}-static") or shutil.which(emulator)
    if found is None or not Path("/usr", root).is_dir():
        pytest.skip(f"needs {emulator} and a C library in /usr/{root}")
    library = build_fake(tmp_path, triple=triple)
    program = build_program(tmp_path, [HERE / "stress.c"], library, *platform_of(triple).zig)
    command = [found, "-L", f"/usr/{root}", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.emulated
def test_missing_feature_on_another_cpu(tmp_path: Path) -> None:
    found = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if found is None or not Path("/usr/aarch64-linux-gnu").is_dir():
        pytest.skip("needs qemu-aarch64 and a C library in /usr/aarch64-linux-gnu")
    source = tmp_path / "main.c"
    source.write_text(
        """
        #include <stdio.h>
        #include "rten_aot.h"
        int main(void) {
          rten_aot_model *model;
          int code = rten_aot_create(NULL, &model);
          puts(rten_aot_error());
          return code;
        }
        """
    )
    features = '"neon", "dotprod", "sve", "i8mm"'
    triple = "aarch64-unknown-linux-gnu"
    library = build_fake(tmp_path, triple=triple, defines={"FEATURES": features})
    program = build_program(tmp_path, [source], library, *platform_of(triple).zig)
    command = [found, "-L", "/usr/aarch64-linux-gnu", "-cpu", "cortex-a72", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == abi.UNSUPPORTED_DEVICE
    assert "this CPU lacks the features dotprod, sve, i8mm, which" in done.stdout
