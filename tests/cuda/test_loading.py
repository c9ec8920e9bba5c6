"""The driver layer in C, on emulated GPUs: what is chosen, uploaded and refused by `load`."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rten_aot.runtime import ModelLoadError, abi, load
from rten_aot.runtime.library import Library
from tests.cuda import emulator
from tests.cuda.emulator import Emulator
from tests.cuda.fake_library import build_fake, check

UNKNOWN, NO_DEVICE = 999, 100


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_fake(tmp_path_factory.mktemp("cuda"))


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
from tests.cuda.fake_library import check
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
