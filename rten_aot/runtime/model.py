"""A loaded model: what it takes and gives, and how to run it."""

from __future__ import annotations

import ctypes
import difflib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Any, NoReturn

import numpy as np

from rten_aot.runtime import abi
from rten_aot.runtime.device import Borrowed, DeviceArray, is_on_gpu
from rten_aot.runtime.errors import InputError, ModelLoadError, ModelRunError
from rten_aot.runtime.inputs import Array, convert, is_plain
from rten_aot.runtime.library import Library
from rten_aot.runtime.outputs import View, target_of

_NOTHING: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True)
class TensorInfo:
    """An input or output of a model."""

    name: str
    dtype: str
    """NumPy's name: int32, float32, int8 or uint8."""
    shape: tuple[int | str | None, ...]
    """Sizes, names of dimensions that are free, and None for free ones without a name."""


@dataclass(frozen=True)
class StepTimes:
    """What the calls of one step took."""

    calls: int
    nanoseconds: int
    flops: int
    bytes: int


@dataclass(frozen=True)
class Profile:
    """What runs of a model took: each step of the metadata's "profile", and all in all."""

    steps: tuple[StepTimes, ...]
    nanoseconds: int


def load(
    path: str | os.PathLike[str],
    num_threads: int | None = None,
    *,
    seed: int | None = None,
    device: int = 0,
    stream: int | None = None,
    cuda_graph: bool = False,
) -> Model:
    """Load a library that ``rten-aot compile`` wrote.

    Args:
        path: of the library.
        num_threads: how many threads a run may use; by default ``RTEN_AOT_NUM_THREADS`` if it is
            set, else the physical cores that this process may use.
        seed: of random operators; by default every load gives other values.
        device: the GPU to use, of models for GPUs.
        stream: the CUDA stream that they work in: ``cuda_stream`` of PyTorch's streams, ``ptr`` of
            CuPy's. Runs that use no memory of the host then do not wait for their results.
            By default the model has a stream of its own, and every run waits.
        cuda_graph: whether runs that repeat addresses and shapes are recorded and replayed as a
            graph, which pays where kernels are short.

    Raises:
        ModelLoadError: the file is no compiled model, or this machine cannot run it.
        ValueError: ``num_threads``, ``seed`` or ``device`` is out of range.
    """
    if num_threads is not None and num_threads < 1:
        raise ValueError(f"num_threads is {num_threads}, expected 1 or more")
    if seed is not None and not 0 < seed < 1 << 64:
        raise ValueError(f"seed is {seed}, expected 1 to 2**64 - 1")
    if device < 0:
        raise ValueError(f"device is {device}, expected 0 or more")
    flags = abi.CUDA_GRAPH if cuda_graph else 0
    return Model(Library(path), num_threads or 0, seed or 0, device, stream, flags)


