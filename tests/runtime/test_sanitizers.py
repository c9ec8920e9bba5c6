"""The native runtime under the sanitizers of a system compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rten_aot.codegen.link import NATIVE
from rten_aot.runtime import abi

HERE = Path(__file__).parent
INCLUDE = Path(abi.__file__).parents[1] / "include"

pytestmark = pytest.mark.sanitizer


@pytest.mark.parametrize("profile", [False, True])
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_many_threads_and_handles(tmp_path: Path, sanitizer: str, profile: bool) -> None:
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs gcc or clang")
    program = tmp_path / "stress"
    sources = [HERE / "stress.c", HERE / "fake_model.c", *sorted(NATIVE.glob("*.c"))]
    subprocess.run(
        [
            *(compiler, "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror"),
            *(["-DRTEN_PROFILE"] if profile else []),
            *(f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", f"-I{INCLUDE}"),
            *(f"-I{NATIVE}", *map(str, sources), "-lm", "-lpthread", "-o", str(program)),
        ],
        check=True,
    )
    options = "halt_on_error=1:allocator_may_return_null=1"
    done = subprocess.run(
        [str(program)],
        env={**os.environ, "TSAN_OPTIONS": options, "ASAN_OPTIONS": options},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
