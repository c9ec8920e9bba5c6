"""``rten-aot compile --bundle``: what it writes works, in C and where there is NumPy alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import rten_aot
from rten_aot.cli import main
from tests.cli.conftest import Command, command
from tests.codegen.nets import assert_right, build_program, feed, write_net
from tests.support.plain_python import plain_python, run

__all__ = ["command"]

NATIVE = ("--target", "llvm", "-mcpu=native")
FILES = {
    "CMakeLists.txt", "README.md", "example.c", "example.py", "rten_aot.h", "rten_aot_runtime.py",
}  # fmt: skip


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plain_python(tmp_path_factory.mktemp("plain") / "venv")


@pytest.fixture(scope="module")
def digits(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits") / "kit"
    model = root / "examples/digits/digits.rten"
    assert main(["compile", str(model), *NATIVE, "--bundle", str(folder)]) == 0
    assert {path.name for path in folder.iterdir()} == FILES | {"libdigits.so"}
    return folder


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two inputs of different types, and free sizes."""
    base = tmp_path_factory.mktemp("net")
    model = write_net(base / "net.rten")
    words = [*NATIVE, "--symbol-prefix", "my_net", "--bundle", str(base / "kit")]
    assert main(["compile", str(model), *words]) == 0
    names = {path.name for path in (base / "kit").iterdir()}
    assert names == FILES - {"rten_aot.h"} | {"my_net.h", "libnet.so"}
    return base / "kit"


def numbers(printed: str) -> list[list[str]]:
    """The words of each line, without what only separates."""
    return [line.replace(",", "").split() for line in printed.splitlines()]


def c_example(folder: Path, work: Path, *more: str) -> str:
    options = (*more, f"-I{folder}", "-pedantic", f"-L{folder}", f"-Wl,-rpath,{folder}")
    library = f"-l{next(folder.glob('lib*.so')).stem.removeprefix('lib')}"
    return run(build_program(work, folder / "example.c", *options, library))


@pytest.mark.parametrize("name", ["digits", "net"])
def test_the_examples_agree(
    name: str, python: Path, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folder = request.getfixturevalue(name)
    printed = c_example(folder, tmp_path)
    assert numbers(run(python, "-I", folder / "example.py", cwd=tmp_path)) == numbers(printed)
    library = rten_aot.load(next(folder.glob("lib*.so")))
    zeros = {
        info.name: np.zeros([s if isinstance(s, int) else 1 for s in info.shape], info.dtype)
        for info in library.inputs
    }
    for line, (output, array) in zip(numbers(printed), library.run(zeros).items(), strict=True):
        assert line[0] == output
        values = line[1 + array.ndim :]
        got = [float(value) for value in values if value != "..."]
        np.testing.assert_allclose(got, array.ravel()[:8], rtol=1e-5, atol=1e-6)
        assert (values[-1] == "...") == (array.size > 8)


def test_sizes_can_be_set_in_the_examples(net: Path, python: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kit"
    shutil.copytree(net, folder)
    for file, old, new in (
        ("example.c", "#define DIM_BATCH 1 ", "#define DIM_BATCH 3 "),
        ("example.py", "DIM_BATCH = 1 ", "DIM_BATCH = 3 "),
    ):
        text = (folder / file).read_text()
        assert text.count(old) == 1
        (folder / file).write_text(text.replace(old, new))
    printed = c_example(folder, tmp_path)
    assert printed.startswith("scores [3, 6] ")
    assert numbers(run(python, "-I", folder / "example.py")) == numbers(printed)


def test_sizes_can_be_given_to_the_c_compiler(net: Path, tmp_path: Path) -> None:
    assert c_example(net, tmp_path, "-DDIM_BATCH=3").startswith("scores [3, 6] ")


def test_the_loader_on_files(net: Path, python: Path, tmp_path: Path) -> None:
    loader, library = net / "rten_aot_runtime.py", net / "libnet.so"
    inputs = feed(4)
    options = []
    for name, array in inputs.items():
        np.save(tmp_path / f"{name}.npy", array)
        options += ["--input", f"{name}={tmp_path / name}.npy"]
    run(python, "-I", loader, "run", library, *options, "--output", tmp_path / "y.npz")
    with np.load(tmp_path / "y.npz") as results:
        assert_right(dict(results), inputs)
    shown = run(python, "-I", loader, "describe", library)
    assert "  image  float32  [batch, 3, 8, 8]\n" in shown
    timed = run(python, "-I", loader, "time", library, "--threads", "1", "--runs", "2")
    assert timed.endswith(" ms  (2 runs)\n")


def test_the_loader_in_a_program(net: Path, python: Path, tmp_path: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(net)!r})
import numpy, rten_aot_runtime as runtime
model = runtime.load({str(net / "libnet.so")!r}, num_threads=1)
try:
    model.run({{"picture": 1}})
except runtime.InputError as err:
    print(err)
try:
    runtime.load("none.so")
except runtime.ModelLoadError as err:
    print(err)
"""
    printed = run(python, "-I", "-c", code, cwd=tmp_path)
    assert printed.splitlines() == [
        'the model has no input "picture"; it has "image", "rows"',
        "none.so: there is no such file",
    ]


def test_the_cmake_file(digits: Path, tmp_path: Path) -> None:
    cmake = shutil.which("cmake")
    if cmake is None or shutil.which("cc") is None:
        pytest.skip("needs cmake and a C compiler")
    run(cmake, "-S", digits, "-B", tmp_path)
    run(cmake, "--build", tmp_path)
    assert run(tmp_path / "example").startswith("probabilities [1, 10] ")


def test_several_cpus(root: Path, tmp_path: Path, command: Command) -> None:
    model = root / "examples/digits/digits.rten"
    words = ("--target", "aarch64,neoverse-n1", "--bundle", tmp_path)
    done = command("compile", model, *words)
    assert (done.code, done.err) == (0, "")
    text = (tmp_path / "README.md").read_text()
    assert "It takes the first of these that the CPU can run: neoverse-n1, aarch64." in text


@pytest.mark.parametrize(
    ("words", "option"), [(("-o", "x.so"), "-o"), (("--emit", "obj"), "--emit")]
)
def test_what_does_not_go_with_it(words: tuple[str, str], option: str, command: Command) -> None:
    done = command("compile", "m.rten", "--bundle", "kit", *words)
    assert done.code == 2
    assert f"argument --bundle: not with {option}; it says what is written where" in done.err
    assert not Path("kit").exists()


def test_a_module_needs_no_bundle(command: Command) -> None:
    done = command("compile", "m.rten", "--bundle", "kit", "--target", "wasm32")
    assert done.code == 2
    assert "argument --bundle: not for wasm32; a module is all that is needed" in done.err


def test_no_model(tmp_path: Path, command: Command) -> None:
    done = command("compile", tmp_path / "none.rten", "--bundle", tmp_path / "kit")
    assert done.code == 1
    assert "none.rten: No such file or directory" in done.err
    assert not (tmp_path / "kit").exists()
