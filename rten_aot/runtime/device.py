"""Arrays on a GPU, by the DLPack protocol: a caller's as inputs, a model's own as results."""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

import numpy as np

from rten_aot.runtime import abi
from rten_aot.runtime.errors import InputError

_NAME = b"dltensor"
_ON_GPU = (abi.CUDA, abi.CUDA_MANAGED)


class _Managed(ctypes.Structure):
    """DLManagedTensor."""


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (
    ("tensor", abi.DLTensor),
    ("context", ctypes.c_void_p),
    ("deleter", _Deleter),
)
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_pointer_of_dying = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _Destructor)(
    ("PyCapsule_New", ctypes.pythonapi)
)


def is_on_gpu(value: object) -> bool:
    """Whether the value is an array in memory that GPUs reach."""
    where = getattr(value, "__dlpack_device__", None)
    return where is not None and not isinstance(value, np.ndarray) and where()[0] in _ON_GPU


class Borrowed:
    """A caller's array, whose memory ``tensor`` describes while this object lives."""

    def __init__(self, name: str, dtype: np.dtype[Any], value: Any, stream: int | None) -> None:
        """``name`` and ``dtype`` are what the model has. It may be used in the stream.

        Raises:
            InputError: the array has another data type, or is not compact.
        """
        self._capsule = value.__dlpack__(stream=stream or abi.LEGACY_STREAM)
        managed = ctypes.cast(_pointer(self._capsule, _NAME), ctypes.POINTER(_Managed))
        self.tensor: abi.DLTensor = managed.contents.tensor
        given = self.tensor.dtype
        if (given.code, given.bits, given.lanes) != (*abi.DTYPES[dtype.name], 1):
            raise InputError(f"{name}: expected {dtype}, got {getattr(value, 'dtype', 'another')}")
        if not self._is_compact():
            raise InputError(
                f"{name}: its elements do not lie one after another in row-major order"
            )

    def _is_compact(self) -> bool:
        tensor, step = self.tensor, 1
        sizes = tensor.shape[: tensor.ndim]
        if not tensor.strides or 0 in sizes:
            return True
        strides = tensor.strides[: tensor.ndim]
        for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
            if size != 1 and stride != step:
                return False
            step *= size
        return True


class Owner(Protocol):
    """A model whose results stay where they are until its next run."""

    @property
    def runs(self) -> int:
        """How many runs it has begun."""

    @property
    def stream(self) -> int | None:
        """The caller's stream that it works in; None if results are ready when a run returns."""


class DeviceArray:
    """A result of a model on the GPU, until the model's next run.

    CuPy, PyTorch and other packages that know DLPack take it without copying it, as in
    ``torch.from_dlpack(array)``; to keep it longer, copy it there. ``numpy`` copies it to the host.
    """

    def __init__(self, owner: Owner, tensor: abi.DLTensor, dtype: np.dtype[Any]) -> None:
        self._owner = owner
        self._run = owner.runs
        self.dtype = dtype
        self.shape: tuple[int, ...] = tuple(tensor.shape[: tensor.ndim])
        self.device = int(tensor.device.device_id)
        self.address = int(tensor.data or 0)

    def __dlpack_device__(self) -> tuple[int, int]:
        return abi.CUDA, self.device

    def __dlpack__(self, *, stream: int | None = None, **unused: object) -> object:
        """A capsule that describes the memory.

        Raises:
            BufferError: the model has run again, or works in another stream than the consumer.
        """
        if self._owner.runs != self._run:
            raise BufferError("the model has run again, which ended this result; copy it before")
        own = self._owner.stream
        if own is not None and stream != -1 and (stream or abi.LEGACY_STREAM) != own:
            raise BufferError("the model works in the stream it was loaded with; use that one here")
        return _export(self)

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype} {self.shape} on GPU {self.device}>"


_exported: dict[int, object] = {}
"""What the capsules that are in use need, by the address of their structs."""


@_Deleter  # type: ignore[untyped-decorator]
def _delete(managed: Any) -> None:
    _exported.pop(ctypes.addressof(managed.contents), None)


@_Destructor  # type: ignore[untyped-decorator]
def _destroy(capsule: int) -> None:
    """What nobody has taken."""
    if _is_valid(capsule, _NAME):
        _exported.pop(_pointer_of_dying(capsule, _NAME), None)


def _export(array: DeviceArray) -> object:
    shape = (ctypes.c_int64 * len(array.shape))(*array.shape)
    code, bits = abi.DTYPES[array.dtype.name]
    managed = _Managed()
    managed.tensor = abi.DLTensor(
        data=array.address,
        device=abi.DLDevice(abi.CUDA, array.device),
        ndim=len(array.shape),
        dtype=abi.DLDataType(code, bits, 1),
        shape=ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)),
    )
    managed.deleter = _delete
    address = ctypes.addressof(managed)
    _exported[address] = (managed, shape, array)
    return _new(address, _NAME, _destroy)
