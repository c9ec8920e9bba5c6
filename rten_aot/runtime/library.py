"""A compiled model's shared library: opening it, its functions, its metadata."""

from __future__ import annotations

import _ctypes
import ctypes
import json
import mmap
import os
import re
import struct
import threading
from pathlib import Path
from typing import Any

from rten_aot.runtime import abi
from rten_aot.runtime.errors import ModelLoadError

_MACHINES = {3: "x86", 40: "arm", 62: "x86-64", 183: "aarch64", 243: "riscv64"}

_files_lock = threading.Lock()
_files: dict[str, list[tuple[int, int]]] = {}


class Library:
    """An open library. ``close`` it when no handle of it is left.

    Raises:
        ModelLoadError: the file cannot be opened, or is no compiled model for this machine.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        _check_file(self.path)
        try:
            self._library: ctypes.CDLL | None = ctypes.CDLL(_unique_name(self.path))
        except OSError as err:
            raise ModelLoadError(f"{self.path}: {err}") from err
        try:
            self._bind(self._library)
        except BaseException:
            self.close()
            raise

    def _bind(self, library: ctypes.CDLL) -> None:
        prefix = _prefix(library, self.path)

        def function(name: str, result: Any, *arguments: Any) -> Any:
            try:
                found = getattr(library, f"{prefix}_{name}")
            except AttributeError:
                raise ModelLoadError(
                    f"{self.path}: not a library that rten-aot compiled "
                    f"(it has no function {prefix}_{name})"
                ) from None
            found.restype = result
            found.argtypes = arguments
            return found

        tensors = ctypes.POINTER(abi.DLTensor)
        handle = ctypes.c_void_p
        self._metadata = function("metadata", ctypes.c_char_p)
        self.create = function(
            "create", ctypes.c_int32, ctypes.POINTER(abi.Options), ctypes.POINTER(handle)
        )
        self.run = function(
            "run", ctypes.c_int32, handle, tensors, ctypes.c_int32, tensors, ctypes.c_int32
        )
        self.destroy = function("destroy", None, handle)
        self._error = function("error", ctypes.c_char_p)
        self.metadata = self._parse(self._metadata())
        self.times_steps = "profile" in self.metadata
        """Whether the library has the functions ``profile`` and ``peak``."""
        if self.times_steps:
            steps, total = ctypes.POINTER(abi.Step), ctypes.POINTER(ctypes.c_int64)
            self.profile = function("profile", ctypes.c_int32, handle, steps, ctypes.c_int32, total)
            rate = ctypes.POINTER(ctypes.c_double)
            self.peak = function("peak", ctypes.c_int32, handle, ctypes.c_int64, rate)

    def read_level(self) -> None:
        """Read the metadata again if it tells, now that there is a handle, of the level in use."""
        if self.metadata.get("target", {}).get("levels"):
            self.metadata = self._parse(self._metadata())

    def _parse(self, text: bytes) -> dict[str, Any]:
        try:
            metadata = json.loads(text)
            version = metadata["abi"]
        except (ValueError, KeyError, TypeError) as err:
            raise ModelLoadError(f"{self.path}: its metadata cannot be read ({err})") from err
        if version != abi.ABI_VERSION:
            raise ModelLoadError(
                f"{self.path}: has version {version} of the interface, this package knows "
                f"{abi.ABI_VERSION}\nhint: compile the model again, or use the rten-aot of its time"
            )
        return dict(metadata)

    def error(self) -> str:
        """The message of this thread's last failure."""
        message: bytes = self._error()
        return message.decode("utf-8", "replace")

    def close(self) -> None:
        """Unload the library, unless it is open elsewhere too. Its functions end to exist."""
        library, self._library = self._library, None
        if library is not None:
            _ctypes.dlclose(library._handle)


def _check_file(path: Path) -> None:
    """Say plainly what the loader would put in riddles."""
    try:
        with open(path, "rb") as file:
            head = file.read(64)
    except FileNotFoundError:
        raise ModelLoadError(f"{path}: there is no such file") from None
    except OSError as err:
        raise ModelLoadError(f"{path}: {err.strerror}") from err
    if head[:4] == b"RTEN" or head[4:8] == b"RTEN":
        raise ModelLoadError(
            f"{path}: is a model that was not compiled yet\nhint: rten-aot compile {path}"
        )
    if head[:4] == b"\0asm":
        raise ModelLoadError(
            f"{path}: was compiled for WebAssembly, which wasmtime, Node.js and browsers load"
        )
    if head[:4] != b"\x7fELF":
        raise ModelLoadError(f"{path}: not a library that rten-aot compiled")
    machine, own = _machine(head), _own_machine()
    if own is not None and machine != own and len(head) >= 20:
        raise ModelLoadError(f"{path}: was compiled for {machine}, this is {own}")
    if path.stat().st_size < _least_size(head):
        # The loader would map it, and the process end where pages are missing.
        raise ModelLoadError(f"{path}: is cut short, as by a copy that was interrupted")


def _least_size(head: bytes) -> int:
    """The bytes up to the end of an ELF file's table of sections, which comes last."""
    if len(head) < 64:
        return 64
    is_64 = head[4] == 2
    word, sizes = ("<Q", 0x3A) if is_64 else ("<I", 0x2E)
    (start,) = struct.unpack_from(word, head, 0x28 if is_64 else 0x20)
    size, count = struct.unpack_from("<HH", head, sizes)
    return int(start) + int(size) * int(count)


def _machine(head: bytes) -> str:
    number = int.from_bytes(head[18:20], "little")
    return _MACHINES.get(number, f"ELF machine {number}")


def _own_machine() -> str | None:
    try:
        with open("/proc/self/exe", "rb") as file:
            return _machine(file.read(20))
    except OSError:
        return None


def _unique_name(path: Path) -> str:
    """A path that the loader has not yet seen another file under.

    The loader knows libraries by path: while the old one is in use, it would return that for a
    path whose file was replaced. Steps through "." make the path a different one.
    """
    absolute = Path(os.path.abspath(path))
    status = os.stat(path)
    with _files_lock:
        files = _files.setdefault(str(absolute), [])
        if (status.st_dev, status.st_ino) not in files:
            files.append((status.st_dev, status.st_ino))
        steps = files.index((status.st_dev, status.st_ino))
    return f"{absolute.parent}/{'./' * steps}{absolute.name}"


def _prefix(library: ctypes.CDLL, path: Path) -> str:
    if hasattr(library, f"{abi.DEFAULT_PREFIX}_metadata"):
        return abi.DEFAULT_PREFIX
    pattern = re.compile(rb"\0([A-Za-z_]\w*)_metadata\0")
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        prefixes = [match[1].decode() for match in pattern.finditer(data)]
    for prefix in prefixes:
        if hasattr(library, f"{prefix}_metadata") and hasattr(library, f"{prefix}_create"):
            return prefix
    raise ModelLoadError(f"{path}: not a library that rten-aot compiled")
