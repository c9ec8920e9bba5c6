"""Every stage that can be written, the levels of optimisation, and the same bytes every time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import rten_aot
from rten_aot.options import OPT_LEVELS, Emit
from rten_aot.targets import host
from tests.codegen.nets import Net, assert_right, feed, run_python, write_net

NATIVE = "llvm -mcpu=native"

COMPILE = """
import os, sys, rten_aot
source, output, target, emit = sys.argv[1:5]
rten_aot.compile(source, output, target=target, emit=emit)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_net(tmp_path_factory.mktemp("source") / "net.rten")


def text_with(*marks: str) -> Callable[[bytes], None]:
    def check(content: bytes) -> None:
        for mark in marks:
            assert mark in content.decode(), mark

    return check


def elf_of_kind(kind: int) -> Callable[[bytes], None]:
    def check(content: bytes) -> None:
        assert content[:4] == b"\x7fELF"
        assert int.from_bytes(content[16:18], "little") == kind

    return check


def is_archive(content: bytes) -> None:
    assert content.startswith(b"!<arch>\n")
    assert content.count(b"\x7fELF") == 1


CONTENT: dict[Emit, Callable[[bytes], None]] = {
    "lib": elf_of_kind(3),
    "obj": elf_of_kind(1),
    "static": is_archive,
    "relax": text_with("@R.function", "def main(image: R.Tensor((batch_", "R.call_tir(", "float32"),
    "tir": text_with("@T.prim_func", "def rten_main(", "def rten_prepare("),
    "llvm": text_with("i32 @rten_main(", "target triple"),
    "asm": text_with("rten_main:", ".text"),
    "cuda": text_with('extern "C" __global__ void', "rten_cuda_failure"),
    "header": text_with("int32_t rten_aot_run(rten_aot_model *model"),
}


def test_every_stage_is_tried() -> None:
    assert set(CONTENT) == set(get_args(Emit))


@pytest.mark.parametrize("emit", get_args(Emit))
def test_stages(source: Path, emit: Emit, tmp_path: Path) -> None:
    made = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        out = tmp_path / name / "out"
        target = "cuda" if emit == "cuda" else NATIVE
        made.append(rten_aot.compile(source, out, target=target, emit=emit).read_bytes())
    CONTENT[emit](made[0])
    assert made[0] == made[1]


@pytest.mark.parametrize("seed", ["0", "4711"])
def test_the_same_bytes_from_another_process(source: Path, seed: str, tmp_path: Path) -> None:
    """Neither the order of sets, nor the folder, nor what was compiled before plays a part."""
    here = rten_aot.compile(source, tmp_path / "net.so", target=NATIVE).read_bytes()
    (tmp_path / "elsewhere").mkdir()
    there = tmp_path / "elsewhere" / "net.so"
    run_python(COMPILE, source, there.name, NATIVE, "lib", cwd=there.parent, PYTHONHASHSEED=seed)
    assert there.read_bytes() == here


@pytest.mark.parametrize("target", ["x86-64-v3", "raspberry-pi-3"])
def test_the_same_bytes_from_another_cpu(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Constants that are computed are those of the baseline, whatever this machine can do."""
    random = np.random.default_rng(5)
    factors = (random.standard_normal(shape, np.float32) for shape in ((40, 50), (50, 60)))
    net = Net()
    result = net.op("Add", net.input("x", (40, 60)), net.op("MatMul", *factors, name="p"), name="y")
    source = net.write(tmp_path / "net.rten", result)
    here = rten_aot.compile(source, tmp_path / "net.so", target=target).read_bytes()
    monkeypatch.setattr(host, "_flags", frozenset)
    monkeypatch.setattr(host, "cpu_name", lambda: "generic")
    there = rten_aot.compile(source, tmp_path / "net.so", target=target).read_bytes()
    assert there == here


@pytest.mark.parametrize("level", OPT_LEVELS)
@pytest.mark.parametrize("threads", [1, 2])
def test_levels_agree(source: Path, level: int, threads: int, tmp_path: Path) -> None:
    library = rten_aot.compile(source, tmp_path / "net.so", target=NATIVE, opt_level=level)
    model = rten_aot.load(library, num_threads=threads)
    for batch in (1, 3):
        assert_right(model.run(feed(batch)), feed(batch))


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "native"])
def test_machines_agree(source: Path, target: str, tmp_path: Path) -> None:
    library = rten_aot.compile(source, tmp_path / "net.so", target=target)
    model = rten_aot.load(library, num_threads=2)
    assert_right(model.run(feed(3)), feed(3))
