"""A compiled WebAssembly module under wasmtime, with arrays for tensors."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import wasmtime

from rten_aot.cli.artifact import read_metadata
from rten_aot.runtime import abi
from tests.support.model_feeds import Array

# DLTensor with pointers of 32 bits: data, device, ndim, dtype, shape, strides, byte_offset.
TENSOR = struct.Struct("<I iii BBH II 4x Q")


class WasmModel:
    """An instance of a module, and a handle in it.

    It is given nothing: whatever a module imports makes it fail.
    """

    def __init__(self, path: Path) -> None:
        engine = wasmtime.Engine()
        self._store = wasmtime.Store(engine)
        module = wasmtime.Module.from_file(engine, str(path))
        self._exports = wasmtime.Instance(self._store, module, []).exports(self._store)
        self.metadata = read_metadata(path)
        out = self._memory_for(4)
        self.check(self.call("rten_aot_create", 0, out))
        self._handle = int.from_bytes(self.read(out, 4), "little")

    def call(self, name: str, *arguments: int) -> int:
        """What an exported function returns."""
        result: int = self._exports[name](self._store, *arguments)
        return result

    def read(self, at: int, size: int) -> bytes:
        """Bytes of the module's memory."""
        return bytes(self._exports["memory"].read(self._store, at, at + size))

    def write(self, data: bytes) -> int:
        """The address of a copy of the bytes in the module's memory."""
        at = self._memory_for(len(data))
        self._exports["memory"].write(self._store, data, at)
        return at

    def text(self, at: int) -> str:
        """A C string of the module."""
        size = 0
        while self.read(at + size, 1) != b"\0":
            size += 1
        return self.read(at, size).decode()

    def check(self, code: int) -> None:
        """Raise what the module says if a call has failed."""
        if code != abi.OK:
            raise RuntimeError(self.text(self.call("rten_aot_error")))

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """The outputs for the inputs."""
        given = [inputs[spec["name"]] for spec in self.metadata["inputs"]]
        tensors = self.write(b"".join(map(self._tensor, given)))
        count = len(self.metadata["outputs"])
        results = self.write(bytes(TENSOR.size * count))
        self.check(self.call("rten_aot_run", self._handle, tensors, len(given), results, count))
        return [self._array(results + i * TENSOR.size) for i in range(count)]

    def close(self) -> None:
        """Destroy the handle."""
        self.call("rten_aot_destroy", self._handle)

    def _memory_for(self, size: int) -> int:
        at = self.call("malloc", max(size, 1))
        assert at, "out of memory"
        return at

    def _tensor(self, array: Array) -> bytes:
        shape = self.write(np.array(array.shape, np.int64).tobytes())
        data = self.write(np.ascontiguousarray(array).tobytes())
        kind = abi.DTYPES[array.dtype.name]
        return TENSOR.pack(data, abi.CPU, 0, array.ndim, *kind, 1, shape, 0, 0)

    def _array(self, at: int) -> Array:
        fields: tuple[Any, ...] = TENSOR.unpack(self.read(at, TENSOR.size))
        data, _, _, rank, code, bits, _, dims = fields[:8]
        shape = np.frombuffer(self.read(dims, 8 * rank), np.int64)
        dtype = np.dtype({kind: name for name, kind in abi.DTYPES.items()}[code, bits])
        size = int(np.prod(shape)) * dtype.itemsize
        return np.frombuffer(self.read(data, size), dtype).reshape(shape)
