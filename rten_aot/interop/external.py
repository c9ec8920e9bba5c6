"""Tensor data in a file beside an ONNX model: a protobuf message cannot exceed 2 GB."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

# Pages of memory, so that the file can be mapped.
_ALIGNMENT = 4096
# Settings of operators must be in the model itself for shape inference.
_SMALL = 1024


class ExternalData:
    """A file that takes the data of large tensors; ``name`` is what the model calls it."""

    def __init__(self, path: Path, name: str) -> None:
        self._name = name
        self._file = open(path, "wb")

    def __enter__(self) -> ExternalData:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def store(self, proto: onnx.TensorProto, data: npt.NDArray[Any]) -> None:
        """Write a tensor's data, or keep it in ``proto`` if it is small."""
        if data.nbytes <= _SMALL:
            proto.raw_data = data.tobytes()
            return
        self._file.write(bytes(-self._file.tell() % _ALIGNMENT))
        offset = self._file.tell()
        self._file.write(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data)
        proto.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (
            ("location", self._name),
            ("offset", str(offset)),
            ("length", str(data.nbytes)),
        ):
            entry = proto.external_data.add()
            entry.key, entry.value = key, value
