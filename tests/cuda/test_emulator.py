"""The emulator itself: what kernels may do, and that it finds what they may not."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.cuda.emulator import Emulator

INVALID_VALUE, ILLEGAL_ADDRESS, MISALIGNED, LAUNCH_FAILED = 1, 700, 716, 719

Array = npt.NDArray[Any]


class Gpu:
    """Calls of the driver, as a program makes them."""

    def __init__(self, emulator: Emulator) -> None:
        self.emulator = emulator
        self._context = ctypes.c_void_p()
        self._memory: list[ctypes.c_void_p] = []
        self._modules: list[ctypes.c_void_p] = []
        self("cuInit", 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), 0)
        self("cuCtxPushCurrent_v2", self._context)

    def __call__(self, name: str, *arguments: Any, code: int = 0) -> None:
        assert getattr(self.emulator.library, name)(*arguments) == code, name

    def put(self, array: Array) -> ctypes.c_void_p:
        memory, size = ctypes.c_void_p(), ctypes.c_size_t(array.nbytes)
        self("cuMemAlloc_v2", ctypes.byref(memory), size)
        self._memory.append(memory)
        self("cuMemcpyHtoDAsync_v2", memory, ctypes.c_void_p(array.ctypes.data), size, None)
        return memory

    def get(self, memory: ctypes.c_void_p, shape: Any, dtype: Any = np.float32) -> Array:
        result = np.empty(shape, dtype)
        size = ctypes.c_size_t(result.nbytes)
        self("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(result.ctypes.data), memory, size, None)
        self("cuStreamSynchronize", None)
        return result

    def function(self, text: str, name: str = "f") -> ctypes.c_void_p:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self("cuModuleLoadData", ctypes.byref(module), text.encode())
        self._modules.append(module)
        self("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        return function

    def launch(
        self, function: Any, grid: Any, block: Any, *arguments: Any, shared: int = 0, code: int = 0
    ) -> None:
        three = [*grid, *[1] * (3 - len(grid)), *block, *[1] * (3 - len(block))]
        addresses = [ctypes.addressof(a) for a in arguments]
        values = (ctypes.c_void_p * (len(arguments) + 1))(*addresses)
        self("cuLaunchKernel", function, *three, shared, None, values, None, code=code)

    def run(self, text: str, array: Array, block: int, *, code: int = 0, grid: int = 1) -> Array:
        """What ``f`` makes of the array."""
        memory = self.put(array)
        self.launch(self.function(text), (grid,), (block,), memory)
        self("cuStreamSynchronize", None, code=code)
        return self.get(memory, array.shape, array.dtype) if code == 0 else array

    def close(self) -> None:
        for memory in self._memory:
            self.emulator.library.cuMemFree_v2(memory)
        for module in self._modules:
            self.emulator.library.cuModuleUnload(module)
        self("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        self("cuDevicePrimaryCtxRelease_v2", 0)


@pytest.fixture
def cuda(gpu: Emulator) -> Iterator[Gpu]:
    made = Gpu(gpu)
    yield made
    made.close()


def kernel(body: str, parameters: str = "float *x") -> str:
    return f'extern "C" __global__ void f({parameters}) {{\n{body}\n}}\n'


@pytest.mark.parametrize("backward", [False, True])
def test_threads_and_blocks(cuda: Gpu, backward: bool) -> None:
    cuda.emulator.set_backward(backward=backward)
    text = kernel("""
      int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
      int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
      int n = blockDim.x * blockDim.y * blockDim.z;
      x[block * n + thread] += block * n + thread;
    """)
    memory = cuda.put(np.ones(2 * 3 * 4 * 5 * 6 * 7, np.float32))
    cuda.launch(cuda.function(text), (2, 3, 4), (5, 6, 7), memory)
    np.testing.assert_array_equal(cuda.get(memory, 5040), np.arange(5040) + 1)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("block", [1, 31, 32, 100, 256, 1024])
def test_barriers(cuda: Gpu, block: int, backward: bool) -> None:
    """Values go once around the block, a step between any two barriers."""
    cuda.emulator.set_backward(backward=backward)
    text = kernel("""
      __shared__ float tile[1024];
      float value = x[threadIdx.x];
      for (int i = 0; i < 3; ++i) {
        tile[threadIdx.x] = value;
        __syncthreads();
        value = tile[(threadIdx.x + 1) % blockDim.x];
        __syncthreads();
      }
      x[threadIdx.x] = value;
    """)
    x = np.arange(block, dtype=np.float32)
    np.testing.assert_array_equal(cuda.run(text, x, block), np.roll(x, -3))


@pytest.mark.parametrize("missing", [1, 2])
def test_missing_barriers_change_results(cuda: Gpu, missing: int) -> None:
    barriers = ["__syncthreads();" if i != missing else "" for i in (1, 2)]
    text = kernel(f"""
      __shared__ float tile[64];
      float value = x[threadIdx.x];
      for (int i = 0; i < 3; ++i) {{
        tile[threadIdx.x] = value;
        {barriers[0]}
        value = tile[(threadIdx.x + 1) % 64];
        {barriers[1]}
      }}
      x[threadIdx.x] = value;
    """)
    x = np.arange(64, dtype=np.float32)
    assert not np.array_equal(cuda.run(text, x, 64), np.roll(x, -3))


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(
    ("exchange", "expected"),
    [
        ("__shfl_xor_sync(0xffffffffu, v, 5)", lambda lane: lane ^ 5),
        ("__shfl_xor_sync(0xffffffffu, v, 3, 4)", lambda lane: lane ^ 3),
        ("__shfl_down_sync(0xffffffffu, v, 3)", lambda lane: np.where(lane < 29, lane + 3, lane)),
        ("__shfl_up_sync(0xffffffffu, v, 3)", lambda lane: np.where(lane >= 3, lane - 3, lane)),
        ("__shfl_sync(0xffffffffu, v, 7)", lambda lane: lane * 0 + 7),
        ("__shfl_sync(0xffffffffu, v, 1, 8)", lambda lane: lane // 8 * 8 + 1),
        ("__popc(__ballot_sync(0xffffffffu, lane % 3 == 0))", lambda lane: lane * 0 + 11),
        ("__any_sync(0xffffffffu, lane == 9)", lambda lane: lane * 0 + 1),
        ("__all_sync(0xffffffffu, lane < 31)", lambda lane: lane * 0),
    ],
)
def test_exchanges(cuda: Gpu, exchange: str, expected: Any, backward: bool) -> None:
    cuda.emulator.set_backward(backward=backward)
    text = kernel(f"""
      int lane = threadIdx.x % 32;
      float v = lane;
      x[threadIdx.x] = {exchange};
    """)
    result = cuda.run(text, np.zeros(96, np.float32), 96)
    np.testing.assert_array_equal(result, expected(np.arange(96) % 32))


def test_wide_values_are_exchanged(cuda: Gpu) -> None:
    text = kernel(
        "long long v = 1LL << threadIdx.x; x[threadIdx.x] = __shfl_xor_sync(~0u, v, 1);",
        "long long *x",
    )
    result = cuda.run(text, np.zeros(32, np.int64), 32)
    np.testing.assert_array_equal(result, np.int64(1) << (np.arange(32) ^ 1))


def test_lanes_that_returned_take_no_part(cuda: Gpu) -> None:
    text = kernel("""
      if (threadIdx.x >= 20) return;
      float v = threadIdx.x;
      x[threadIdx.x] = __shfl_down_sync(0xffffffffu, v, 1);
    """)
    result = cuda.run(text, np.zeros(32, np.float32), 32)
    np.testing.assert_array_equal(result[:19], np.arange(19) + 1)
    assert np.isnan(result[19]), "what a lane gives that has returned is not defined"


MMA_TF32 = """
#ifdef RTEN_EMULATED
#define MMA(d, a, b) emu_mma_tf32(d, a, b)
#define PART(x) emu_to_tf32(x)
#endif
extern "C" __global__ void f(const float *a, const float *b, float *d) {
  int lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
  unsigned x[4], y[2];
  float sums[4] = {0, 0, 0, 0};
  for (int i = 0; i < 4; ++i) x[i] = PART(a[(group + i % 2 * 8) * 8 + quad + i / 2 * 4]);
  for (int i = 0; i < 2; ++i) y[i] = PART(b[(quad + i * 4) * 8 + group]);
  MMA(sums, x, y);
  for (int i = 0; i < 4; ++i) d[(group + i / 2 * 8) * 8 + quad * 2 + i % 2] = sums[i];
}
"""
MMA_F16 = """
extern "C" __global__ void f(const float *a, const float *b, float *d) {
  int lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
  unsigned x[4], y[2];
  float sums[4] = {0, 0, 0, 0};
  for (int i = 0; i < 4; ++i) {
    const float *p = a + (group + i % 2 * 8) * 16 + quad * 2 + i / 2 * 8;
    x[i] = emu_to_f16x2(p[1], p[0]);
  }
  for (int i = 0; i < 2; ++i) {
    const float *p = b + (quad * 2 + i * 8) * 8 + group;
    y[i] = emu_to_f16x2(p[8], p[0]);
  }
  emu_mma_f16(sums, x, y);
  for (int i = 0; i < 4; ++i) d[(group + i / 2 * 8) * 8 + quad * 2 + i % 2] = sums[i];
}
"""


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(
    ("text", "depth", "bits"), [(MMA_TF32, 8, 11), (MMA_F16, 16, 11)], ids=["tf32", "f16"]
)
def test_tensor_cores(cuda: Gpu, text: str, depth: int, bits: int, backward: bool) -> None:
    cuda.emulator.set_backward(backward=backward)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((16, depth), (depth, 8)))
    result = cuda.put(np.zeros((16, 8), np.float32))
    cuda.launch(cuda.function(text), (1,), (32,), cuda.put(a), cuda.put(b), result)
    got = cuda.get(result, (16, 8))
    error = np.abs(got - a @ b)
    assert 0 < error.max() < depth * 16 * 2.0**-bits
    rounded = [x.astype(np.float16).astype(np.float32) for x in (a, b)]
    if depth == 16:
        np.testing.assert_allclose(got, rounded[0] @ rounded[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("if (threadIdx.x < 40) __syncthreads();", "for threads that never come there (24 of 64"),
        (
            "if (threadIdx.x < 40) __syncthreads();\nelse __syncthreads();",
            "waits at the barrier of line 3, but other threads at that of line 2",
        ),
        (
            "if (threadIdx.x % 2) __shfl_sync(~0u, 1, 0);\nelse __syncthreads();",
            "waits at line",
        ),
        (
            "if (threadIdx.x % 2) __shfl_sync(~0u, 1, 0);\nelse __shfl_sync(~0u, 1, 1);",
            "exchanges with lanes that are at another line, or by another mask",
        ),
        ("__shfl_sync(1u, 1, 0);", "exchanges with lanes by a mask that it is not in"),
        ("__trap();", "__trap()"),
        ("int a[4]; a[threadIdx.x % 8] = 1; x[0] = a[0];", "an index out of an array"),
        ("__shared__ int a[4]; a[threadIdx.x] = 1;", "an index out of an array"),
        ("x[1] = 7 / (int)x[0];", "division by zero"),
    ],
)
def test_faults(cuda: Gpu, body: str, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    cuda.run(kernel(body), np.zeros(64, np.float32), 64, code=LAUNCH_FAILED)
    assert message in capfd.readouterr().err


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("x[64] = 1;", "uses byte 256 of an allocation of 256 bytes"),
        ("x[100000000] = 1;", "before or far from any allocation"),
        ("x[-64 * 256] = 1;", "of an allocation of 256 bytes"),
        ("*(int *)24 = 1;", "uses 0x18, which is not device memory"),
    ],
)
def test_wrong_addresses(
    cuda: Gpu, body: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    cuda.run(kernel(body), np.zeros(64, np.float32), 64, code=ILLEGAL_ADDRESS)
    error = capfd.readouterr().err
    assert "emulator: kernel f, block (0, 0, 0), thread (0, 0, 0): " in error
    assert message in error
    # The device does nothing any more.
    cuda("cuStreamSynchronize", None, code=ILLEGAL_ADDRESS)


def test_misaligned_vectors(cuda: Gpu) -> None:
    text = kernel("*(float4 *)(x + 1) = make_float4(1, 2, 3, 4);")
    cuda.run(text, np.zeros(64, np.float32), 1, code=MISALIGNED)


def test_writes_beside_an_allocation(cuda: Gpu, capfd: pytest.CaptureFixture[str]) -> None:
    """Allocations begin at multiples of 256 bytes, so that some bytes after them exist."""
    memory = cuda.put(np.zeros(3, np.float32))
    cuda.launch(cuda.function(kernel("x[3] = 1;")), (1,), (1,), memory)
    cuda._memory.remove(memory)
    cuda("cuMemFree_v2", memory, code=ILLEGAL_ADDRESS)
    assert "a kernel wrote beside an allocation of 12 bytes" in capfd.readouterr().err


def test_memory_that_was_freed(cuda: Gpu, capfd: pytest.CaptureFixture[str]) -> None:
    memory = cuda.put(np.zeros(64, np.float32))
    cuda._memory.remove(memory)
    cuda("cuMemFree_v2", memory)
    cuda("cuMemFree_v2", memory, code=INVALID_VALUE)
    cuda.launch(cuda.function(kernel("x[0] = 1;")), (1,), (1,), memory)
    cuda("cuStreamSynchronize", None, code=ILLEGAL_ADDRESS)
    assert "uses memory that was freed" in capfd.readouterr().err


def test_addresses_of_the_host(cuda: Gpu, capfd: pytest.CaptureFixture[str]) -> None:
    own = np.zeros(4, np.float32)
    function = cuda.function(kernel("x[0] = 1;"))
    cuda.launch(function, (1,), (1,), ctypes.c_void_p(own.ctypes.data))
    cuda("cuStreamSynchronize", None, code=ILLEGAL_ADDRESS)
    assert "uses an argument that is no address of the device" in capfd.readouterr().err


def test_memory_is_not_zeroed(cuda: Gpu) -> None:
    memory = ctypes.c_void_p()
    cuda("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(64))
    cuda._memory.append(memory)
    assert np.isnan(cuda.get(memory, 16)).all()
    text = kernel("__shared__ float t[8]; x[threadIdx.x] = t[threadIdx.x]; t[threadIdx.x] = 1;")
    assert np.isnan(cuda.run(text, np.zeros(8, np.float32), 8, grid=2)).all()


def test_dynamic_shared_memory(cuda: Gpu, capfd: pytest.CaptureFixture[str]) -> None:
    text = kernel("""
      extern __shared__ __align__(16) float tile[];
      tile[threadIdx.x] = x[threadIdx.x];
      __syncthreads();
      x[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
    """)
    function, x = cuda.function(text), np.arange(64, dtype=np.float32)
    memory = cuda.put(x)
    cuda.launch(function, (1,), (64,), memory, shared=256)
    np.testing.assert_array_equal(cuda.get(memory, 64), x[::-1])
    # More than 48 KB must be asked for first.
    cuda.launch(function, (1,), (64,), memory, shared=60000, code=INVALID_VALUE)
    assert "60000 bytes of shared memory were not asked for" in capfd.readouterr().err
    cuda("cuFuncSetAttribute", function, 8, 60000)
    cuda.launch(function, (1,), (64,), memory, shared=60000)
    cuda("cuStreamSynchronize", None)
    cuda.launch(function, (1,), (64,), memory, shared=240)
    cuda("cuStreamSynchronize", None, code=ILLEGAL_ADDRESS)


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [
        ((1,), (1025,), "a block of 1025 x 1 x 1 threads"),
        ((1,), (1, 1, 65), "a block of 1 x 1 x 65 threads"),
        ((1,), (0,), "a block of 0 x 1 x 1 threads"),
        ((0,), (1,), "a grid of 0 x 1 x 1 blocks"),
        ((1, 65536), (1,), "a grid of 1 x 65536 x 1 blocks"),
        ((1,), (129,), "129 threads, more than its launch bounds say"),
    ],
)
def test_wrong_launches(
    cuda: Gpu, grid: Any, block: Any, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    text = 'extern "C" __global__ void __launch_bounds__(128) f() {}'
    cuda.launch(cuda.function(text), grid, block, code=INVALID_VALUE)
    assert f"emulator: kernel f: {message}" in capfd.readouterr().err


def test_work_is_done_when_someone_waits(cuda: Gpu) -> None:
    """So that a program that forgets to wait sees what was there before."""
    memory = cuda.put(np.zeros(4, np.float32))
    cuda.launch(cuda.function(kernel("x[threadIdx.x] = 1;")), (1,), (4,), memory)
    result = np.full(4, 7, np.float32)
    to, size = ctypes.c_void_p(result.ctypes.data), ctypes.c_size_t(16)
    cuda("cuMemcpyDtoHAsync_v2", to, memory, size, None)
    np.testing.assert_array_equal(result, [7, 7, 7, 7])
    cuda("cuStreamSynchronize", None)
    np.testing.assert_array_equal(result, [1, 1, 1, 1])


def test_copies_outside_of_an_allocation(cuda: Gpu, capfd: pytest.CaptureFixture[str]) -> None:
    memory, own = cuda.put(np.zeros(4, np.float32)), np.zeros(8, np.float32)
    host, size = ctypes.c_void_p(own.ctypes.data), ctypes.c_size_t(20)
    cuda("cuMemcpyHtoDAsync_v2", memory, host, size, None, code=INVALID_VALUE)
    cuda("cuMemcpyDtoHAsync_v2", host, memory, size, None, code=INVALID_VALUE)
    cuda("cuMemcpyDtoDAsync_v2", memory, host, ctypes.c_size_t(4), None, code=INVALID_VALUE)
    assert capfd.readouterr().err.count("outside of what is allocated") == 3


def test_modules_have_variables_of_their_own(cuda: Gpu) -> None:
    text = "__device__ int count;\n" + kernel("x[0] = ++count;")
    first, second = cuda.function(text), cuda.function(text)
    memory = cuda.put(np.zeros(1, np.float32))
    for function in (first, first, second):
        cuda.launch(function, (1,), (1,), memory)
    assert cuda.get(memory, 1)[0] == 1
    address, size = ctypes.c_void_p(), ctypes.c_size_t()
    references = (ctypes.byref(address), ctypes.byref(size))
    cuda("cuModuleGetGlobal_v2", *references, cuda._modules[0], b"count")
    assert (size.value, cuda.get(address, 1, np.int32)[0]) == (4, 2)
    cuda("cuModuleGetGlobal_v2", *references, cuda._modules[0], b"none", code=500)


def test_wrong_text(cuda: Gpu, capfd: pytest.CaptureFixture[str]) -> None:
    module = ctypes.c_void_p()
    cuda("cuModuleLoadData", ctypes.byref(module), kernel("x[0] = y;").encode(), code=200)
    error = capfd.readouterr().err
    assert "image.cu:2:8: error: use of undeclared identifier 'y'" in error
    cuda("cuModuleLoadData", ctypes.byref(module), b"\x7fELF...", code=200)


def test_the_host_cannot_use_device_memory(tmp_path: Path) -> None:
    code = """
import ctypes
import numpy as np
from tests.cuda import emulator
from tests.cuda.test_emulator import Gpu
memory = Gpu(emulator.install()).put(np.ones(4, np.float32))
print(ctypes.c_float.from_address(memory.value).value)
"""
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": root}, capture_output=True
    )
    assert done.returncode == -11
    assert done.stdout == b""
