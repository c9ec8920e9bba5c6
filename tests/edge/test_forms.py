"""What is made for each platform: libraries, archives and modules, and what they need."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import rten_aot
from rten_aot.codegen.elf import read_library
from rten_aot.codegen.wasm import read_module
from rten_aot.options import LIBCS, Libc
from tests.codegen.nets import build_program, expected, feed, write_net
from tests.edge.emulation import LINUX, Emulated, RunFailedError, each_linux
from tests.edge.wasm_model import WasmModel
from tests.support.model_feeds import Array

DIGITS = Path("examples/digits/digits.rten")
RUN_NET = Path(__file__).parents[1] / "codegen" / "run_net.c"
FUNCTIONS = ("create", "destroy", "error", "metadata", "run")
HERE = "x86-64-v2"
BOARDS = (HERE, "raspberry-pi-4", "raspberry-pi-32", "riscv64v")


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_net(tmp_path_factory.mktemp("net") / "net.rten")


def output_of(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_net(printed: str) -> None:
    image = (np.arange(2 * 3 * 8 * 8) % 17).astype(np.float32) / 8 - 1
    inputs: dict[str, Array] = {
        "image": image.reshape(2, 3, 8, 8),
        "rows": np.array([3, -1, 0], np.int32),
    }
    want = np.concatenate([array.ravel() for array in expected(inputs).values()])
    got = np.array([float(line) for line in printed.split()])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@each_linux
def test_the_example_of_the_readme(root: Path, machine: Emulated, tmp_path: Path) -> None:
    machine.require()
    (text,) = re.findall(r"```c\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    (tmp_path / "main.c").write_text(text)
    library = rten_aot.compile(root / DIGITS, tmp_path / "libdigits.so", target=machine.target)
    program = build_program(tmp_path, tmp_path / "main.c", library, target=machine.zig)
    printed = output_of(*machine.command(program, "-E", f"LD_LIBRARY_PATH={tmp_path}"))
    here = rten_aot.load(rten_aot.compile(root / DIGITS, tmp_path / "here.so", target="native"))
    (want,) = here(np.zeros((1, 1, 8, 8), np.float32))
    assert float(printed) == pytest.approx(float(want[0, 0]), abs=2e-6)


@pytest.mark.parametrize(
    ("target", "libc"),
    [
        pytest.param(t, libc, marks=pytest.mark.slow if libc == "musl" and t != HERE else ())
        for t in BOARDS
        for libc in LIBCS
    ],
)
def test_what_a_library_needs(net: Path, target: str, libc: Libc, tmp_path: Path) -> None:
    made = rten_aot.compile(net, tmp_path / "net.so", target=target, libc=libc)
    library = read_library(made)
    assert library.exports == tuple(f"rten_aot_{name}" for name in FUNCTIONS)
    readelf = shutil.which("readelf")
    if readelf is not None:
        text = output_of(readelf, "--wide", "--dynamic", "--version-info", made)
        assert set(re.findall(r"NEEDED.*\[(.*)\]", text)) == set(library.needed)
        versions = set(re.findall(r"Name: (GLIBC_[\d.]+)", text))
        assert versions == {v for v in library.versions if v.startswith("GLIBC")}
    if libc == "musl":
        assert (library.needed, library.versions) == (("libc.so",), ())
        return
    allowed = r"(libc|libm|libpthread|libdl)\.so\.\d|ld-linux[\w-]*\.so\.\d"
    assert all(re.fullmatch(allowed, name) for name in library.needed)
    newest = max(tuple(map(int, v.removeprefix("GLIBC_").split("."))) for v in library.versions)
    assert newest <= ((2, 27) if target == "riscv64v" else (2, 17))


@pytest.mark.parametrize(
    "target", [pytest.param(t, marks=() if t == HERE else pytest.mark.emulated) for t in BOARDS]
)
def test_two_archives_in_a_static_program(net: Path, target: str, tmp_path: Path) -> None:
    """On musl, which links statically by itself; the programs need nothing at all."""
    machine = next((m for m in LINUX if m.target == target), None)
    if machine is not None:
        machine.require()
    archives = [
        rten_aot.compile(
            net,
            tmp_path / f"{prefix}.a",
            target=target,
            libc="musl",
            emit="static",
            symbol_prefix=prefix,
        )
        for prefix in ("first", "second")
    ]
    systems = {
        "x86-64-v2": "x86_64-linux-musl",
        "raspberry-pi-4": "aarch64-linux-musl",
        "raspberry-pi-32": "arm-linux-musleabihf",
        "riscv64v": "riscv64-linux-musl",
    }
    for prefix in ("first", "second"):
        names = (f"-DPREFIX={prefix}", f'-DHEADER="{prefix}.h"', f"-I{tmp_path}", "-static")
        program = build_program(tmp_path, RUN_NET, *archives, *names, target=systems[target])
        assert read_library(program).needed == ()
        check_net(output_of(program) if machine is None else output_of(*machine.command(program)))


def test_an_archive_for_the_system_of_this_machine(net: Path, tmp_path: Path) -> None:
    made = rten_aot.compile(net, tmp_path / "net.a", target="native", emit="static")
    header = f'-DHEADER="{tmp_path / "net.h"}"'
    check_net(output_of(build_program(tmp_path, RUN_NET, made, header)))
    assert made.read_bytes() == (
        rten_aot.compile(net, tmp_path / "again.a", target="native", emit="static").read_bytes()
    )


def test_the_archive_and_its_header_have_names(net: Path, tmp_path: Path) -> None:
    with pytest.raises(rten_aot.CompileError, match=r'the archive cannot be ".*net\.h", which is'):
        rten_aot.compile(net, tmp_path / "net.h", emit="static")


def test_a_feature_that_is_missing(net: Path, tmp_path: Path) -> None:
    """Neoverse N1 has dot products, Cortex-A53 has not."""
    small = next(m for m in LINUX if m.id == "cortex-a53")
    large = next(m for m in LINUX if m.id == "neoverse-n1")
    small.require()
    library = rten_aot.compile(net, tmp_path / "libmodel.so", target=large.target)
    inputs = feed()
    for got, want in zip(large.run(library, inputs), expected(inputs).values(), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    message = r"this CPU lacks the features dotprod, .*which the artifact needs \(compiled for grav"
    with pytest.raises(RunFailedError, match=message):
        small.run(library, inputs)


@pytest.fixture(scope="module")
def module(net: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rten_aot.compile(net, tmp_path_factory.mktemp("wasm") / "net.wasm", target="wasm32")


def test_what_a_module_needs_and_offers(net: Path, module: Path, tmp_path: Path) -> None:
    found = read_module(module)
    assert found.imports == ()
    assert {"memory", "malloc", "free", *(f"rten_aot_{f}" for f in FUNCTIONS)} <= set(found.exports)
    profiled = rten_aot.compile(net, tmp_path / "p.wasm", target="wasm32", profile=True)
    assert read_module(profiled).imports == ("wasi_snapshot_preview1.clock_time_get",)
    named = rten_aot.compile(net, tmp_path / "n.wasm", target="wasm32", symbol_prefix="face")
    assert "face_run" in read_module(named).exports
    assert not any(name.startswith("rten_aot") for name in read_module(named).exports)
    again = rten_aot.compile(net, tmp_path / "net.wasm", target="wasm32")
    assert again.read_bytes() == module.read_bytes()


def test_failures_of_a_module(module: Path) -> None:
    model = WasmModel(module)
    with pytest.raises(RuntimeError, match=r"\(Gather\): index 10 is out of range"):
        model.run(feed(rows=(10,)))
    with pytest.raises(RuntimeError, match='input "image": expected float32, got int32'):
        model.run({**feed(), "image": np.zeros((2, 3, 8, 8), np.int32)})
    inputs = feed()
    for got, want in zip(model.run(inputs), expected(inputs).values(), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    model.close()


def test_a_module_in_node(module: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    printed = output_of(node, Path(__file__).with_name("run_net.mjs"), module)
    check_net(printed)


@pytest.mark.parametrize("emit", ["obj", "static"])
def test_no_objects_for_webassembly(net: Path, emit: str, tmp_path: Path) -> None:
    with pytest.raises(rten_aot.LinkError, match="objects for WebAssembly are not supported"):
        rten_aot.compile(net, tmp_path / "x", target="wasm32", emit=emit)  # type: ignore[arg-type]


def test_modules_are_not_loaded(module: Path) -> None:
    with pytest.raises(rten_aot.ModelLoadError, match="was compiled for WebAssembly"):
        rten_aot.load(module)


def test_vector_instructions_of_risc_v(net: Path, tmp_path: Path) -> None:
    """Of the length that the schedule chose: none of the loops has become one over vscale."""
    text = rten_aot.compile(net, tmp_path / "v.s", target="riscv64v", emit="asm").read_text()
    counts = [len(re.findall(rf"^\t{name}\b", text, re.M)) for name in (r"vfmacc\.v\w", "vle32.v")]
    assert min(counts) >= 10
    assert len(re.findall(r"^\tfmadd\.s", text, re.M)) < counts[0]
    stage = rten_aot.compile(net, tmp_path / "v.ll", target="riscv64v", emit="llvm").read_text()
    assert "<4 x float>" in stage
    assert "vscale" not in stage
    plain = rten_aot.compile(net, tmp_path / "p.s", target="riscv64", emit="asm").read_text()
    assert not re.search(r"^\tv\w+\.v", plain, re.M)
