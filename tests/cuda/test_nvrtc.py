"""NVRTC: machine code and PTX of a text, what it says of kernels, and how it fails."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from rten_aot.codegen import nvrtc
from rten_aot.errors import CompileError, InternalError, TargetError

needs_nvrtc = pytest.mark.skipif(
    not nvrtc._installed(), reason="the package nvidia-cuda-nvrtc-cu12 is not installed"
)
TEXT = Path(__file__).with_name("fake_kernels.cu").read_text()
KERNELS = {"add", "row_sums", "pick", "count_rows", "keep_rows", "stray", "diverge", "misalign"}


@needs_nvrtc
@pytest.mark.parametrize("arch", [75, 80, 86, 87, 89, 90, 100, 120])
def test_machine_code(arch: int) -> None:
    image = nvrtc.compile_image(TEXT, arch)
    assert (image.arch, image.is_ptx) == (arch, False)
    assert image.data[:4] == b"\x7fELF"
    assert image.kernels.keys() == KERNELS
    assert image.kernels["row_sums"].shared_bytes in range(8, 2048)
    assert all(3 < kernel.registers <= 255 for kernel in image.kernels.values())
    assert all(kernel.spill_stores == 0 for kernel in image.kernels.values())


@needs_nvrtc
def test_the_same_text_gives_the_same_bytes() -> None:
    assert nvrtc.compile_image(TEXT, 80).data == nvrtc.compile_image(TEXT, 80).data


@needs_nvrtc
def test_ptx() -> None:
    image = nvrtc.compile_image(TEXT, 90, ptx=True)
    assert image.is_ptx
    assert image.data.endswith(b"\0")
    assert b".target sm_90" in image.data
    assert b".visible .entry row_sums(" in image.data
    assert b".global .align 8 .b8 rten_cuda_failure[24]" in image.data


@needs_nvrtc
def test_unknown_architecture() -> None:
    with pytest.raises(TargetError, match=r'"sm_33" is not known to NVRTC \d+\.\d+; it knows sm_'):
        nvrtc.compile_image(TEXT, 33)


@needs_nvrtc
def test_wrong_text() -> None:
    text = 'extern "C" __global__ void f(float *x) { x[0] = y; }'
    with pytest.raises(
        InternalError, match=r'does not compile:\nkernels.cu\(1\).*"y" is undefined'
    ):
        nvrtc.compile_image(text, 80)


def test_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr(nvrtc, "_PACKAGES", (("nvidia.none", "libnvrtc.so.999"),))
    nvrtc._library.cache_clear()
    try:
        with pytest.raises(CompileError, match=r"\(NVRTC\) is not installed\nhint: .*\[cuda\]"):
            nvrtc.compile_image(TEXT, 80)
    finally:
        nvrtc._library.cache_clear()


def test_spills_are_read() -> None:
    log = """\
ptxas info    : 24 bytes gmem, 8 bytes cmem[4]
ptxas info    : Compiling entry function 'gemm' for 'sm_80'
ptxas info    : Function properties for gemm
ptxas         .     16 bytes stack frame, 20 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 16384 bytes smem, 376 bytes cmem[0]
ptxas info    : Compile time = 1.394 ms
ptxas info    : Compiling entry function 'add' for 'sm_80'
ptxas info    : Function properties for add
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, 360 bytes cmem[0]
"""
    assert nvrtc.read_resources(log) == {
        "gemm": nvrtc.Resources(255, 16384, 16, 20, 24),
        "add": nvrtc.Resources(10, 0, 0, 0, 0),
    }
