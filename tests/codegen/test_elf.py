"""The weights' object and the reader of finished libraries."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rten_aot.codegen import elf
from rten_aot.codegen.elf import Machine, check_library, read_library, write_weights_object
from rten_aot.errors import InternalError
from rten_aot.runtime import load
from tests.runtime.fake_library import build_fake, feed

MACHINE: Machine = "aarch64" if platform.machine() == "aarch64" else "x86_64"


def link_weights(folder: Path, weights: Path) -> Path:
    return build_fake(folder, defines={"WEIGHTS_OBJECT": "1"}, objects=(weights,))


@pytest.mark.parametrize("total", [16, 100_000])
def test_weights_reach_the_model(tmp_path: Path, total: int) -> None:
    weights = np.array([10, 20, 30, 40], np.float32)
    path = tmp_path / "weights.o"
    write_weights_object(path, [(0, weights)], total, machine=MACHINE)
    with load(link_weights(tmp_path, path)) as model:
        x = np.zeros((1, 4), np.float32)
        assert model.run({**feed(1), "x": x})["y"].tolist() == [weights.tolist()]


def test_content_of_the_object(tmp_path: Path) -> None:
    chunks: list[tuple[int, npt.NDArray[Any]]] = [
        (0, np.arange(3, dtype=np.int32)),
        (64, np.arange(6, dtype=np.float32).reshape(2, 3).T),
        (128, np.zeros((0, 3), np.float32)),
        (128, np.array(7, np.int8)),
        (129, np.array([1, 2], ">i4")),
    ]
    path = tmp_path / "weights.o"
    write_weights_object(path, chunks, 200, machine="x86_64")
    data = path.read_bytes()[4096 : 4096 + 200]
    expected = bytearray(200)
    expected[0:12] = np.arange(3, dtype="<i4").tobytes()
    expected[64:88] = np.array([0, 3, 1, 4, 2, 5], "<f4").tobytes()
    expected[128:137] = b"\7\1\0\0\0\2\0\0\0"
    assert data == bytes(expected)


@pytest.mark.parametrize("chunks", [[(0, 9), (8, 1)], [(4, 4), (0, 4)], [(60, 5)]])
def test_chunks_that_do_not_fit(tmp_path: Path, chunks: list[tuple[int, int]]) -> None:
    arrays = [(offset, np.zeros(size, np.int8)) for offset, size in chunks]
    with pytest.raises(InternalError, match="weights at"):
        write_weights_object(tmp_path / "w.o", arrays, 64, machine="x86_64")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_objects_of_other_machines_link(tmp_path: Path, machine: Machine) -> None:
    check_machine(tmp_path, machine, f"{machine}-unknown-linux-gnu")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "triple"),
    [("arm", "armv7-unknown-linux-gnueabihf"), ("riscv64", "riscv64-unknown-linux-gnu")],
)
def test_objects_of_small_machines_link(tmp_path: Path, machine: Machine, triple: str) -> None:
    check_machine(tmp_path, machine, triple)


def check_machine(folder: Path, machine: Machine, triple: str) -> None:
    weights = folder / "weights.o"
    mark = np.frombuffer(b"these are the weights", np.uint8)
    write_weights_object(weights, [(64, mark)], 10_000, machine=machine)
    path = build_fake(folder, triple=triple, defines={"WEIGHTS_OBJECT": "1"}, objects=(weights,))
    library = read_library(path)
    assert library.machine == machine
    assert mark.tobytes() in path.read_bytes()


def test_facts_of_a_library(tmp_path: Path) -> None:
    path = build_fake(tmp_path, soname="libfake.so.1")
    library = check_library(path)
    assert library.machine == MACHINE
    assert library.soname == "libfake.so.1"
    assert set(library.exports) == {
        f"rten_aot_{name}" for name in ("create", "destroy", "error", "metadata", "run")
    }
    assert "libc.so.6" in library.needed
    assert "GLIBC_2.17" in library.versions


def test_libraries_that_would_not_run_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build_fake(tmp_path)
    with pytest.raises(InternalError, match=r"the linked library exports rten_aot_create, "):
        check_library(path, symbol_prefix="other")
    monkeypatch.setitem(elf._MAX_GLIBC, MACHINE, (2, 16))
    with pytest.raises(InternalError, match=r"needs symbols of GLIBC_2\.17$"):
        check_library(path)
    monkeypatch.setattr(elf, "_ALLOWED_LIBRARY", elf.re.compile(r"lib[^c].*|ld-.*"))
    with pytest.raises(InternalError, match=r"needs libc\.so\.6, needs symbols"):
        check_library(path)


@pytest.mark.parametrize("content", [b"", b"\x7fELF\2\1", b"text" * 100])
def test_files_that_are_no_libraries(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.so: not a valid ELF library"):
        read_library(path)


@pytest.mark.slow
def test_weights_beyond_2_gb(tmp_path: Path) -> None:
    """The library is sparse on disk here, and only the pages that are used are read."""
    total = (2 << 30) + (512 << 20)
    first, last = np.array([1, 2, 3, 4], np.float32), np.array([5], np.float32)

    def chunks() -> Iterator[tuple[int, npt.NDArray[Any]]]:
        yield 0, first
        yield total - 4, last

    weights = tmp_path / "weights.o"
    write_weights_object(weights, chunks(), total, machine=MACHINE)
    path = link_weights(tmp_path, weights)
    assert path.stat().st_size > total
    with load(path) as model:
        x = np.zeros((1, 4), np.float32)
        assert model.run({**feed(1), "x": x})["y"].tolist() == [first.tolist()]
    with open(path, "rb") as file:
        position = file.read(1 << 20).index(first.tobytes())
        file.seek(position + total - 4)
        assert file.read(4) == last.tobytes()
    for large in (weights, path):
        large.unlink()
