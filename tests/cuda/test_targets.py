"""The words of ``--target`` that mean GPUs, and what a library for them says of itself."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import rten_aot
from rten_aot.cli import main
from rten_aot.cli.artifact import read_metadata
from rten_aot.codegen import nvrtc
from rten_aot.errors import CompileError, TargetError
from rten_aot.targets import descriptions, get_machine, get_machines
from rten_aot.targets.cuda.target import ARCHS, DEFAULT_ARCHS, Gpu
from tests.cuda import emulator
from tests.cuda.test_nvrtc import needs_nvrtc
from tests.support.cases import Case, write_cases


@pytest.fixture
def model(tmp_path: Path) -> Path:
    x = np.ones((3, 4), np.float32)
    write_cases([Case("sum", "Add", [x, x], np.add)], "static", tmp_path / "net.rten")
    return tmp_path / "net.rten"


@pytest.mark.parametrize(
    ("target", "archs"),
    [
        ("cuda", DEFAULT_ARCHS),
        ("cuda -arch=sm_80", ("sm_80",)),
        ("cuda -arch sm_90,sm_80", ("sm_80", "sm_90")),
        ("cuda -arch=sm_100,sm_89,sm_89", ("sm_89", "sm_100")),
        ("jetson-orin-gpu", ("sm_87",)),
    ],
)
def test_architectures(target: str, archs: tuple[str, ...]) -> None:
    machine = get_machine(target)
    assert isinstance(machine, Gpu)
    assert machine.archs == archs
    assert get_machines(target) == (machine,)


def test_the_cpu_beside_the_gpu() -> None:
    plain = get_machine("cuda -arch=sm_80")
    assert isinstance(plain, Gpu)
    assert plain.host.cpu == get_machine("llvm").cpu
    chosen = get_machine("cuda -mcpu=x86-64-v3 -mattr=-bmi -mtriple=x86_64-linux-gnu")
    assert isinstance(chosen, Gpu)
    assert (chosen.host.cpu, chosen.host.attrs) == ("x86-64-v3", ("-bmi",))
    jetson = get_machine("jetson-orin-gpu")
    assert (jetson.arch, jetson.cpu) == ("aarch64", "cortex-a78ae")
    arm = get_machine("cuda -arch=sm_87 -mtriple=aarch64-linux-gnu")
    assert arm.arch == "aarch64"


@pytest.mark.parametrize(
    ("target", "message", "hint"),
    [
        (
            "cuda -arch=sm_81",
            '-arch: unknown architecture "sm_81"; architectures: sm_75, ',
            "sm_89",
        ),
        ("cuda -arch=ampere", '-arch: unknown architecture "ampere"', None),
        ("cuda -arch=", 'option "-arch" has no value', None),
        ("cuda -march=x", 'unknown option "-march"; options: -mcpu, -mattr, -mtriple, -arch', None),
        ("cuda -precision=bf16", '-precision: "bf16" is not known; choose from fp32, tf32', None),
        ("cuda -arch=sm_75 -precision=tf32", "-precision=tf32 needs sm_80 or later, not", None),
        ("llvm -arch=sm_80", 'unknown option "-arch"; options: -mcpu, -mattr, -mtriple', None),
        ("x86-64-v3,cuda", '"cuda" is a GPU, but only CPUs can share a library', "-arch"),
        ("cud", 'unknown target "cud"', "cuda"),
    ],
)
def test_faults(target: str, message: str, hint: str | None) -> None:
    with pytest.raises(TargetError) as caught:
        get_machines(target)
    assert message in str(caught.value)
    if hint is not None:
        assert caught.value.hint is not None
        assert hint in caught.value.hint


def test_precision() -> None:
    plain, fast = get_machine("cuda"), get_machine("cuda -precision=fp16")
    assert isinstance(plain, Gpu)
    assert isinstance(fast, Gpu)
    assert (plain.precision, fast.precision) == ("fp32", "fp16")
    assert fast.archs == tuple(a for a in DEFAULT_ARCHS if a != "sm_75")


def test_all_are_listed() -> None:
    assert {"cuda", "jetson-orin-gpu"} <= descriptions().keys()
    assert set(DEFAULT_ARCHS) <= ARCHS.keys()


def test_metadata(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wanted = []

    def compile_image(source: str, arch: int, *, ptx: bool = False) -> nvrtc.Image:
        wanted.append((arch, ptx))
        image = emulator.text_image(source, arch, ptx=ptx)
        used = {} if ptx else {"rten_k0_add": nvrtc.Resources(12, 0, 0, 0, 0)}
        return nvrtc.Image(image.arch, image.is_ptx, image.data, used)

    monkeypatch.setattr(nvrtc, "compile_image", compile_image)
    library = rten_aot.compile(model, tmp_path / "net.so", target="cuda -arch=sm_80,sm_90")
    facts = read_metadata(library)
    assert sorted(wanted) == [(80, False), (90, False), (90, True)]
    assert facts["target"]["kind"] == "cuda"
    assert facts["target"]["archs"] == ["sm_80", "sm_90"]
    assert facts["kernels"]["rten_k0_add"]["sm_90"]["registers"] == 12
    assert main(["inspect", str(library)]) == 0
    assert re.search(r"rten_k0_add +sm_90 +12 registers +0 bytes shared", capsys.readouterr().out)


@needs_nvrtc
def test_inspect_says_what_kernels_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What NVRTC itself says, for each kernel and architecture; and the sizes of it all."""
    factors = [np.ones((64, 64), np.float32), np.ones((64, 64), np.float32)]
    write_cases([Case("a", "MatMul", factors, [], constant=[1])], "static", tmp_path / "a.rten")
    target = "cuda -arch=sm_80,sm_90"
    library = rten_aot.compile(tmp_path / "a.rten", tmp_path / "a.so", target=target)
    text = rten_aot.compile(
        tmp_path / "a.rten", tmp_path / "a.cu", target=target, emit="cuda"
    ).read_text()
    assert main(["inspect", str(library)]) == 0
    printed = capsys.readouterr().out
    for arch in (80, 90):
        for name, used in nvrtc.compile_image(text, arch).kernels.items():
            assert used.shared_bytes > 8192
            assert re.search(
                rf"{name} +sm_{arch} +{used.registers} registers +{used.shared_bytes} bytes shared "
                r"+0 bytes spilled",
                printed,
            )
    sizes = read_metadata(library)["sizes"]
    assert sizes["weights"] >= factors[1].nbytes
    assert sizes["code"] > sum(len(nvrtc.compile_image(text, a).data) for a in (80, 90))
    assert re.search(r"sizes:\n +code +\d+\.\d kB\n +weights +16\.4 kB\n", printed), printed


@needs_nvrtc
def test_the_same_model_gives_the_same_bytes(model: Path, tmp_path: Path) -> None:
    made = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        library = rten_aot.compile(model, tmp_path / folder / "net.so", target="cuda -arch=sm_80")
        made.append(library.read_bytes())
    assert made[0] == made[1]


def test_text_is_for_gpus_alone(model: Path, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match='"cuda" is text for GPUs, but the target is "llvm"'):
        rten_aot.compile(model, tmp_path / "net.cu", target="llvm", emit="cuda")
