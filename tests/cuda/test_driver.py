"""The driver layer in C, on emulated GPUs: load errors, runs, failures, several handles, leaks."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from rten_aot.runtime import InputError, Model, ModelLoadError, ModelRunError, abi, load
from rten_aot.runtime.library import Library
from tests.cuda import emulator, fake_library
from tests.cuda.emulator import Emulator
from tests.cuda.fake_library import build_fake, expected, feed

OUT_OF_MEMORY, NO_DEVICE, UNKNOWN = 2, 100, 999


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_fake(tmp_path_factory.mktemp("cuda"))


@pytest.fixture(scope="module")
def faultless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without kernels that report failures: modules are shared, and nothing makes runs wait."""
    return build_fake(tmp_path_factory.mktemp("faultless"), can_fail=False)


def check(model: Model, batch: int = 3) -> None:
    inputs = feed(batch)
    results = model.run(inputs)
    for name, array in expected(inputs).items():
        np.testing.assert_allclose(results[name], array, rtol=1e-6)


# ---- loading ---------------------------------------------------------------------------------


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(root), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_no_driver(path: Path) -> None:
    done = run_python(f"from rten_aot.runtime import load; load({str(path)!r})", LD_LIBRARY_PATH="")
    if "libcuda.so.1" not in done.stderr and done.returncode == 0:
        pytest.skip("this machine has a driver")
    assert re.search(
        r"ModelLoadError: .*fake\.so: there is no NVIDIA driver, which this artifact needs: "
        r"libcuda\.so\.1: cannot open shared object file",
        done.stderr,
    )


def test_old_driver(path: Path, tmp_path: Path) -> None:
    source = tmp_path / "old.c"
    source.write_text("int cuInit(unsigned flags) { return 0; }")
    emulator._zig(["cc", "-shared", "-o", str(tmp_path / "libcuda.so.1"), str(source)])
    code = f"from rten_aot.runtime import load; load({str(path)!r})"
    done = run_python(code, LD_LIBRARY_PATH=str(tmp_path))
    assert re.search(
        "the NVIDIA driver is too old: libcuda.so.1 has no function cuGetErrorName", done.stderr
    )


def test_no_device(path: Path) -> None:
    code = f"""
from tests.cuda import emulator
from rten_aot.runtime import load
emulator.install().set_devices()
load({str(path)!r})
"""
    assert "there is no NVIDIA GPU, which this artifact needs" in run_python(code).stderr


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (UNKNOWN, r"the NVIDIA driver does not start: error \(unknown\)"),
        (NO_DEVICE, "there is no NVIDIA GPU, which this artifact needs"),
    ],
)
def test_driver_that_does_not_start(path: Path, code: int, message: str) -> None:
    """In a process of its own, since one that has started stays open; a second try may go well."""
    program = f"""
from tests.cuda import emulator
from tests.cuda.test_driver import check
from rten_aot.runtime import load
gpu = emulator.install()
gpu.fail("cuInit", {code})
try:
    load({str(path)!r})
except Exception as err:
    print(type(err).__name__, err)
check(load({str(path)!r}))
"""
    done = run_python(program)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rf"ModelLoadError .*{message}\n", done.stdout), done.stdout


def test_runs_beside_numpy_alone(path: Path) -> None:
    """Nothing of the compiler, NVRTC among it, is needed to run an artifact."""
    program = f"""
import sys
from tests.cuda import emulator
from tests.cuda.fake_library import expected, feed
emulator.install()
unwanted = {{"tvm", "tvm_ffi", "ziglang", "nvidia", "flatbuffers", "onnx", "cupy", "torch"}}
for name in [n for n in sys.modules if n.split(".")[0] in unwanted | {{"rten_aot"}}]:
    del sys.modules[name]
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in unwanted:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import rten_aot
with rten_aot.load({str(path)!r}) as model:
    results = model.run(feed(5))
assert all((results[name] == array).all() for name, array in expected(feed(5)).items())
assert not [n for n in sys.modules if n.split(".")[0] in unwanted]
"""
    done = run_python(program)
    assert done.returncode == 0, done.stderr


def test_wrong_device(path: Path, gpu: Emulator) -> None:
    gpu.set_devices(80, 80)
    with pytest.raises(ModelLoadError, match="there is no GPU 2, only 0 to 1"):
        load(path, device=2)
    with pytest.raises(ValueError, match="device is -1, expected 0 or more"):
        load(path, device=-1)
    handle = ctypes.c_void_p()
    options = abi.Options(struct_size=ctypes.sizeof(abi.Options), device_id=-1)
    library = Library(path)
    assert library.create(ctypes.byref(options), ctypes.byref(handle)) == abi.BAD_ARGUMENT
    assert library.error() == "options: device_id is -1, expected 0 or more"
    library.close()


