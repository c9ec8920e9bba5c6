"""WebAssembly files: the weights' object, and the reader of finished modules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rten_aot.codegen.wasm import MAGIC, check_module, read_module, write_weights_object
from rten_aot.errors import InternalError
from tests.runtime.fake_library import build_fake

NAMES = ("memory", "malloc", "free", "_initialize", "rten_aot_run")


def section(kind: int, *items: bytes) -> bytes:
    content = bytes([len(items)]) + b"".join(items)
    return bytes([kind, len(content)]) + content


def name(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def exported(*names: str) -> bytes:
    return section(7, *(name(text) + b"\0\0" for text in names))


def imported(place: str, kind: bytes) -> bytes:
    return b"".join(map(name, place.split("."))) + kind


@pytest.fixture
def module(tmp_path: Path) -> Callable[..., Path]:
    def write(*sections: bytes) -> Path:
        path = tmp_path / "m.wasm"
        path.write_bytes(MAGIC + b"".join(sections))
        return path

    return write


def test_imports_and_exports(module: Callable[..., Path]) -> None:
    kinds = {
        "env.f": b"\0\5",  # a function of type 5
        "env.t": b"\1\x70\1\1\2",  # a table of 1 to 2 references
        "env.m": b"\2\0\1",  # a memory of a page or more
        "env.g": b"\3\x7f\0",  # a global number
        "wasi.clock": b"\0\x80\1",
    }
    imports = section(2, *(imported(place, kind) for place, kind in kinds.items()))
    found = read_module(module(section(0), imports, exported("b", "a")))
    assert found.imports == tuple(kinds)
    assert found.exports == ("a", "b")


def test_a_module_as_it_should_be(module: Callable[..., Path]) -> None:
    path = module(exported(*NAMES))
    assert check_module(path, symbol_prefix="rten_aot", profile=False).exports == tuple(
        sorted(NAMES)
    )


def test_modules_that_would_not_run_everywhere(module: Callable[..., Path]) -> None:
    clock = section(2, imported("wasi_snapshot_preview1.clock_time_get", b"\0\0"))
    path = module(clock, exported(*NAMES))
    assert check_module(path, symbol_prefix="rten_aot", profile=True)
    with pytest.raises(InternalError, match=r"the linked module needs wasi\w+\.clock_time_get$"):
        check_module(path, symbol_prefix="rten_aot", profile=False)
    path = module(section(2, imported("env.abort", b"\0\0")), exported("memory", "secret"))
    message = r"needs env\.abort, lacks _initialize, lacks free, lacks malloc, exports secret$"
    with pytest.raises(InternalError, match=message):
        check_module(path, symbol_prefix="rten_aot", profile=True)


@pytest.mark.parametrize("content", [b"", b"\0asm", b"\x7fELF" * 9, MAGIC + b"\2\5\1\x09a"])
def test_files_that_are_no_modules(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.wasm"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.wasm: not a WebAssembly module"):
        read_module(path)


@pytest.mark.parametrize("total", [200, 70_000])
def test_weights_are_linked(tmp_path: Path, total: int) -> None:
    """At a multiple of their alignment, with zeros between the chunks."""
    first, last = np.arange(1, 9, dtype=np.uint8), np.arange(11, 19, dtype=np.uint8)
    weights = tmp_path / "weights.o"
    write_weights_object(weights, [(0, first), (128, last)], total)
    module = build_fake(
        tmp_path,
        name="fake.wasm",
        triple="wasm32-wasi",
        defines={"WEIGHTS_OBJECT": "1"},
        objects=(weights,),
    )
    data = module.read_bytes()
    at = data.index(first.tobytes())
    assert data[at : at + 136] == first.tobytes() + bytes(120) + last.tobytes()
    assert module.stat().st_mode & 0o777 == 0o644


def test_chunks_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="weights at 4 to 12 meet those before 0, or the end"):
        write_weights_object(tmp_path / "w.o", [(4, np.zeros(8, np.uint8))], 8)
