"""Linking: what a library exports, what stays when it fails, and where things are cached."""

from __future__ import annotations

import importlib.util
import os
import re
import tempfile
from pathlib import Path

import pytest

from rten_aot.codegen import link as linker
from rten_aot.codegen.elf import check_library, read_library
from rten_aot.codegen.link import c_header, link
from rten_aot.codegen.platforms import platform_of
from rten_aot.errors import LinkError
from rten_aot.runtime import load
from tests.runtime.fake_library import SOURCE, TRIPLE, build_fake, feed


def test_same_bytes_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build_fake(tmp_path / "a").read_bytes()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    assert build_fake(tmp_path / "b").read_bytes() == first
    assert build_fake(Path("b")).read_bytes() == first


def test_file_names_with_blanks(tmp_path: Path) -> None:
    path = build_fake(tmp_path / "a folder, with blanks", name="my model.so")
    assert read_library(path).soname == "my model.so"


def test_faults_of_the_compiler(tmp_path: Path) -> None:
    output = tmp_path / "fake.so"
    output.write_text("the one before")
    with pytest.raises(LinkError) as caught:
        build_fake(tmp_path, defines={"BIAS": "no_such_name"})
    message = str(caught.value)
    assert re.match(r"zig cc failed with exit code 1\n\S+: error: use of undeclared", message)
    assert re.search(r"\ncommand: \S*zig", message)
    assert output.read_text() == "the one before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fake.so", "fake.so.c"]


def test_undefined_symbols(tmp_path: Path) -> None:
    with pytest.raises(LinkError, match=r"error: undefined \w*\s?symbol: rten_aot_weights"):
        build_fake(tmp_path, defines={"WEIGHTS_OBJECT": "1"})


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises((LinkError, OSError)):
        link([], tmp_path / "none" / "fake.so", TRIPLE, c_sources=[SOURCE])


def test_output_behind_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "fake.so").symlink_to(tmp_path / "real" / "target.so")
    build_fake(tmp_path)
    assert (tmp_path / "fake.so").is_symlink()
    assert check_library(tmp_path / "real" / "target.so").soname == "fake.so"


def test_symbol_prefix(tmp_path: Path) -> None:
    library = read_library(build_fake(tmp_path, symbol_prefix="face_"))
    assert set(library.exports) == {
        f"face_{name}" for name in ("create", "destroy", "error", "metadata", "run")
    }
    with pytest.raises(LinkError, match='symbol prefix "a-b" is not a C identifier'):
        build_fake(tmp_path, symbol_prefix="a-b")


def test_header_for_a_prefix() -> None:
    text = c_header("face")
    assert "int32_t face_create(const rten_aot_options *options, rten_aot_model **out);" in text
    assert not re.search(r"\brten_aot_(run|error|metadata|destroy|create)\b", text)
    assert "#ifndef FACE_H_" in text
    assert "#ifndef RTEN_AOT_TYPES_" in text
    assert "rten_aot_run(" in c_header()


def test_relocatable_object(tmp_path: Path) -> None:
    path = build_fake(tmp_path, name="fake.o", form="object")
    again = tmp_path / "fake.so"
    linker._Zig(platform_of(TRIPLE), tmp_path).compile("-shared", str(path), "-o", str(again))
    with load(again) as model:
        assert model.run(feed(2))["rows"].tolist() == [0]


@pytest.mark.parametrize(
    ("triple", "machine", "libc"),
    [
        ("x86_64-unknown-linux-gnu", "x86_64", "glibc"),
        ("x86_64-linux-gnu", "x86_64", "glibc"),
        ("x86_64-linux-musl", "x86_64", "musl"),
        ("aarch64-unknown-linux-gnu", "aarch64", "glibc"),
        ("armv7-unknown-linux-gnueabihf", "arm", "glibc"),
        ("armv7a-linux-gnueabihf", "arm", "glibc"),
        ("arm-linux-gnueabihf", "arm", "glibc"),
        ("armv7-unknown-linux-musleabihf", "arm", "musl"),
        ("riscv64-unknown-linux-gnu", "riscv64", "glibc"),
        ("wasm32-unknown-wasi", "wasm32", None),
        ("wasm32-wasi", "wasm32", None),
    ],
)
def test_triples(triple: str, machine: str, libc: str | None) -> None:
    platform = platform_of(triple)
    assert (platform.machine, platform.libc) == (machine, libc)


@pytest.mark.parametrize(
    "triple",
    ["", "x86_64", "x86_64-pc-windows-msvc", "arm64-apple-macosx11", "armv7-linux-gnueabi",
     "i686-linux-gnu", "x86_64-linux-gnux32", "arm-linux-gnu", "wasm32-unknown-unknown"],
)  # fmt: skip
def test_other_triples(triple: str) -> None:
    with pytest.raises(LinkError, match=f'linking for "{triple}" is not supported; supported: x86'):
        platform_of(triple)


def test_without_the_linker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        LinkError, match=r'no Python package ziglang\nhint: pip install "rten-aot\[compiler\]"$'
    ):
        build_fake(tmp_path)


def test_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert linker._cache_dir() == tmp_path / "cache" / "rten-aot"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert linker._cache_dir() == tmp_path / "home" / ".cache" / "rten-aot"
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = linker._cache_dir()
    assert folder == tmp_path / f"rten-aot-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_the_cache_does_not_grow_with_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def files() -> set[Path]:
        return {p for p in (tmp_path / "cache").rglob("*") if p.is_file()}

    build_fake(tmp_path)
    before = files()
    assert len([p for p in before if p.parent.name == "native"]) == 1
    build_fake(tmp_path, defines={"BIAS": "1"})
    assert files() == before
