"""Modules that need the compiler's packages: import them, or say how to install those."""

from __future__ import annotations

import importlib
from types import ModuleType

from rten_aot.errors import CompileError

_COMPILER_PACKAGES = frozenset({"flatbuffers", "tvm", "tvm_ffi", "ziglang"})


def import_compiler(module: str) -> ModuleType:
    """Import a module of the compiler.

    Raises:
        CompileError: the packages of the extra ``compiler`` are missing.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as err:
        if (err.name or "").partition(".")[0] not in _COMPILER_PACKAGES:
            raise
        raise CompileError(
            f'the compiler is not installed (no module "{err.name}")',
            hint='pip install "rten-aot[compiler]"',
        ) from err
