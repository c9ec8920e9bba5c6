"""The C interface itself: options, tensors as callers may pass them, memory, messages."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rten_aot.codegen.link import _find_zig
from rten_aot.runtime import abi
from rten_aot.runtime.library import Library
from tests.runtime import fake_library as fakes
from tests.runtime.fake_library import WEIGHTS, build_fake, feed

INCLUDE = Path(abi.__file__).parents[1] / "include"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_fake(tmp_path_factory.mktemp("native"))


@pytest.fixture
def library(path: Path) -> Iterator[Library]:
    library = Library(path)
    yield library
    library.close()


class Handle:
    """A handle, and tensors for a call."""

    def __init__(self, library: Library, **options: Any) -> None:
        self.library = library
        self.handle = ctypes.c_void_p()
        given = abi.Options(struct_size=ctypes.sizeof(abi.Options), num_threads=2, **options)
        self.code = library.create(ctypes.byref(given), ctypes.byref(self.handle))

    def __enter__(self) -> Handle:
        assert self.code == abi.OK, self.library.error()
        return self

    def __exit__(self, *unused: object) -> None:
        self.library.destroy(self.handle)

    def run(self, inputs: Sequence[abi.DLTensor], outputs: Any) -> int:
        array = (abi.DLTensor * len(inputs))(*inputs)
        code: int = self.library.run(self.handle, array, len(inputs), outputs, len(outputs))
        return code


def tensor(array: npt.NDArray[Any], *, strides: Sequence[int] | None = None) -> abi.DLTensor:
    """A DLTensor on the array's memory; it keeps the shape alive, the caller the array."""
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    code, bits = abi.DTYPES[array.dtype.name]
    result = abi.DLTensor(
        data=array.ctypes.data,
        device=abi.DLDevice(abi.CPU, 0),
        ndim=array.ndim,
        dtype=abi.DLDataType(code, bits, 1),
        shape=ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)),
    )
    if strides is not None:
        steps = (ctypes.c_int64 * array.ndim)(*strides)
        result.strides = ctypes.cast(steps, ctypes.POINTER(ctypes.c_int64))
    return result


