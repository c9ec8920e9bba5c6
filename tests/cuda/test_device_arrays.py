"""Arrays on a GPU in Python: as inputs, as results, and results written to the caller's arrays."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rten_aot.runtime import DeviceArray, InputError, Model, abi, device, load
from rten_aot.runtime.library import Library
from tests.codegen.test_native import Handle, tensor, values
from tests.cuda.emulator import Emulator
from tests.cuda.fake_library import build_fake, expected, feed
from tests.runtime import fake_library as on_cpu

Array = npt.NDArray[Any]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_fake(tmp_path_factory.mktemp("arrays"), can_fail=False)


class Gpu:
    """What a package like CuPy does: memory there, and arrays that know DLPack."""

    def __init__(self, emulator: Emulator) -> None:
        self._library = emulator.library
        self._context = ctypes.c_void_p()
        self._memory: list[ctypes.c_void_p] = []
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), 0)

    def call(self, name: str, *arguments: Any) -> None:
        assert getattr(self._library, name)(*arguments) == 0, name

    def put(self, array: Array, shift: int = 0) -> DeviceArray:
        """The array, ``shift`` bytes after where memory begins."""
        memory, size = ctypes.c_void_p(), ctypes.c_size_t(array.nbytes)
        with self:
            room = ctypes.c_size_t(max(array.nbytes + shift, 1))
            self.call("cuMemAlloc_v2", ctypes.byref(memory), room)
            self._memory.append(memory)
            at = ctypes.c_void_p((memory.value or 0) + shift)
            source = ctypes.c_void_p(array.ctypes.data)
            self.call("cuMemcpyHtoDAsync_v2", at, source, size, None)
        return self._described(at.value or 0, array)

    def _described(self, address: int, array: Array) -> DeviceArray:
        made = DeviceArray.__new__(DeviceArray)
        made.__dict__.update(dtype=array.dtype, shape=array.shape, device=0, address=address)
        made.__dict__.update(_owner=_Nobody(), _run=0)
        return made

    def get(self, array: DeviceArray) -> Array:
        result = np.empty(array.shape, array.dtype)
        with self:
            to, size = ctypes.c_void_p(result.ctypes.data), ctypes.c_size_t(result.nbytes)
            self.call("cuMemcpyDtoHAsync_v2", to, ctypes.c_void_p(array.address), size, None)
            self.call("cuStreamSynchronize", None)
        return result

    def make_stream(self) -> int:
        stream = ctypes.c_void_p()
        with self:
            self.call("cuStreamCreate", ctypes.byref(stream), 1)
        return stream.value or 0

    def __enter__(self) -> None:
        self.call("cuCtxPushCurrent_v2", self._context)

    def __exit__(self, *unused: object) -> None:
        self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def close(self) -> None:
        with self:
            for memory in self._memory:
                self.call("cuMemFree_v2", memory)
        self.call("cuDevicePrimaryCtxRelease_v2", 0)


class _Nobody:
    runs = 0
    stream = None


@pytest.fixture
def memory(gpu: Emulator) -> Iterator[Gpu]:
    made = Gpu(gpu)
    yield made
    made.close()


@pytest.fixture
def model(path: Path, memory: Gpu) -> Iterator[Model]:
    with load(path) as model:
        yield model


def copies(gpu: Emulator) -> list[str]:
    return [line.split()[0][8:12] for line in gpu.take_log() if line.startswith("cuMemcpy")]


def test_inputs_on_the_gpu(model: Model, gpu: Emulator, memory: Gpu) -> None:
    inputs = feed(5)
    there = {name: memory.put(array) for name, array in inputs.items()}
    model.run(there)
    gpu.take_log()
    results = model.run(there)
    for name, array in expected(inputs).items():
        np.testing.assert_allclose(results[name], array, rtol=1e-6)
    # The model's own: two small results that its host program reads, five results.
    assert copies(gpu).count("HtoD") == 1
    # From there and from here in turn.
    for each in (inputs, there, inputs):
        np.testing.assert_allclose(model.run(each)["y"], expected(inputs)["y"])


def test_misaligned_inputs_are_copied(model: Model, gpu: Emulator, memory: Gpu) -> None:
    inputs = feed(5)
    there = memory.put(inputs["x"], shift=4)
    gpu.take_log()
    results = model.run({**inputs, "x": there})
    np.testing.assert_allclose(results["y"], expected(inputs)["y"])
    assert copies(gpu).count("DtoD") == 1


def test_results_on_the_gpu(model: Model, gpu: Emulator, memory: Gpu) -> None:
    inputs = feed(6)
    results = model.run({n: memory.put(a) for n, a in inputs.items()}, on_device=True)
    for name, array in expected(inputs).items():
        assert isinstance(results[name], DeviceArray)
        assert results[name].shape == array.shape
        assert results[name].__dlpack_device__() == (2, 0)
        np.testing.assert_allclose(memory.get(results[name]), array, rtol=1e-6)
    assert repr(results["y"]) == "<DeviceArray float32 (6, 4) on GPU 0>"
    # And back in the host's memory.
    np.testing.assert_allclose(model.run(inputs)["y"], expected(inputs)["y"])


def test_results_as_inputs(model: Model, memory: Gpu, path: Path) -> None:
    inputs = feed(4)
    with load(path) as second:
        results = model.run(inputs, on_device=True)
        again = second.run({**inputs, "x": results["y"]})
    np.testing.assert_allclose(again["y"], expected({**inputs, "x": expected(inputs)["y"]})["y"])


def test_results_end_with_the_next_run(model: Model, path: Path) -> None:
    results = model.run(feed(), on_device=True)
    model.run(feed())
    with pytest.raises(BufferError, match="the model has run again, which ended this result"):
        results["y"].__dlpack__()


def test_capsules_are_freed(model: Model) -> None:
    results = model.run(feed(), on_device=True)
    before = len(device._exported)
    capsule = results["y"].__dlpack__()
    assert len(device._exported) == before + 1
    del capsule
    gc.collect()
    assert len(device._exported) == before


def test_capsules_that_are_taken(model: Model) -> None:
    """A consumer renames the capsule and calls the deleter when it is done."""
    results = model.run(feed(), on_device=True)
    before = len(device._exported)
    capsule = results["y"].__dlpack__()
    managed = ctypes.cast(device._pointer(capsule, b"dltensor"), ctypes.POINTER(device._Managed))
    rename = ctypes.pythonapi.PyCapsule_SetName
    rename.argtypes = (ctypes.py_object, ctypes.c_char_p)
    used = b"used_dltensor"
    rename(capsule, used)
    del capsule
    gc.collect()
    assert len(device._exported) == before + 1
    managed.contents.deleter(managed)
    assert len(device._exported) == before


def test_results_in_arrays_of_the_caller(model: Model, gpu: Emulator, memory: Gpu) -> None:
    inputs = feed(7)
    wanted = expected(inputs)
    sums = np.zeros(7, np.float32)
    y, kept = memory.put(np.zeros((7, 4), np.float32)), memory.put(np.zeros_like(wanted["kept"]))
    for on_device in (False, True):
        targets = {"y": y, "kept": kept, "sums": sums}
        results = model.run(inputs, outputs=targets, on_device=on_device)
        assert list(results) == list(wanted)
        assert all(results[name] is array for name, array in targets.items())
        np.testing.assert_allclose(memory.get(y), wanted["y"])
        np.testing.assert_allclose(memory.get(kept), wanted["kept"])
        np.testing.assert_allclose(sums, wanted["sums"], rtol=1e-6)
        picked = memory.get(results["picked"]) if on_device else results["picked"]
        np.testing.assert_allclose(picked, wanted["picked"])
    with pytest.raises(InputError, match=r'output "y": the result has shape \(3, 4\), got memory'):
        model.run(feed(3), outputs={"y": y})


def test_misaligned_results(model: Model, memory: Gpu) -> None:
    inputs = feed(5)
    y = memory.put(np.zeros((5, 4), np.float32), shift=8)
    model.run(inputs, outputs={"y": y})
    np.testing.assert_allclose(memory.get(y), expected(inputs)["y"])


def test_a_stream_of_the_caller(path: Path, gpu: Emulator, memory: Gpu) -> None:
    """A run that uses no memory of the host does not wait; here its host program reads some."""
    stream = memory.make_stream()
    inputs = feed(5)
    with load(path, stream=stream) as model:
        results = model.run({n: memory.put(a) for n, a in inputs.items()}, on_device=True)
        with pytest.raises(BufferError, match="works in the stream it was loaded with"):
            results["y"].__dlpack__()
        results["y"].__dlpack__(stream=stream)
        results["y"].__dlpack__(stream=-1)
        with memory:
            memory.call("cuStreamSynchronize", ctypes.c_void_p(stream))
        np.testing.assert_allclose(memory.get(results["y"]), expected(inputs)["y"])
    assert gpu.live().streams == 1
    with memory:
        memory.call("cuStreamDestroy_v2", ctypes.c_void_p(stream))
    with load(path, stream=0) as model:
        assert model.stream == 1
        np.testing.assert_allclose(model.run(inputs)["y"], expected(inputs)["y"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.astype(np.int32), 'input "x": expected float32, got int32'),
        (lambda a: a[0], 'input "x": expected 2 dimensions'),
        (lambda a: a[:, :3], r'input "x": dimension 1 is 3, expected 4'),
    ],
)
def test_wrong_arrays(
    model: Model, memory: Gpu, change: Callable[[Array], Array], message: str
) -> None:
    inputs = feed(3)
    there = memory.put(np.ascontiguousarray(change(inputs["x"])))
    with pytest.raises(InputError, match=message):
        model.run({**inputs, "x": there})


def test_arrays_of_another_gpu(model: Model, memory: Gpu) -> None:
    there = memory.put(feed(3)["x"])
    there.device = 3
    with pytest.raises(InputError, match='input "x": is on GPU 3, but this handle is for GPU 0'):
        model.run({**feed(3), "x": there})


class Described:
    """What another package has, with what it says of where the memory is and how it lies."""

    def __init__(self, array: DeviceArray, kind: int = 2, strides: Sequence[int] = ()) -> None:
        self._array = array
        self._kind = kind
        self._strides = (ctypes.c_int64 * len(strides))(*strides)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._kind, 0

    def __dlpack__(self, *, stream: int | None = None) -> object:
        capsule = self._array.__dlpack__(stream=stream)
        managed = ctypes.cast(
            device._pointer(capsule, b"dltensor"), ctypes.POINTER(device._Managed)
        )
        tensor = managed.contents.tensor
        tensor.device.device_type = self._kind
        if self._strides:
            tensor.strides = ctypes.cast(self._strides, ctypes.POINTER(ctypes.c_int64))
        return capsule


def test_managed_memory(model: Model, gpu: Emulator, memory: Gpu) -> None:
    """Is used where it is, for inputs and results."""
    inputs = feed(5)
    x, y = memory.put(inputs["x"]), memory.put(np.zeros((5, 4), np.float32))
    gpu.take_log()
    model.run({**inputs, "x": Described(x, 13)}, outputs={"y": Described(y, 13)})
    sizes = [line.split()[1] for line in gpu.take_log() if line.startswith("cuMemcpyHtoD")]
    assert str(inputs["x"].nbytes) not in sizes
    np.testing.assert_allclose(memory.get(y), expected(inputs)["y"])


@pytest.mark.parametrize(("strides", "fits"), [((4, 1), True), ((1, 5), False), ((8, 1), False)])
def test_how_elements_lie(model: Model, memory: Gpu, strides: tuple[int, int], fits: bool) -> None:
    inputs = feed(5)
    x = Described(memory.put(inputs["x"]), strides=strides)
    if fits:
        np.testing.assert_allclose(model.run({**inputs, "x": x})["y"], expected(inputs)["y"])
        return
    with pytest.raises(InputError, match='input "x": its elements do not lie one after another'):
        model.run({**inputs, "x": x})


@pytest.mark.parametrize(("kind", "fits"), [(1, True), (3, True), (4, False), (10, False)])
def test_types_of_memory_in_c(path: Path, gpu: Emulator, kind: int, fits: bool) -> None:
    """Memory of the host may be pinned; that of other devices is refused, whoever asks."""
    inputs, library = feed(3), Library(path)
    with Handle(library) as handle:
        given = [tensor(array) for array in inputs.values()]
        given[0].device.device_type = kind
        results = (abi.DLTensor * 5)()
        code = handle.run(given, results)
        if fits:
            assert code == abi.OK
            assert values(results[0]) == expected(inputs)["y"].ravel().tolist()
        else:
            assert code == abi.BAD_ARGUMENT
            text = f"types 2, 13, 1 and 3), got device type {kind}"
            assert library.error().startswith('input "x": expected memory of an NVIDIA GPU or')
            assert library.error().endswith(text)
    library.close()


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((3, 4)), 'output "y": expected float32, got float64'),
        (np.zeros((4, 3), np.float32).T, 'output "y": the array is not contiguous and writable'),
        ([1.0], 'output "y": expected a NumPy array or one on a GPU, got list'),
        (np.zeros((9, 4), np.float32), 'output "y": the result has shape'),
    ],
)
def test_wrong_targets(model: Model, array: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        model.run(feed(3), outputs={"y": array})
    with pytest.raises(InputError, match='the model has no output "z"; it has "y"'):
        model.run(feed(3), outputs={"z": array})


def test_models_for_the_cpu(tmp_path: Path) -> None:
    inputs = on_cpu.feed(3)
    fake = on_cpu.build_fake(tmp_path)
    with load(fake) as model:
        with pytest.raises(ValueError, match="on_device is set, but this model runs on the CPU"):
            model.run(inputs, on_device=True)
        y = np.zeros((3, 4), np.float32)
        results = model.run(inputs, outputs={"y": y})
        assert results["y"] is y
        np.testing.assert_array_equal(y, model.run(inputs)["y"])
