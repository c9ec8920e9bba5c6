"""The driver's functions as the runtime declares them, against NVIDIA's own header."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

from rten_aot.codegen.link import NATIVE, _find_zig

HEADER = NATIVE / "cuda_driver.h"


def include() -> Path:
    """The folder of cuda.h; the test is skipped where its package is not installed."""
    try:
        spec = importlib.util.find_spec("nvidia.cuda_runtime")
    except ModuleNotFoundError:
        spec = None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if Path(folder, "include", "cuda.h").is_file():
            return Path(folder, "include")
    pytest.skip("the package nvidia-cuda-runtime-cu12 is not installed")


def test_functions_and_constants(tmp_path: Path) -> None:
    text = HEADER.read_text()
    functions = re.search(r"#define RTEN_CUDA_FUNCTIONS.*?(?=\n\n)", text, re.DOTALL)
    constants = re.findall(r"^  (CU\w+) = (\d+)", text, re.M)
    assert functions
    assert len(constants) > 8
    source = tmp_path / "check.c"
    source.write_text(
        "#include <cuda.h>\n#include <stdint.h>\n"
        f"{functions[0]}\n"
        "#define MEMBER(name, symbol, parameters) CUresult(*name) parameters;\n"
        "#define ASSIGN(name, symbol, parameters) driver->name = symbol;\n"
        "typedef struct { RTEN_CUDA_FUNCTIONS(MEMBER) } functions;\n"
        "void check(functions *driver) { RTEN_CUDA_FUNCTIONS(ASSIGN) }\n"
        + "".join(f'_Static_assert({name} == {value}, "{name}");\n' for name, value in constants)
    )
    done = subprocess.run(
        [*_find_zig(), "cc", "-c", f"-I{include()}", str(source), "-o", str(tmp_path / "check.o")],
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    # Where the header has an enum, the runtime has an int, which is passed alike.
    wrong = [e for e in errors if "incompatible function pointer" not in e or "enum CU" not in e]
    assert not wrong, "\n".join(wrong)
