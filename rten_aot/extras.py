"""Modules that need the compiler's packages: import them, or say how to install those."""

from __future__ import annotations

import importlib
from types import ModuleType

from rten_aot.errors import CompileError

_COMPILER_PACKAGES = frozenset({"flatbuffers", "tvm", "tvm_ffi", "ziglang"})
_VERIFY_PACKAGES = frozenset({"onnx", "onnxruntime"})


def import_compiler(module: str) -> ModuleType:
    """Import a module of the compiler.

    Raises:
        CompileError: the packages of the extra ``compiler`` are missing.
    """
    return _import(module, _COMPILER_PACKAGES, "the compiler is", "compiler")


def import_verify(module: str) -> ModuleType:
    """Import a module that works with ONNX.

    Raises:
        CompileError: the packages of the extra ``verify`` are missing.
    """
    return _import(module, _VERIFY_PACKAGES, "ONNX and ONNX Runtime are", "verify")


def import_peer(package: str) -> ModuleType:
    """Import a runtime that models are timed against.

    Raises:
        CompileError: it is not installed.
    """
    return _import(package, frozenset({package}), f"{package} is", "bench")


def _import(module: str, packages: frozenset[str], what: str, extra: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as err:
        if (err.name or "").partition(".")[0] not in packages:
            raise
        raise CompileError(
            f'{what} not installed (no module "{err.name}")',
            hint=f'pip install "rten-aot[{extra}]"',
        ) from err
