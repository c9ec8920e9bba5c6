"""The C interface of a compiled model (``include/rten_aot.h``) in ctypes' terms."""

from __future__ import annotations

import ctypes
from typing import Final

ABI_VERSION: Final = 1
"""The value of ``"abi"`` in the metadata."""

DEFAULT_PREFIX: Final = "rten_aot"
"""What the names of the functions begin with, unless the library was linked with another prefix."""

OK: Final = 0
BAD_ARGUMENT: Final = 1
UNSUPPORTED_DEVICE: Final = 2
OUT_OF_MEMORY: Final = 3
RUN_FAILED: Final = 4

CPU: Final = 1
"""kDLCPU."""
CUDA: Final = 2
"""kDLCUDA."""
CUDA_MANAGED: Final = 13
"""kDLCUDAManaged."""
CUDA_GRAPH: Final = 1
"""RTEN_AOT_CUDA_GRAPH, of the options' flags."""
LEGACY_STREAM: Final = 1
"""The name of CUDA's default stream."""

DTYPES: Final = {"int32": (0, 32), "int8": (0, 8), "uint8": (1, 8), "float32": (2, 32)}
"""DLPack's code and bits of the data types that models have."""


class DLDevice(ctypes.Structure):
    """Where a tensor's memory is."""

    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class DLDataType(ctypes.Structure):
    """The data type of a tensor's elements."""

    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class DLTensor(ctypes.Structure):
    """DLPack's tensor, version independent."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Options(ctypes.Structure):
    """rten_aot_options."""

    _fields_ = (
        ("struct_size", ctypes.c_uint32),
        ("num_threads", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("stream", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_uint64),
    )


class Step(ctypes.Structure):
    """rten_aot_step."""

    _fields_ = (
        ("calls", ctypes.c_int64),
        ("nanoseconds", ctypes.c_int64),
        ("flops", ctypes.c_int64),
        ("bytes", ctypes.c_int64),
    )
