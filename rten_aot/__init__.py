"""rten-aot: an ahead-of-time compiler for RTen models.

Importing this package loads neither TVM nor NumPy; ``compile`` and ``load`` do when they are used.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rten_aot.errors import (
        CompileError,
        LinkError,
        ModelFormatError,
        ShapeError,
        TargetError,
        UnsupportedOpError,
    )
    from rten_aot.options import Emit, Libc, Weights
    from rten_aot.runtime import load
    from rten_aot.runtime.errors import InputError, ModelLoadError, ModelRunError

__version__ = "0.1.0"

__all__ = [
    "CompileError",
    "InputError",
    "LinkError",
    "ModelFormatError",
    "ModelLoadError",
    "ModelRunError",
    "ShapeError",
    "TargetError",
    "UnsupportedOpError",
    "__version__",
    "compile",
    "get_include",
    "load",
]

# In a checkout, passes/ and targets/ lie beside this folder; in an installed package, inside it.
_root = Path(__file__).resolve().parents[1]
if (_root / "pyproject.toml").is_file():
    __path__.append(str(_root))

_HOMES: Mapping[str, str] = {
    "CompileError": "rten_aot.errors",
    "InputError": "rten_aot.runtime.errors",
    "LinkError": "rten_aot.errors",
    "ModelFormatError": "rten_aot.errors",
    "ModelLoadError": "rten_aot.runtime.errors",
    "ModelRunError": "rten_aot.runtime.errors",
    "ShapeError": "rten_aot.errors",
    "TargetError": "rten_aot.errors",
    "UnsupportedOpError": "rten_aot.errors",
    "load": "rten_aot.runtime",
}


def compile(
    model: str | Path,
    output: str | Path | None = None,
    *,
    target: str = "llvm",
    shapes: Mapping[str, Sequence[int | str | None]] | None = None,
    dims: Mapping[str, int] | None = None,
    opt_level: int = 3,
    emit: Emit = "lib",
    explain: Callable[[str], None] | None = None,
    progress: Callable[[str, float], None] | None = None,
    symbol_prefix: str | None = None,
    libc: Libc | None = None,
    profile: bool = False,
    db: str | Path | None = None,
    warn: Callable[[str], None] | None = None,
    weights: Weights = "fp32",
) -> Path:
    """Compile a .rten model to a shared library that needs neither TVM nor Python.

    Args:
        model: path of the .rten file.
        output: path of the file to write; by default the model's own with another suffix.
        target: a name that ``rten-aot targets`` lists, or ``llvm`` with options, as in
            ``llvm -mcpu=native`` (this machine) or ``llvm -mtriple=… -mcpu=… -mattr=+a,-b``. Names
            joined by commas make a library with code for each, which takes the best that the CPU
            can run.
        shapes: by input name, a shape that replaces the model's: sizes, dimension names, or None
            for a size that stays free.
        dims: by dimension name, a size to fix it at.
        opt_level: 0 (compile fast) to 3 (run fast).
        emit: what to write: ``lib`` is the shared library (for ``wasm32`` a module); ``static`` an
            archive to link into a program, with its header beside it; the others are stages on the
            way.
        explain: takes the lines that say what the optimiser did and what it refused, and why.
        progress: called at the start of each stage with its name and the seconds passed so far.
        symbol_prefix: what the library's C functions begin with, in place of ``rten_aot``.
        libc: the C library that the library is for, ``glibc`` (the default for the named targets)
            or ``musl``.
        profile: have the library time its kernels, for ``rten-aot profile``.
        db: a file that ``rten-aot tune`` made for this target, whose choices are used.
        warn: takes lines about records in it that are not used; by default they are warnings.
        weights: how the library stores large float32 weights: as they are, or rounded to float16
            (``fp16``, at ``opt_level`` 3) where that costs no more than float16's precision. Either
            way numbers are computed in float32.

    Returns:
        The path of the file written.

    Raises:
        CompileError: the model cannot be compiled as asked, or the compiler is not installed.
        OSError: a file cannot be read or written.
    """
    from rten_aot.extras import import_compiler

    driver = import_compiler("rten_aot.driver")
    path: Path = driver.compile(
        model,
        output,
        target=target,
        shapes=shapes,
        dims=dims,
        opt_level=opt_level,
        emit=emit,
        explain=explain,
        progress=progress,
        symbol_prefix=symbol_prefix,
        libc=libc,
        profile=profile,
        db=db,
        warn=warn,
        weights=weights,
    )
    return path


def get_include() -> str:
    """The folder that holds ``rten_aot.h``, the C interface of a compiled model."""
    return str(Path(__file__).resolve().parent / "include")


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
