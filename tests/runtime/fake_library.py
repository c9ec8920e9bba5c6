"""Builds a library around the model that fake_model.c writes by hand."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np

from rten_aot.codegen.link import link

SOURCE = Path(__file__).with_name("fake_model.c")

TRIPLE = f"{platform.machine()}-unknown-linux-gnu"

# The values of `mode` in fake_model.c.
(
    NORMAL,
    NESTED,
    DIVIDE,
    EXHAUST,
    MISFIT,
    SLOW,
    FORGET,
    BLOCKS,
    STOP,
    RAW_FAILURE,
    NAMELESS,
) = range(11)

WEIGHTS = np.array([1, 2, 3, -4], np.float32)


def build_fake(
    folder: Path,
    *,
    name: str = "fake.so",
    defines: dict[str, str] | None = None,
    objects: tuple[Path, ...] = (),
    **options: Any,
) -> Path:
    """The library ``folder/name``, of fake_model.c with macros defined."""
    folder.mkdir(exist_ok=True)
    text = "".join(f"#define {key} {value}\n" for key, value in (defines or {}).items())
    source = folder / f"{name}.c"
    source.write_text(text + SOURCE.read_text())
    output = folder / name
    link(list(objects), output, options.pop("triple", TRIPLE), c_sources=[source], **options)
    return output


def feed(batch: int = 3, *, mode: int = NORMAL, index: list[int] | None = None) -> dict[str, Any]:
    """Inputs of the model; rows of x with an odd number have a negative sum."""
    x = np.arange(batch * 4, dtype=np.float32).reshape(batch, 4) + 1
    x[1::2] *= -1
    return {
        "x": x,
        "index": np.array([0, -1] if index is None else index, np.int32),
        "mode": np.array(mode, np.int32),
        "scale": np.zeros(batch, np.uint8),
    }
