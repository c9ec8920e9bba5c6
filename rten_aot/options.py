"""The closed sets of choices that a compilation has; imports nothing else of the package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias, get_args

Emit: TypeAlias = Literal["lib", "relax", "tir", "llvm", "asm", "cuda", "obj", "static", "header"]
"""What a compilation writes: the library that is loaded, the same to be linked into a program
("static", "obj"), or a stage on the way to it."""

Libc: TypeAlias = Literal["glibc", "musl"]
"""The C libraries that Linux systems have."""

Weights: TypeAlias = Literal["fp32", "fp16"]
"""How float32 weights are stored; numbers are computed in float32 with both."""

SUFFIXES: Mapping[Emit, str] = {
    "lib": ".so",
    "relax": ".relax",
    "tir": ".tir",
    "llvm": ".ll",
    "asm": ".s",
    "cuda": ".cu",
    "obj": ".o",
    "static": ".a",
    "header": ".h",
}
"""The suffix of the file that each choice writes by default."""

LIBCS: tuple[Libc, ...] = get_args(Libc)

WEIGHTS: tuple[Weights, ...] = get_args(Weights)

OPT_LEVELS = (0, 1, 2, 3)
"""Optimisation levels, from the fastest compilation to the fastest model."""


def default_output(model: str | Path, emit: Emit = "lib", target: str = "llvm") -> Path:
    """Where a compilation writes if not told: beside the model, ``.rten`` replaced by the suffix.

    A name that does not end in ``.rten`` keeps its own suffix, so that the model is never
    overwritten. For a target that names WebAssembly the library is a module, ``.wasm``.
    """
    path = Path(model)
    stem = path.stem if path.suffix.lower() == ".rten" else path.name
    wasm = emit == "lib" and "wasm32" in target
    return path.parent / (stem + (".wasm" if wasm else SUFFIXES[emit]))
