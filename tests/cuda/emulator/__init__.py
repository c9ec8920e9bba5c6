"""A libcuda.so.1 that runs CUDA text on the CPU, for tests on machines without a GPU.

``emulator.h`` says what it checks. It is built once, by zig; what it compiles is kept beside it.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rten_aot.codegen import nvrtc
from rten_aot.codegen.link import _cache_dir, _find_zig

_SOURCES = Path(__file__).resolve().parent
_OPTIONS = (
    "-O2",
    "-g0",
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-fPIC",
    "-shared",
    "-Wl,-soname,libcuda.so.1",
)


class Live(NamedTuple):
    """What exists on the emulated GPUs."""

    allocations: int
    bytes: int
    host_allocations: int
    modules: int
    streams: int
    events: int
    graphs: int
    contexts: int


class Emulator:
    """The emulator in this process, which artifacts find in place of a driver."""

    def __init__(self) -> None:
        os.environ.update(environment())
        # Who opens libcuda.so.1 then gets this one: the loader goes by the name in the file.
        self.library = ctypes.CDLL(str(library() / "libcuda.so.1"))
        self.library.emu_take_log.restype = ctypes.c_char_p

    def set_devices(self, *capabilities: int) -> None:
        """The GPUs: 80 is sm_80."""
        array = (ctypes.c_int * max(len(capabilities), 1))(*capabilities)
        self.library.emu_set_devices(len(capabilities), array)

    def set_memory(self, size: int) -> None:
        """Bytes of memory of all GPUs together."""
        self.library.emu_set_memory(ctypes.c_int64(size))

    def set_alignment(self, size: int) -> None:
        """Of allocations, 256 at first: the less, the sooner what is used after one is a fault."""
        self.library.emu_set_alignment(size)

    def set_backward(self, *, backward: bool) -> None:
        """Which way round threads and blocks run: from the first one, or from the last."""
        self.library.emu_set_backward(int(backward))

    def fail(self, function: str, code: int, number: int = 1) -> None:
        """Have the call ``number`` from now of a function return the code."""
        self.library.emu_fail_call(function.encode(), number, code)

    def take_log(self) -> list[str]:
        """The calls since the last time."""
        text: bytes = self.library.emu_take_log()
        return text.decode().splitlines()

    def live(self) -> Live:
        """What was made and not destroyed."""
        counts = (ctypes.c_int64 * len(Live._fields))()
        self.library.emu_count_live(counts)
        return Live(*counts)

    def depth(self) -> int:
        """How many contexts are current in this thread."""
        depth: int = self.library.emu_depth()
        return depth


@functools.cache
def install() -> Emulator:
    """Load it into this process."""
    return Emulator()


def library(machine: str | None = None) -> Path:
    """A folder with libcuda.so.1 for ``machine``, by default this one."""
    folder = _folder(machine or platform.machine())
    target = folder / "libcuda.so.1"
    if not target.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".libcuda.{os.getpid()}.tmp"
        sources = [str(path) for path in sorted(_SOURCES.glob("*.c"))]
        _zig(
            [
                "cc",
                *_target(machine),
                *_OPTIONS,
                *sources,
                "-ldl",
                "-lpthread",
                "-o",
                str(temporary),
            ]
        )
        os.replace(temporary, target)
    return folder


def environment(machine: str | None = None) -> dict[str, str]:
    """The variables that a process needs that uses it; with LD_LIBRARY_PATH it finds it itself."""
    folder = library(machine)
    cache = folder / "images"
    cache.mkdir(exist_ok=True)
    target = _target(machine)
    return {
        "RTEN_EMULATOR_ZIG": _find_zig()[0],
        "RTEN_EMULATOR_SOURCES": str(_SOURCES),
        "RTEN_EMULATOR_FOLDER": str(folder),
        "RTEN_EMULATOR_CACHE": str(cache),
        "RTEN_EMULATOR_VERSION": folder.name + " ".join(target),
        "RTEN_EMULATOR_TARGET": target[1],
        "RTEN_EMULATOR_CPU": target[2],
        "ZIG_GLOBAL_CACHE_DIR": str(_cache_dir() / "zig"),
        "ZIG_LOCAL_CACHE_DIR": str(folder / "zig"),
        "LD_LIBRARY_PATH": str(folder),
    }


def _folder(machine: str) -> Path:
    digest = hashlib.sha256(machine.encode())
    for path in sorted(_SOURCES.glob("*.[ch]")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return _cache_dir() / "cuda-emulator" / digest.hexdigest()[:24]


def _target(machine: str | None) -> tuple[str, str, str]:
    name = machine or platform.machine()
    if name == "x86_64":
        flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
        wide = all(f" {flag}" in flags for flag in ("avx2", "fma", "bmi2"))
        return "-target", "x86_64-linux-gnu.2.17", "-mcpu=" + ("x86_64_v3" if wide else "x86_64")
    return "-target", f"{name}-linux-gnu.2.17", "-mcpu=baseline"


def _zig(words: Sequence[str]) -> None:
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(_cache_dir() / "zig")}
    done = subprocess.run(
        [*_find_zig(), *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def text_image(source: str, arch: int, *, ptx: bool = False) -> nvrtc.Image:
    """In place of ``nvrtc.compile_image``: the text itself, which the emulator takes."""
    return nvrtc.Image(arch, ptx, source.encode() + b"\0", {})