class Model:
    """A compiled model. Use ``load`` to make one.

    Runs from several threads are serialised; load the model once per thread to run at the same
    time (handles of one library share weights and worker threads). A forked child may go on using
    its parent's models: they get new worker threads there. After an error the model is usable.
    A model is closed when it is no longer used, by ``close``, or at the end of a ``with`` block.
    """

    def __init__(
        self,
        library: Library,
        num_threads: int,
        seed: int,
        device: int,
        stream: int | None,
        flags: int,
    ) -> None:
        self._handle = ctypes.c_void_p()
        self._library = library
        self._lock = threading.Lock()
        # The default stream is 0 for most, but that asks for none here.
        self.stream = (stream or abi.LEGACY_STREAM) if stream is not None else None
        self.runs = 0
        try:
            self.inputs = _infos(library, "inputs")
            self.outputs = _infos(library, "outputs")
            self._on_gpu = library.metadata.get("target", {}).get("kind") == "cuda"
            self._create(num_threads, seed, device, flags)
        except BaseException:
            library.close()
            raise
        self._dtypes = [np.dtype(info.dtype) for info in self.inputs]
        self._in = (abi.DLTensor * len(self.inputs))()
        self._in_tensors = list(self._in)
        self._in_shapes: list[tuple[int, ...] | None] = [None] * len(self.inputs)
        self._shape_memory: list[object] = [None] * len(self.inputs)
        for tensor, info in zip(self._in_tensors, self.inputs, strict=True):
            code, bits = abi.DTYPES[info.dtype]
            tensor.device = abi.DLDevice(abi.CPU, 0)
            tensor.dtype = abi.DLDataType(code, bits, 1)
        self._host_form = (abi.DLTensor * len(self.inputs))(*self._in)
        self._out = (abi.DLTensor * len(self.outputs))()
        self._views = [
            View(tensor, info.dtype, info.shape)
            for tensor, info in zip(self._out, self.outputs, strict=True)
        ]
        _models.add(self)

    def _create(self, num_threads: int, seed: int, device: int, flags: int) -> None:
        options = abi.Options(
            struct_size=ctypes.sizeof(abi.Options),
            num_threads=num_threads,
            seed=seed,
            device_id=device,
            flags=flags,
            stream=self.stream,
        )
        code = self._library.create(ctypes.byref(options), ctypes.byref(self._handle))
        if code != abi.OK:
            raise ModelLoadError(f"{self._library.path}: {self._library.error()}")
        self._library.read_level()

    @property
    def metadata(self) -> dict[str, Any]:
        """All that the library says about itself: model, target, sizes, versions.

        For several CPUs, ``["target"]["level"]`` is the one that this machine's was taken for.
        """
        return self._library.metadata

    def run(
        self,
        inputs: Mapping[str, object],
        *,
        outputs: Mapping[str, object] | None = None,
        on_device: bool = False,
    ) -> dict[str, Any]:
        """Run the model on inputs by name; returns new arrays by output name, in the graph's order.

        Anything that ``numpy.asarray`` takes is an input. Python numbers adopt the input's data
        type; int64 and bool arrays are taken for int32 when every value fits. Models for GPUs also
        take arrays there as they are: those with ``__dlpack__``, as PyTorch's and CuPy's.

        Args:
            inputs: all of them.
            outputs: arrays that results are written to, in place of new ones: NumPy's, or for
                models for GPUs also those with ``__dlpack__``. They overlap no other array.
            on_device: whether the other results are left on the GPU, as ``DeviceArray``.

        Raises:
            InputError: an input is missing, unknown, or does not fit; or an array of ``outputs``.
            ModelRunError: the model failed at run time, memory ran out, or the model is closed.
            ValueError: ``on_device`` is set, but the model runs on the CPU.
        """
        if on_device and not self._on_gpu:
            raise ValueError("on_device is set, but this model runs on the CPU")
        try:
            values = [inputs[info.name] for info in self.inputs]
        except (KeyError, TypeError, IndexError):
            values = []
        if len(values) != len(self.inputs) or len(inputs) != len(values):
            raise self._wrong_names(inputs)
        targets = _NOTHING if outputs is None else outputs
        if not isinstance(targets, Mapping):
            raise InputError(
                f"outputs is a mapping from output names to arrays, got {type(outputs).__name__}"
            )
        results = self._run(values, targets, on_device=on_device)
        return {info.name: result for info, result in zip(self.outputs, results, strict=True)}

    def __call__(self, *inputs: object) -> tuple[Array, ...]:
        """Run the model on inputs in the graph's order; always returns a tuple."""
        if len(inputs) != len(self.inputs):
            raise InputError(
                f"the model takes {_count(len(self.inputs), 'input')} "
                f"({_names(self.inputs)}), got {len(inputs)}"
            )
        return tuple(self._run(inputs))

    def take_profile(self) -> Profile:
        """What the runs since the last call took.

        Raises:
            ModelRunError: the library was compiled without ``profile``, or the model is closed.
        """
        count = len(self.metadata.get("profile", ()))
        steps, total = (abi.Step * count)(), ctypes.c_int64()
        with self._lock:
            self._check_profiled()
            code = self._library.profile(self._handle, steps, count, ctypes.byref(total))
            if code != abi.OK:
                raise ModelRunError(self._library.error())
        taken = tuple(StepTimes(s.calls, s.nanoseconds, s.flops, s.bytes) for s in steps)
        return Profile(taken, total.value)

    def measure_peak(self, size: int = 0) -> float:
        """What the machine can do in a second at best with this model's threads.

        Single precision operations for ``size`` 0, else bytes that are read and written by copying
        inside ``size`` bytes of memory.

        Raises:
            ModelRunError: the library was compiled without ``profile``, the model is closed, or
                memory ran out.
        """
        rate = ctypes.c_double()
        with self._lock:
            self._check_profiled()
            if self._library.peak(self._handle, size, ctypes.byref(rate)) != abi.OK:
                raise ModelRunError(self._library.error())
        return rate.value

    def _check_profiled(self) -> None:
        self._check_open()
        if not self._library.times_steps:
            raise ModelRunError(
                f"{self._library.path}: was compiled without times of its kernels\n"
                "hint: compile it with --profile"
            )

    def _check_open(self) -> None:
        if not self._handle:
            raise ModelRunError(f"{self._library.path}: the model is closed")

    def _run(
        self,
        values: Sequence[object],
        targets: Mapping[str, object] = _NOTHING,
        *,
        on_device: bool = False,
    ) -> list[Any]:
        with self._lock:
            self._check_open()
            self.runs += 1
            # They must live until the call returns, and temporary ones have no other owner.
            held = [self._set_input(i, value) for i, value in enumerate(values)]
            out = self._out
            if self._on_gpu:
                for tensor in out:
                    tensor.device.device_type = abi.CUDA if on_device else abi.CPU
            if targets:
                out = self._with_targets(targets, held)
            code = self._library.run(self._handle, self._in, len(values), out, len(out))
            if code != abi.OK:
                kind = InputError if code == abi.BAD_ARGUMENT else ModelRunError
                raise kind(self._library.error())
            if not targets and not on_device:
                return [view.copy() for view in self._views]
            return [self._result(i, out[i], targets, on_device) for i in range(len(out))]

    def _with_targets(self, targets: Mapping[str, object], held: list[object]) -> Any:
        """The structs of a call that writes some results to the caller's arrays."""
        names = [info.name for info in self.outputs]
        for name in targets:
            if name not in names:
                raise InputError(f'the model has no output "{name}"; it has {_names(self.outputs)}')
        out = (abi.DLTensor * len(names))(*self._out)
        for index, (name, view) in enumerate(zip(names, self._views, strict=True)):
            if name in targets:
                out[index], owner = target_of(name, view.dtype, targets[name], self.stream)
                held.append(owner)
        return out

    def _result(
        self, index: int, tensor: abi.DLTensor, targets: Mapping[str, object], on_device: bool
    ) -> object:
        name, view = self.outputs[index].name, self._views[index]
        if name in targets:
            return targets[name]
        self._out[index] = tensor
        return DeviceArray(self, tensor, view.dtype) if on_device else view.copy()

    def _set_input(self, index: int, value: object) -> object:
        dtype = self._dtypes[index]
        if self._on_gpu and is_on_gpu(value):
            place = f'input "{self.inputs[index].name}"'
            borrowed = Borrowed(place, dtype, value, self.stream)
            self._in[index] = borrowed.tensor
            self._in_shapes[index] = None
            return borrowed
        if type(value) is np.ndarray and value.dtype == dtype and is_plain(value):
            array: Array = value
        else:
            array = convert(self.inputs[index].name, dtype, value)
        tensor = self._in_tensors[index]
        shape = array.shape
        if shape != self._in_shapes[index]:
            memory = (ctypes.c_int64 * len(shape))(*shape)
            if self._on_gpu:  # an array there may have been here before
                self._in[index] = self._host_form[index]
            tensor.ndim = len(shape)
            tensor.shape = ctypes.cast(memory, ctypes.POINTER(ctypes.c_int64))
            self._shape_memory[index] = memory
            self._in_shapes[index] = shape
        tensor.data = array.__array_interface__["data"][0]
        return array

    def _wrong_names(self, inputs: object) -> InputError:
        if not isinstance(inputs, Mapping):
            return InputError(
                f"run takes a mapping from input names to arrays, got {type(inputs).__name__}"
            )
        known = [info.name for info in self.inputs]
        for name in inputs:
            if name not in known:
                close = difflib.get_close_matches(str(name), known, 1)
                hint = f'did you mean "{close[0]}"?' if close else f"it has {_names(self.inputs)}"
                return InputError(f'the model has no input "{name}"; {hint}')
        missing = [info for info in self.inputs if info.name not in inputs]
        return InputError(
            f"{'input' if len(missing) == 1 else 'inputs'} {_names(missing)} missing: expected "
            + ", ".join(f"{info.dtype} {_shape(info.shape)}" for info in missing)
        )

    def close(self) -> None:
        """Free the model's memory; the last one of a library also ends its worker threads."""
        with self._lock:
            handle, self._handle = self._handle, ctypes.c_void_p()
            if handle:
                self._library.destroy(handle)
                self._library.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self, _is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # At exit the process ends anyway, and what close() needs may be gone: even ``sys`` itself.
        if not _is_finalizing() and getattr(self, "_handle", None):
            self.close()

    def __reduce__(self) -> NoReturn:
        # A copy would share the handle, and free it too.
        raise TypeError("a loaded model cannot be copied or pickled; load its library again")

    def __repr__(self) -> str:
        def text(infos: Sequence[TensorInfo]) -> str:
            return ", ".join(f"{i.name}: {i.dtype} {_shape(i.shape)}" for i in infos)

        return f"<Model {self._library.path} ({text(self.inputs)}) -> ({text(self.outputs)})>"


_models: weakref.WeakSet[Model] = weakref.WeakSet()


def _renew_locks() -> None:
    """In a forked child: a thread that held a lock does not exist there."""
    for model in _models:
        model._lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_locks)


def _infos(library: Library, key: str) -> tuple[TensorInfo, ...]:
    try:
        infos = tuple(
            TensorInfo(str(t["name"]), str(t["dtype"]), tuple(t["shape"]))
            for t in library.metadata[key]
        )
    except (KeyError, TypeError) as err:
        raise ModelLoadError(f"{library.path}: its metadata cannot be read ({err})") from err
    for info in infos:
        if info.dtype not in abi.DTYPES:
            raise ModelLoadError(
                f'{library.path}: "{info.name}" has the data type {info.dtype}, '
                "which this version does not know"
            )
    return infos


def _names(infos: Sequence[TensorInfo]) -> str:
    return ", ".join(f'"{info.name}"' for info in infos) or "no inputs"


def _shape(shape: Sequence[int | str | None]) -> str:
    sizes = ", ".join("?" if size is None else str(size) for size in shape)
    return f"({sizes},)" if len(shape) == 1 else f"({sizes})"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
