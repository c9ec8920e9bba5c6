"""Compiled models that touch nothing but their own memory, or die trying.

Inside ``guarded`` every input, output, workspace buffer and weight of a model lies alone between
pages that cannot be accessed: at the end of its pages, so that one element too far is a fault, and
once more at their start. Every run is rehearsed in a fork of the process, which a fault ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import math
import mmap
import os
import shutil
import signal
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import rten_aot
from rten_aot.codegen import build, link
from rten_aot.codegen.linearise import build_program
from rten_aot.codegen.program import Kernel, Program, SourceFunction
from rten_aot.runtime import InputError, Model, abi
from tests.support.apart import apart, check_lifetimes

MEMORY = Path(__file__).with_name("guarded_memory.c")
SIDES = ("start", "end")


class MemoryFaultError(AssertionError):
    """A model accessed memory that is none of its own."""


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Models that are compiled here are guarded, and run here only."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for change in (
            patch.object(build, "build_program", guarded_program),
            patch.object(link, "NATIVE", guarded_native(folder)),
            # Kernels are promised no more than this, whatever the runtime's memory has.
            patch.object(link, "_COMPILE", (*link._COMPILE, "-DRTEN_ALIGNMENT=1")),
            patch.object(Model, "_run", _rehearsed(Model._run)),
        ):
            stack.enter_context(change)
        yield


def guarded_program(
    functions: Mapping[str, SourceFunction], kernels: Mapping[str, Kernel], **options: bool
) -> Program:
    """In place of ``build_program``: every buffer is allocated by itself."""
    program = build_program(functions, kernels, **options)
    check_lifetimes(program)
    return apart(program)


def guarded_native(folder: Path) -> Path:
    """The C runtime, with memory that is guarded."""
    shutil.copytree(rten_aot.get_include(), folder / "include")
    native = folder / "codegen" / "native"
    shutil.copytree(link.NATIVE, native)
    shutil.copyfile(MEMORY, native / "memory.c")
    return native


def _rehearsed(run: Any) -> Any:
    def rehearse_and_run(model: Model, values: Sequence[object], *given: Any, **named: Any) -> Any:
        with warnings.catch_warnings():
            # Forking with threads is safe here: the child runs the model and nothing else.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            _child(model, values)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status < 0:
            raise MemoryFaultError(f"{model!r} ended with {signal.Signals(-status).name}")
        assert status == 0, "the rehearsal failed, see its traceback"
        return run(model, values, *given, **named)

    return rehearse_and_run


def _child(model: Model, values: Sequence[object]) -> None:
    faulthandler.disable()  # a fault is the parent's to report
    status = 1
    try:
        for side in SIDES:
            os.environ["RTEN_GUARD"] = side
            with contextlib.suppress(InputError):  # the run itself raises it
                _run(model, values, side)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _run(model: Model, values: Sequence[object], side: str) -> None:
    """Run with outputs in the model's memory, then in the caller's."""
    arrays = [model._set_input(index, value) for index, value in enumerate(values)]
    for tensor, array in zip(model._in, arrays, strict=True):
        tensor.data = guarded_bytes(array.nbytes, side, array.tobytes())
    arguments = model._handle, model._in, len(model._in)
    count = len(model._out)
    if model._library.run(*arguments, model._out, count) != abi.OK:
        return
    outputs = (abi.DLTensor * count)()
    for output, own in zip(outputs, model._out, strict=True):
        shape = own.shape[: own.ndim]
        nbytes = math.prod(shape) * own.dtype.bits // 8
        output.ndim, output.dtype, output.device = own.ndim, own.dtype, own.device
        output.shape = (ctypes.c_int64 * own.ndim)(*shape)
        output.data = guarded_bytes(nbytes, side)
    code = model._library.run(*arguments, outputs, count)
    assert code == abi.OK, model._library.error()


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def guarded_bytes(size: int, side: str, content: bytes | None = None) -> int:
    """The address of so many bytes between pages; those with a content are read-only.

    They are never freed.
    """
    middle = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    none = 0
    base = _LIBC.mmap(None, middle + 2 * mmap.PAGESIZE, none, flags, -1, 0)
    assert base not in (None, ctypes.c_void_p(-1).value), os.strerror(ctypes.get_errno())
    start = base + mmap.PAGESIZE
    data: int = start if side == "start" else start + middle - size
    _LIBC.mprotect(start, middle, mmap.PROT_READ | mmap.PROT_WRITE)
    if content is not None:
        ctypes.memmove(data, content, size)
        _LIBC.mprotect(start, middle, mmap.PROT_READ)
    return data
