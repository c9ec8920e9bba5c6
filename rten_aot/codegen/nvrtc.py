"""CUDA text to machine code of NVIDIA GPUs, by NVRTC of the package ``nvidia-cuda-nvrtc-cu12``.

The text includes no headers, so that no CUDA toolkit is needed. The package of CUDA 12 is preferred
since its machine code runs on all drivers from 525 on, those of Jetson boards among them.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rten_aot.errors import CompileError, InternalError, TargetError

_PACKAGES = (("nvidia.cuda_nvrtc", "libnvrtc.so.12"), ("nvidia.cu13", "libnvrtc.so.13"))
_OPTIONS = ("-default-device", "--std=c++17", "--ptxas-options=-v")


@dataclass(frozen=True)
class Resources:
    """What a kernel needs of a multiprocessor, by thread or (shared memory) by block."""

    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_stores: int
    spill_loads: int


@dataclass(frozen=True)
class Image:
    """Kernels for GPUs: machine code for ``sm_{arch}``, or PTX for it and all later ones."""

    arch: int
    is_ptx: bool
    data: bytes
    kernels: Mapping[str, Resources]
    """By name; empty for PTX."""


def compile_image(source: str, arch: int, *, ptx: bool = False) -> Image:
    """The kernels of a text for one architecture, for instance 80.

    Text that is PTX ends with a NUL byte, as the driver wants it.

    Raises:
        CompileError: NVRTC is not installed.
        TargetError: it cannot compile for this architecture.
        InternalError: the text does not compile.
    """
    library = _library()
    known = supported_archs()
    if arch not in known:
        names = ", ".join(f"sm_{number}" for number in known)
        raise TargetError(f'"sm_{arch}" is not known to NVRTC {_version()}; it knows {names}')
    program = ctypes.c_void_p()
    _check(
        library.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None
        )
    )
    try:
        kind = "compute" if ptx else "sm"
        words = [f"--gpu-architecture={kind}_{arch}", *_OPTIONS]
        options = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
        code = library.nvrtcCompileProgram(program, len(words), options)
        log = _bytes(program, "ProgramLog").rstrip(b"\0").decode("utf-8", "replace")
        if code != 0:
            raise InternalError(f"the CUDA text does not compile:\n{_errors(log)}")
        return Image(arch, ptx, _bytes(program, "PTX" if ptx else "CUBIN"), read_resources(log))
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


@functools.cache
def supported_archs() -> tuple[int, ...]:
    """The architectures that the installed NVRTC compiles for.

    Raises:
        CompileError: NVRTC is not installed.
    """
    count = ctypes.c_int()
    _check(_library().nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    archs = (ctypes.c_int * count.value)()
    _check(_library().nvrtcGetSupportedArchs(archs))
    return tuple(archs)


def read_resources(log: str) -> dict[str, Resources]:
    """What ptxas says of each kernel."""
    found: dict[str, Resources] = {}
    name, frame = "", (0, 0, 0)
    for line in log.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            name, frame = match[1], (0, 0, 0)
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) .* stores, (\d+) .* loads", line):
            frame = (int(match[1]), int(match[2]), int(match[3]))
        elif name and (match := re.search(r"Used (\d+) registers", line)):
            shared = re.search(r"(\d+) bytes smem", line)
            found[name] = Resources(int(match[1]), int(shared[1]) if shared else 0, *frame)
    return found


@functools.cache
def _library() -> ctypes.CDLL:
    for path in (*_installed(), *(name for _, name in _PACKAGES)):
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise CompileError(
        "NVIDIA's compiler for kernels (NVRTC) is not installed",
        hint='pip install "rten-aot[cuda]"',
    )


def _installed() -> list[str]:
    """Where the packages have it; a toolkit's is found by the loader."""
    found = []
    for package, name in _PACKAGES:
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            continue
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            path = Path(folder) / "lib" / name
            if path.is_file():
                found.append(str(path))
    return found


@functools.cache
def _version() -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"{major.value}.{minor.value}"


def _bytes(program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(_library(), f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    data = ctypes.create_string_buffer(size.value)
    _check(getattr(_library(), f"nvrtcGet{what}")(program, data))
    return data.raw


def _errors(log: str, limit: int = 5) -> str:
    lines = [line for line in log.splitlines() if "error" in line]
    return "\n".join((lines or log.splitlines())[:limit])


def _check(code: int) -> None:
    if code != 0:
        text = _library().nvrtcGetErrorString
        text.restype = ctypes.c_char_p
        raise InternalError(f"NVRTC failed: {text(code).decode()}")