@pytest.mark.parametrize(
    ("archs", "capability", "chosen"),
    [
        (["sm_80"], 80, 0),
        (["sm_80"], 86, 0),
        (["sm_80", "sm_86"], 86, 1),
        (["sm_86", "sm_80"], 89, 0),
        (["sm_80", "sm_86"], 80, 0),
        (["compute_80", "sm_80"], 80, 1),
        (["sm_80", "compute_80"], 90, 1),
        (["compute_75", "compute_90", "compute_80"], 89, 2),
        (["sm_80"], 90, None),
        (["sm_86"], 80, None),
        (["sm_90", "compute_90"], 80, None),
        (["sm_120"], 100, None),
        (["sm_100", "compute_120"], 103, 0),
    ],
)
def test_choice_of_code(
    tmp_path: Path, gpu: Emulator, archs: list[str], capability: int, chosen: int | None
) -> None:
    gpu.set_devices(capability)
    path = build_fake(tmp_path / "fake", archs=archs)
    if chosen is None:
        message = (
            rf'the GPU "Emulated GPU 0" is sm_{capability}, for which this artifact has no code '
            rf"\(it has {', '.join(archs)}\)"
        )
        with pytest.raises(ModelLoadError, match=message):
            load(path)
        return
    with load(path) as model:
        check(model)
    loaded = [line for line in gpu.take_log() if line.startswith("cuModuleLoadData")]
    assert loaded == [f"cuModuleLoadData // {archs[chosen]}"]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("cuDevicePrimaryCtxRetain", "the GPU cannot be used: "),
        ("cuCtxPushCurrent_v2", "the GPU cannot be used: "),
        ("cuDeviceGetAttribute", "the GPU cannot be asked: "),
        ("cuDeviceGetCount", "the GPUs cannot be counted: "),
        ("cuDeviceGet", "the GPUs cannot be counted: "),
        (
            "cuModuleLoadData",
            r"the NVIDIA driver \(for CUDA 12.4\) does not take the code for sm_80: ",
        ),
        ("cuModuleGetFunction", "add: "),
        ("cuModuleGetGlobal_v2", "rten_cuda_failure: "),
        ("cuMemAlloc_v2", "16 bytes of weights: "),
        ("cuMemcpyHtoDAsync_v2", "16 bytes of weights: "),
        ("cuStreamSynchronize", "16 bytes of weights: "),
        ("cuStreamCreate", "no stream can be made: "),
    ],
)
def test_each_call_of_loading_may_fail(
    path: Path, gpu: Emulator, function: str, message: str
) -> None:
    gpu.fail(function, UNKNOWN)
    with pytest.raises(ModelLoadError, match=message + r"error \(unknown\)"):
        load(path)
    gpu.fail(function, 0, 0)
    with load(path) as model:
        check(model)


def test_out_of_memory_while_loading(path: Path, gpu: Emulator) -> None:
    gpu.set_memory(8)
    library, handle = Library(path), ctypes.c_void_p()
    assert library.create(None, ctypes.byref(handle)) == abi.OUT_OF_MEMORY
    assert library.error() == "16 bytes of weights: out of memory (CUDA_ERROR_OUT_OF_MEMORY)"
    library.close()


# ---- runs ------------------------------------------------------------------------------------


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


# ---- handles ---------------------------------------------------------------------------------


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


# ---- graphs ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_fake(tmp_path_factory.mktemp("plain"), plain=True, can_fail=False)


