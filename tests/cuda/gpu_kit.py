"""Real models for a machine with a GPU and nothing else: ``python -m tests.cuda.gpu_kit DIR``.

The folder gets a library for each model with inputs and the answers of ONNX Runtime, a program, and
``run.sh``, which checks and times all of them there.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

import rten_aot
from rten_aot.cli.artifact import read_metadata
from rten_aot.codegen.link import _find_zig
from tests.support import models
from tests.support.models import CASES, Case
from tests.support.raw_run import pack

_PROGRAM = Path(__file__).with_name("gpu_kit.c")


def make(folder: Path, cases: list[Case], arch: str) -> None:
    """Write the files of the cases, for one architecture."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "program"
    words = ["cc", "-target", "x86_64-linux-gnu.2.17", "-O2", f"-I{rten_aot.get_include()}"]
    words += [str(_PROGRAM), "-ldl", "-lm", "-o", str(program)]
    subprocess.run([*_find_zig(), *words], check=True)
    lines = ["#!/bin/sh", 'cd "$(dirname "$0")"', "failed=0"]
    for case in cases:
        feed = case.inputs("realistic")
        inputs = models.rten_inputs(feed)
        library = folder / f"{case}.so"
        target = f"cuda -arch={arch}"
        rten_aot.compile(models.rten_path(case.model), library, target=target, shapes=case.shapes())
        names = [tensor["name"] for tensor in read_metadata(library)["inputs"]]
        (folder / f"{case}.in").write_bytes(b"".join(pack(inputs[name]) for name in names))
        wanted = models.reference(case.model, feed)
        (folder / f"{case}.want").write_bytes(b"".join(map(pack, wanted)))
        lines.append(f"./program ./{case}.so {case}.in {case}.want ${{1:-0.5}} || failed=1")
        print(f"{case}: {library.stat().st_size / 1e6:.1f} MB")
    script = folder / "run.sh"
    script.write_text("\n".join([*lines, "exit $failed", ""]))
    script.chmod(0o755)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.cuda.gpu_kit", description="Write models for a machine with a GPU."
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--models", nargs="*", metavar="NAME", help="by default all")
    args = parser.parse_args()
    wanted = [case for case in CASES if not args.models or case.model in args.models]
    make(args.folder, wanted, args.arch)


if __name__ == "__main__":
    main()
