"""The driver layer in C, on emulated GPUs: runs, failures, several handles and threads, leaks."""

from __future__ import annotations

import ctypes
import os
import re
import threading
from pathlib import Path

import numpy as np
import pytest

from rten_aot.runtime import InputError, ModelLoadError, ModelRunError, abi, load
from rten_aot.runtime.library import Library
from tests.cuda import fake_library
from tests.cuda.emulator import Emulator
from tests.cuda.fake_library import build_fake, check, feed

UNKNOWN = 999


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_fake(tmp_path_factory.mktemp("cuda"))


@pytest.fixture(scope="module")
def faultless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without kernels that report failures: modules are shared, and nothing makes runs wait."""
    return build_fake(tmp_path_factory.mktemp("faultless"), can_fail=False)


def test_runs_of_several_sizes(path: Path, gpu: Emulator) -> None:
    with load(path) as model:
        for batch in (3, 1, 200, 2, 1000):
            check(model, batch)
        gpu.take_log()
        check(model, 1000)
        calls = [line.split()[0] for line in gpu.take_log()]
    assert "cuMemAlloc_v2" not in calls, "a second run of the same shapes allocates"
    assert calls.count("cuCtxPushCurrent_v2") == calls.count("cuCtxPopCurrent_v2") == 1


def test_launches(path: Path, gpu: Emulator) -> None:
    with load(path) as model:
        model.run(feed(100))
    launches = [line for line in gpu.take_log() if line.startswith("cuLaunchKernel")]
    assert launches == [
        "cuLaunchKernel add 4 1 1 128 1 1 0",
        "cuLaunchKernel row_sums 50 1 1 64 1 1 0",
        "cuLaunchKernel pick 2 1 1 4 1 1 0",
        "cuLaunchKernel count_rows 1 1 1 32 1 1 400",
        "cuLaunchKernel keep_rows 1 1 1 4 1 1 0",
    ]


def test_empty_grids_are_not_launched(faultless: Path, gpu: Emulator) -> None:
    with load(faultless) as model:
        # Without rows the kernel that picks some would report a failure.
        with pytest.raises(ModelRunError):
            model.run({**feed(1), "x": np.zeros((0, 4), np.float32), "mode": 5})
    assert not [line for line in gpu.take_log() if re.match(r"cuLaunchKernel \w+ 0", line)]


def test_failures_of_kernels(path: Path, gpu: Emulator) -> None:
    with load(path) as model:
        with pytest.raises(ModelRunError, match=r'in node "pick_1" \(Gather\): index 7 is out of'):
            model.run(feed(3, index=(0, 7)))
        check(model)


def test_failures_are_of_one_handle(path: Path, gpu: Emulator) -> None:
    with load(path) as first, load(path) as second:
        with pytest.raises(ModelRunError, match="index 9 is out of range"):
            first.run(feed(3, index=(9, 0)))
        check(second)
        check(first)


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        (fake_library.STRAY, r"illegal address \(CUDA_ERROR_ILLEGAL_ADDRESS\)"),
        (fake_library.DIVERGE, r"launch failed \(CUDA_ERROR_LAUNCH_FAILED\)"),
        (fake_library.MISALIGN, r"misaligned address \(CUDA_ERROR_MISALIGNED_ADDRESS\)"),
    ],
)
def test_faults_of_kernels(path: Path, gpu: Emulator, mode: int, message: str) -> None:
    with load(path) as model:
        hint = r"in a kernel \(with CUDA_LAUNCH_BLOCKING=1 in the environment, which kernel\): "
        with pytest.raises(ModelRunError, match="on the GPU, " + hint + message):
            model.run(feed(mode=mode))
        # As on a real GPU, the context is lost.
        with pytest.raises(ModelRunError, match=message):
            model.run(feed())
    with load(path) as model:
        check(model)


@pytest.mark.parametrize(
    ("mode", "kernel"),
    [
        (fake_library.STRAY, "stray"),
        (fake_library.DIVERGE, "diverge"),
        (fake_library.MISALIGN, "misalign"),
    ],
)
def test_the_kernel_that_fails_is_named(
    path: Path, gpu: Emulator, mode: int, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    with load(path) as model, pytest.raises(ModelRunError, match=rf"on the GPU, in {kernel}: "):
        model.run(feed(mode=mode))


@pytest.mark.parametrize("mode", [fake_library.GRID, fake_library.SHARED])
def test_launches_that_are_refused(path: Path, gpu: Emulator, mode: int) -> None:
    with load(path) as model:
        with pytest.raises(ModelRunError, match=r"on the GPU, in stray: invalid value \(CUDA_ERR"):
            model.run(feed(mode=mode))
        check(model)


def test_nothing_is_done_after_a_failure(path: Path, gpu: Emulator) -> None:
    with load(path) as model:
        model.run(feed())
        gpu.take_log()
        gpu.fail("cuLaunchKernel", UNKNOWN, 2)
        with pytest.raises(ModelRunError, match=r"on the GPU, in row_sums: error \(unknown\)"):
            model.run(feed())
        launches = [line.split()[1] for line in gpu.take_log() if line.startswith("cuLaunch")]
        assert launches == ["add", "row_sums"]
        check(model)


@pytest.mark.parametrize("function", ["cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"])
@pytest.mark.parametrize("number", range(1, 9))
def test_copies_may_fail(path: Path, gpu: Emulator, function: str, number: int) -> None:
    with load(path) as model:
        model.run(feed())
        gpu.take_log()
        model.run(feed())
        calls = sum(line.startswith(function) for line in gpu.take_log())
        if number > calls:
            pytest.skip("there are fewer copies")
        gpu.fail(function, UNKNOWN, number)
        with pytest.raises(ModelRunError, match=r"on the GPU, in a copy to the (GPU|host): error"):
            model.run(feed())
        check(model)


def test_out_of_memory(path: Path, gpu: Emulator) -> None:
    with load(path) as model:
        check(model)
        gpu.set_memory(gpu.live().bytes + 100)
        with pytest.raises(ModelRunError, match="out of memory: 160000 bytes for "):
            model.run(feed(10000))
        gpu.set_memory(8 << 30)
        with pytest.raises(ModelRunError, match="out of memory: 1125899906842624 bytes for "):
            model.run(feed(mode=fake_library.EXHAUST))
        check(model, 10000)


@pytest.mark.parametrize("number", [1, 2, 5, 9])
def test_allocations_may_fail(path: Path, gpu: Emulator, number: int) -> None:
    with load(path) as model:
        gpu.fail("cuMemAlloc_v2", UNKNOWN, number)
        with pytest.raises(ModelRunError, match=r"on the GPU, in an allocation: error \(unknown\)"):
            model.run(feed())
        check(model)


@pytest.mark.parametrize(("can_fail", "modules"), [(True, 3), (False, 1)])
def test_handles_share_weights_and_modules(
    path: Path, faultless: Path, gpu: Emulator, can_fail: bool, modules: int
) -> None:
    models = [load(path if can_fail else faultless) for _ in range(3)]
    assert gpu.live().modules == modules
    assert gpu.live().contexts == 1
    uploads = [line for line in gpu.take_log() if line == "cuMemcpyHtoDAsync_v2 16"]
    assert len(uploads) == 1
    models[0].close()
    for model in models[1:]:
        check(model)
        model.close()


def test_several_gpus(path: Path, gpu: Emulator) -> None:
    gpu.set_devices(80, 86)
    with load(path, device=1) as second, load(path) as first:
        check(first)
        check(second)
        assert gpu.live().contexts == 2


def test_threads(path: Path, gpu: Emulator) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(3):
                with load(path) as model:
                    for batch in (2, 30, 5):
                        check(model, batch)
                assert gpu.depth() == 0
        except BaseException as err:
            errors.append(err)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_wrong_flags(path: Path, gpu: Emulator) -> None:
    library, handle = Library(path), ctypes.c_void_p()
    options = abi.Options(struct_size=ctypes.sizeof(abi.Options), flags=6)
    assert library.create(ctypes.byref(options), ctypes.byref(handle)) == abi.BAD_ARGUMENT
    assert library.error() == "options: flags are 0x6, but only 0x1 is defined"
    library.close()


def test_forked_process(path: Path, gpu: Emulator) -> None:
    with load(path) as model:
        check(model)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            messages = []
            for action in (lambda: model.run(feed()), lambda: load(path)):
                try:
                    action()
                except (ModelRunError, ModelLoadError) as err:
                    messages.append(str(err))
            model.close()
            os.write(writer, "\n".join(messages).encode())
            os._exit(0)
        os.close(writer)
        assert os.waitpid(child, 0)[1] == 0
        text = os.read(reader, 10000).decode()
        assert text.count("a GPU cannot be used in a process forked from one that uses it") == 2
        check(model)


def test_caller_provides_the_workspace(path: Path, gpu: Emulator) -> None:
    library, handle = Library(path), ctypes.c_void_p()
    options = abi.Options(struct_size=ctypes.sizeof(abi.Options), workspace=256, workspace_bytes=10)
    assert library.create(ctypes.byref(options), ctypes.byref(handle)) == abi.OK
    library.destroy(handle)
    library.close()


def test_wrong_arguments_leave_nothing_behind(path: Path, gpu: Emulator) -> None:
    with load(path) as model:
        check(model)
        with pytest.raises(InputError, match='input "x": expected 2 dimensions'):
            model.run({**feed(), "x": np.zeros(4, np.float32)})
        check(model)
