"""Where results lie: in the model's memory, or in arrays of the caller."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rten_aot.runtime import abi
from rten_aot.runtime.device import Borrowed, is_on_gpu
from rten_aot.runtime.errors import InputError
from rten_aot.runtime.inputs import Array


class View:
    """An output in the model's memory, which usually stays the same from run to run."""

    def __init__(self, tensor: abi.DLTensor, dtype: str, shape: Sequence[object]) -> None:
        self.tensor = tensor
        self.dtype = np.dtype(dtype)
        self._ndim = len(shape)
        self._fixed = all(isinstance(size, int) for size in shape)
        self._address: int | None = None
        self._shape: tuple[int, ...] = ()
        self._array: Array = np.empty(0, self.dtype)

    def copy(self) -> Array:
        """What is there now."""
        address = self.tensor.data
        if address != self._address or not self._fixed:
            shape = tuple(self.tensor.shape[: self._ndim])
            if address != self._address or shape != self._shape:
                self._map(address, shape)
        array: Array = self._array.copy()
        return array

    def _map(self, address: int, shape: tuple[int, ...]) -> None:
        size = math.prod(shape) * self.dtype.itemsize
        memory = memoryview((ctypes.c_char * size).from_address(address))
        self._array = np.frombuffer(memory, self.dtype).reshape(shape)
        self._address, self._shape = address, shape


def target_of(name: str, dtype: np.dtype[Any], value: object, stream: int | None) -> Any:
    """The DLTensor of memory that a result is written to, and what keeps it alive.

    Raises:
        InputError: the value is no writable, compact array of this data type.
    """
    place = f'output "{name}"'
    if is_on_gpu(value):
        borrowed = Borrowed(place, dtype, value, stream)
        return borrowed.tensor, borrowed
    if not isinstance(value, np.ndarray):
        raise InputError(
            f"{place}: expected a NumPy array or one on a GPU, got {type(value).__name__}"
        )
    array: Array = value
    if array.dtype != dtype:
        raise InputError(f"{place}: expected {dtype}, got {array.dtype}")
    if not (array.flags.c_contiguous and array.flags.aligned and array.flags.writeable):
        raise InputError(f"{place}: the array is not contiguous and writable")
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    code, bits = abi.DTYPES[dtype.name]
    tensor = abi.DLTensor(
        data=array.__array_interface__["data"][0],
        device=abi.DLDevice(abi.CPU, 0),
        ndim=array.ndim,
        dtype=abi.DLDataType(code, bits, 1),
        shape=ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)),
    )
    return tensor, (array, shape)