@pytest.fixture(scope="module")
def plain_that_fails(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_fake(tmp_path_factory.mktemp("plain_fails"), plain=True)


def check_plain(model: Model, batch: int = 3) -> None:
    x = feed(batch)["x"]
    results = model.run({"x": x})
    assert list(results) == ["y", "sums"]
    for name, array in results.items():
        np.testing.assert_allclose(array, expected(feed(batch))[name], rtol=1e-6)


def graph_calls(gpu: Emulator) -> list[str]:
    """Launches, and what is done with graphs, since the last time."""
    names = {
        "cuLaunchKernel": "kernel",
        "cuStreamBeginCapture_v2": "record",
        "cuGraphLaunch": "replay",
        "cuGraphExecDestroy": "drop",
    }
    calls = [line.split()[0] for line in gpu.take_log()]
    return [names[call] for call in calls if call in names]


@pytest.mark.parametrize("library", ["plain", "plain_that_fails"])
def test_runs_that_repeat_are_recorded(
    library: str, gpu: Emulator, request: pytest.FixtureRequest
) -> None:
    with load(request.getfixturevalue(library), cuda_graph=True) as model:
        expectations = [
            (5, ["kernel", "kernel"]),
            (5, ["record", "kernel", "kernel", "replay"]),
            (5, ["replay"]),
            (5, ["replay"]),
            (4, ["drop", "kernel", "kernel"]),
            (5, ["kernel", "kernel"]),
            (5, ["record", "kernel", "kernel", "replay"]),
            (5, ["replay"]),
        ]
        for batch, calls in expectations:
            check_plain(model, batch)
            assert graph_calls(gpu) == calls
        # The same shapes in other memory.
        x, y = feed(5)["x"], np.zeros((5, 4), np.float32)
        model.run({"x": x}, outputs={"y": y})
        assert graph_calls(gpu) == ["replay"], "the host's memory is not part of a graph"
        np.testing.assert_allclose(y, expected(feed(5))["y"])
        model.run({"x": x + 1})
        assert graph_calls(gpu) == ["replay"]
    assert gpu.live().graphs == 0


def test_runs_that_read_the_gpu_are_not_recorded(path: Path, gpu: Emulator) -> None:
    with load(path, cuda_graph=True) as model:
        for _ in range(4):
            check(model)
        assert set(graph_calls(gpu)) == {"kernel"}


@pytest.mark.parametrize(
    "function", ["cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"]
)
def test_recording_may_fail(plain: Path, gpu: Emulator, function: str) -> None:
    with load(plain, cuda_graph=True) as model:
        check_plain(model)
        gpu.fail(function, UNKNOWN)
        with pytest.raises(ModelRunError, match="on the GPU, in the recording of a graph: error"):
            check_plain(model)
        if function != "cuStreamEndCapture":  # which leaves the stream as it was
            check_plain(model)


def test_replay_may_fail(plain: Path, gpu: Emulator) -> None:
    with load(plain, cuda_graph=True) as model:
        for _ in range(3):
            check_plain(model)
        gpu.fail("cuGraphLaunch", UNKNOWN)
        with pytest.raises(ModelRunError, match="on the GPU, in a kernel"):
            check_plain(model)
        check_plain(model)


def test_graphs_of_the_default_stream(plain: Path, gpu: Emulator) -> None:
    with pytest.raises(ModelLoadError, match="graphs need another stream than the default one"):
        load(plain, cuda_graph=True, stream=0)


# ---- profiles --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_fake(tmp_path_factory.mktemp("profiled"), profile=True)


def test_times_of_steps(profiled: Path, gpu: Emulator) -> None:
    with load(profiled) as model:
        for _ in range(70):
            check(model, 10)
        profile = model.take_profile()
        assert [(s.calls, s.flops, s.bytes) for s in profile.steps] == [
            (70, 70 * 40, 70 * 320),
            (70, 0, 70 * 80),
        ]
        assert 0 < sum(step.nanoseconds for step in profile.steps) < profile.nanoseconds
        assert [step.calls for step in model.take_profile().steps] == [0, 0]
        # A run that fails counts for nothing.
        with pytest.raises(ModelRunError):
            model.run(feed(mode=fake_library.GRID))
        assert [step.calls for step in model.take_profile().steps] == [0, 0]


def test_events_may_fail(profiled: Path, gpu: Emulator) -> None:
    with load(profiled) as model:
        for number in (1, 2, 5):
            gpu.fail("cuEventCreate", UNKNOWN, number)
            with pytest.raises(ModelRunError, match="out of memory: "):
                model.run(feed())
        gpu.fail("cuEventRecord", UNKNOWN, 2)
        with pytest.raises(ModelRunError, match="on the GPU, in an event: error"):
            model.run(feed())
        check(model)


def test_peaks(profiled: Path, gpu: Emulator) -> None:
    with load(profiled) as model:
        # 1 GHz, 4 multiprocessors of 64 lanes, two operations each.
        assert model.measure_peak() == 1e9 * 4 * 64 * 2
        assert model.measure_peak(1 << 20) > 1e6
        gpu.set_memory(gpu.live().bytes)
        with pytest.raises(ModelRunError, match="the GPU's best cannot be measured: out of memory"):
            model.measure_peak(1 << 20)
        gpu.set_devices(90)
        assert model.measure_peak() == 1e9 * 4 * 128 * 2


def test_wrong_arguments_leave_nothing_behind(path: Path, gpu: Emulator) -> None:
    with load(path) as model:
        check(model)
        with pytest.raises(InputError, match='input "x": expected 2 dimensions'):
            model.run({**feed(), "x": np.zeros(4, np.float32)})
        check(model)