def aligned(shape: Sequence[int], dtype: Any, shift: int = 0) -> npt.NDArray[Any]:
    """An array at ``shift`` bytes beyond a multiple of 64."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 128, np.uint8)
    start = -raw.ctypes.data % 64 + shift
    return raw[start : start + size].view(dtype).reshape(shape)


def values(output: abi.DLTensor) -> list[float]:
    """The elements of an output of float32 or int32."""
    count = int(np.prod([output.shape[i] for i in range(output.ndim)], dtype=np.int64))
    kind = ctypes.c_float if output.dtype.code == 2 else ctypes.c_int32
    return list((kind * count).from_address(output.data))


def outputs() -> Any:
    return (abi.DLTensor * 4)()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"struct_size": 0, "num_threads": 1}, "struct_size is 0; set it to sizeof"),
        ({"struct_size": 3}, r"struct_size 3 is not sizeof\(rten_aot_options\)"),
        ({"struct_size": 5000}, "struct_size 5000 is not"),
        ({"num_threads": -1}, "num_threads is -1, expected 0 to 1024"),
        ({"num_threads": 1025}, "num_threads is 1025, expected"),
        ({"device_id": 1}, r"device_id is 1, but this artifact runs on the CPU \(device 0\)"),
        ({"flags": 5}, "flags are 0x5, but none are defined"),
        ({"stream": 64}, "a stream is set, but this artifact runs on the CPU"),
        ({"workspace": 72, "workspace_bytes": 8}, "workspace is not aligned to 64 bytes"),
        ({"workspace_bytes": 8}, "workspace is NULL, but workspace_bytes is 8"),
    ],
)
def test_wrong_options(library: Library, options: dict[str, int], message: str) -> None:
    given = abi.Options(**{"struct_size": ctypes.sizeof(abi.Options), **options})
    handle = ctypes.c_void_p(1)
    assert library.create(ctypes.byref(given), ctypes.byref(handle)) == abi.BAD_ARGUMENT
    assert not handle
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(library.error())


def test_options_of_other_versions(library: Library) -> None:
    class Later(ctypes.Structure):
        _fields_ = (("known", abi.Options), ("more", ctypes.c_uint64))

    later = Later(abi.Options(struct_size=ctypes.sizeof(Later), num_threads=1), 0)
    pointer = ctypes.cast(ctypes.byref(later), ctypes.POINTER(abi.Options))
    handle = ctypes.c_void_p()
    assert library.create(pointer, ctypes.byref(handle)) == abi.OK
    library.destroy(handle)
    later.more = 1
    assert library.create(pointer, ctypes.byref(handle)) == abi.BAD_ARGUMENT
    assert "a field is set that this artifact does not know" in library.error()
    # An earlier version with nothing after num_threads: what follows is not read.
    earlier = abi.Options(struct_size=8, num_threads=1, flags=9)
    assert library.create(ctypes.byref(earlier), ctypes.byref(handle)) == abi.OK
    library.destroy(handle)


def test_defaults(library: Library) -> None:
    handle = ctypes.c_void_p()
    zero = abi.Options()
    for options in (None, ctypes.byref(zero)):
        assert library.create(options, ctypes.byref(handle)) == abi.OK
        library.destroy(handle)
    assert library.create(None, None) == abi.BAD_ARGUMENT
    assert library.error() == "out is NULL"
    library.destroy(None)


def test_outputs_of_the_model(library: Library) -> None:
    with Handle(library) as handle:
        arrays = list(feed(3).values())
        results = outputs()
        assert handle.run([tensor(a) for a in arrays], results) == abi.OK
        y, picked, rows, _ = results
        assert (y.ndim, y.shape[0], y.shape[1]) == (2, 3, 4)
        assert (y.dtype.code, y.dtype.bits, y.dtype.lanes) == (2, 32, 1)
        assert (y.device.device_type, y.device.device_id) == (1, 0)
        assert not y.strides
        assert y.data % 64 == rows.data % 64 == picked.data % 64 == 0
        np.testing.assert_array_equal(
            np.reshape(values(y), (3, 4)), np.maximum(arrays[0] + WEIGHTS, 0)
        )
        assert values(rows) == [0, 2]
        # The structs may be passed again as they are, also when the result then is larger.
        arrays = list(feed(500).values())
        assert handle.run([tensor(a) for a in arrays], results) == abi.OK
        assert (results[0].shape[0], results[2].shape[0]) == (500, 250)
        np.testing.assert_array_equal(
            np.reshape(values(results[0]), (500, 4)), np.maximum(arrays[0] + WEIGHTS, 0)
        )


@pytest.mark.parametrize("shift", [0, 4, 32])
def test_memory_of_the_caller(library: Library, shift: int) -> None:
    with Handle(library) as handle:
        inputs = feed(3)
        x = aligned((3, 4), np.float32, shift)
        x[:] = inputs["x"]
        arrays = [x, *list(inputs.values())[1:]]
        y = aligned((3, 4), np.float32, shift)
        rows = aligned((2,), np.int32, shift)
        facts = aligned((8,), np.int32, shift)
        results = outputs()
        results[0], results[2], results[3] = tensor(y), tensor(rows), tensor(facts)
        assert handle.run([tensor(a) for a in arrays], results) == abi.OK, library.error()
        np.testing.assert_array_equal(y, np.maximum(x + WEIGHTS, 0))
        assert rows.tolist() == [0, 2]
        assert results[0].data == y.ctypes.data
        # The kernels saw aligned memory.
        assert facts[6] == 0


def test_alignment_that_the_model_asks_for(tmp_path: Path) -> None:
    library = Library(build_fake(tmp_path, defines={"IO_ALIGNMENT": "16"}))
    with Handle(library) as handle:
        inputs = feed(3)
        x = aligned((3, 4), np.float32, 16)
        x[:] = inputs["x"]
        results = outputs()
        assert handle.run([tensor(a) for a in [x, *list(inputs.values())[1:]]], results) == abi.OK
        assert values(results[3])[6] == 16
    library.close()


@pytest.mark.parametrize(
    ("index", "array", "message"),
    [
        (0, np.zeros((3, 5), np.float32),
         'output "y": the result has shape (3, 4), got memory for (3, 5)'),
        (0, np.zeros((3, 4), np.int32), 'output "y": expected float32, got int32'),
        (0, np.zeros(12, np.float32), 'output "y": expected 2 dimensions (batch, 4), got 1 (12,)'),
        (2, np.zeros(3, np.int32), 'output "rows": the result has shape (2,), got memory for (3,)'),
        (2, np.zeros((), np.int32), 'output "rows": expected 1 dimension (?,), got 0'),
    ],
)  # fmt: skip
def test_wrong_memory_of_the_caller(
    library: Library, index: int, array: npt.NDArray[Any], message: str
) -> None:
    with Handle(library) as handle:
        arrays = list(feed(3).values())
        results = outputs()
        results[index] = tensor(array)
        assert handle.run([tensor(a) for a in arrays], results) == abi.BAD_ARGUMENT
        assert library.error() == message
        # A failed run leaves the structs alone.
        assert [bool(r.data) for r in results] == [i == index for i in range(4)]
        assert handle.run([tensor(a) for a in arrays], outputs()) == abi.OK


def test_strides_and_offsets(library: Library) -> None:
    with Handle(library) as handle:
        arrays = list(feed(3).values())
        x = np.concatenate([np.full((1, 4), 99, np.float32), arrays[0]])
        compact = tensor(x[:3], strides=(4, 1))
        compact.byte_offset = 16
        rest = [tensor(a) for a in arrays[1:]]
        results = outputs()
        assert handle.run([compact, *rest], results) == abi.OK
        assert values(results[0])[:4] == np.maximum(x[1] + WEIGHTS, 0).tolist()
        for strides in ((1, 4), (8, 1), (4, -1), (0, 1)):
            assert handle.run([tensor(x[:3], strides=strides), *rest], results) == abi.BAD_ARGUMENT
            assert library.error() == (
                'input "x": strides are not compact (row-major without gaps)'
            )
        # Steps along one element, and those of no elements, mean nothing.
        index, scale = np.zeros(2, np.int32), np.zeros(1, np.uint8)
        one = [tensor(x[:1], strides=(77, 1)), tensor(index), rest[1], tensor(scale)]
        assert handle.run(one, results) == abi.OK, library.error()


def test_empty_tensors_without_memory(library: Library) -> None:
    with Handle(library) as handle:
        x, index = np.zeros((0, 4), np.float32), np.zeros(0, np.int32)
        mode, scale = np.zeros((), np.int32), np.zeros(0, np.uint8)
        tensors = [tensor(a) for a in (x, index, mode, scale)]
        for i in (0, 1, 3):
            tensors[i].data = None
        tensors[0].strides = ctypes.cast((ctypes.c_int64 * 2)(9, 9), ctypes.POINTER(ctypes.c_int64))
        results = outputs()
        assert handle.run(tensors, results) == abi.OK, library.error()
        assert [results[i].shape[0] for i in range(3)] == [0, 0, 0]
        assert all(results[i].data for i in range(4))
        tensors[2].data = None
        assert handle.run(tensors, results) == abi.BAD_ARGUMENT
        assert library.error() == 'input "mode": data is NULL'


def changed(array: npt.NDArray[Any], **fields: Any) -> abi.DLTensor:
    result = tensor(array)
    for name, value in fields.items():
        setattr(result, name, value)
    return result


def test_tensors_that_make_no_sense(library: Library) -> None:
    x = feed(3)["x"]
    rest = [tensor(a) for a in list(feed(3).values())[1:]]
    negative = (ctypes.c_int64 * 2)(-1, 4)
    huge = (ctypes.c_int64 * 2)(1 << 62, 4)
    pointer = ctypes.POINTER(ctypes.c_int64)
    cases = {
        'input "x": data is NULL': changed(x, data=None),
        'input "x": shape is NULL': changed(x, shape=None),
        'input "x": dimension 0 is negative (-1)': changed(x, shape=ctypes.cast(negative, pointer)),
        'input "x": the shape is too large': changed(x, shape=ctypes.cast(huge, pointer)),
        'input "x": data is not aligned to its elements': changed(x, data=x.ctypes.data + 1),
        'input "x": expected memory of the CPU (device type 1), got device type 2': changed(
            x, device=abi.DLDevice(2, 0)
        ),
        'input "x": expected float32, got float16': changed(x, dtype=abi.DLDataType(2, 16, 1)),
        'input "x": expected float32, got float32x4': changed(x, dtype=abi.DLDataType(2, 32, 4)),
        'input "x": expected float32, got bool': changed(x, dtype=abi.DLDataType(6, 8, 1)),
        'input "x": expected float32, got dtype code 99 with 8 bits': changed(
            x, dtype=abi.DLDataType(99, 8, 1)
        ),
        'input "x": expected 2 dimensions (batch, 4), got -1': changed(x, ndim=-1),
    }
    with Handle(library) as handle:
        for message, bad in cases.items():
            assert handle.run([bad, *rest], outputs()) == abi.BAD_ARGUMENT
            assert library.error() == message
        assert handle.run([tensor(x), *rest], outputs()) == abi.OK


def test_wrong_calls(library: Library) -> None:
    arrays = [tensor(a) for a in feed(3).values()]
    with Handle(library) as handle:
        assert handle.run(arrays[:3], outputs()) == abi.BAD_ARGUMENT
        assert library.error() == "expected 4 inputs, got 3"
        assert handle.run(arrays, (abi.DLTensor * 1)()) == abi.BAD_ARGUMENT
        assert library.error() == "expected 4 outputs, got 1"
        assert library.run(handle.handle, None, 4, outputs(), 4) == abi.BAD_ARGUMENT
        assert library.error() == "inputs is NULL"
        assert library.run(None, None, 0, None, 0) == abi.BAD_ARGUMENT
        assert library.error() == "model is NULL"


def test_workspace_of_the_caller(library: Library) -> None:
    # Two buffers of 16 bytes per row live together; the third may lie on the first.
    needed = 2 * 160 * 16
    memory = aligned((needed,), np.uint8)
    memory[:] = 255
    options = {"workspace": memory.ctypes.data, "workspace_bytes": needed}
    with Handle(library, **options) as handle:
        arrays = [list(feed(batch).values()) for batch in (160, 161)]
        assert handle.run([tensor(a) for a in arrays[0]], outputs()) == abi.OK, library.error()
        assert not (memory == 255).any()
        assert handle.run([tensor(a) for a in arrays[1]], outputs()) == abi.BAD_ARGUMENT
        assert library.error() == ("the workspace has 5120 bytes, inputs of these shapes need 5248")
        assert handle.run([tensor(a) for a in arrays[0]], outputs()) == abi.OK


def test_codes_of_failures(library: Library) -> None:
    with Handle(library) as handle:
        for mode, code in (
            (fakes.DIVIDE, abi.RUN_FAILED),
            (fakes.EXHAUST, abi.OUT_OF_MEMORY),
            (fakes.NORMAL, abi.OK),
        ):
            arrays = list(feed(3, mode=mode).values())
            assert handle.run([tensor(a) for a in arrays], outputs()) == code


def test_a_run_that_needs_too_much_memory(library: Library) -> None:
    """The size passes all checks, but no machine has the memory for the copy."""
    with Handle(library) as handle:
        shape = (ctypes.c_int64 * 2)(1 << 56, 4)
        small = np.zeros((1, 4), np.float32)
        x = changed(small, shape=ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)))
        rest = [tensor(a) for a in list(feed(1).values())[1:3]]
        scale = changed(np.zeros(1, np.uint8), shape=ctypes.cast(shape, type(x.shape)))
        assert handle.run([x, *rest, scale], outputs()) == abi.OUT_OF_MEMORY
        assert library.error().startswith("out of memory: ")


@pytest.mark.parametrize("language", ["c99", "c++11"])
def test_header_in_both_languages(tmp_path: Path, language: str) -> None:
    source = tmp_path / ("main.c" if language == "c99" else "main.cpp")
    source.write_text('#include "rten_aot.h"\nint main(void) { return kDLFloat - 2; }\n')
    driver = "cc" if language == "c99" else "c++"
    compiler = [*_find_zig(), driver] if language == "c99" or not shutil.which("g++") else ["g++"]
    command = [*compiler, f"-std={language}", "-pedantic", "-Wall", "-Wextra", "-Werror"]
    done = subprocess.run(
        [*command, f"-I{INCLUDE}", "-c", str(source), "-o", str(tmp_path / "main.o")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_layout_is_dlpacks() -> None:
    assert ctypes.sizeof(abi.DLTensor) == 48
    assert abi.DLTensor.shape.offset == 24
    assert ctypes.sizeof(abi.Options) == 48
