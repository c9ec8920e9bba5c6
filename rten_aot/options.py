"""The closed sets of choices that a compilation has; imports nothing else of the package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

Emit: TypeAlias = Literal["lib", "relax", "tir", "llvm", "asm", "obj", "header"]
"""What a compilation writes: the shared library, or a stage on the way to it."""

SUFFIXES: Mapping[Emit, str] = {
    "lib": ".so",
    "relax": ".relax",
    "tir": ".tir",
    "llvm": ".ll",
    "asm": ".s",
    "obj": ".o",
    "header": ".h",
}
"""The suffix of the file that each choice writes by default."""

OPT_LEVELS = (0, 1, 2, 3)
"""Optimisation levels, from the fastest compilation to the fastest model."""


def default_output(model: str | Path, emit: Emit = "lib") -> Path:
    """Where a compilation writes if not told: beside the model, ``.rten`` replaced by the suffix.

    A name that does not end in ``.rten`` keeps its own suffix, so that the model is never
    overwritten.
    """
    path = Path(model)
    stem = path.stem if path.suffix.lower() == ".rten" else path.name
    return path.with_name(stem + SUFFIXES[emit])
