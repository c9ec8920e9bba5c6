"""The package stays light, and running a model needs NumPy alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.fake_library import build_fake, feed
from tests.support.plain_python import plain_python, run

BLOCKED = ("tvm", "tvm_ffi", "flatbuffers", "ziglang", "onnx", "onnxruntime", "ml_dtypes")


def python(root: Path, code: str, *, block: bool = True) -> str:
    """The output of code that runs in a new interpreter, without the compiler's packages."""
    first = f"import sys; sys.modules.update(dict.fromkeys({BLOCKED!r}))\n" if block else ""
    done = subprocess.run(
        [sys.executable, "-c", first + textwrap.dedent(code)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded(root: Path, module: str) -> set[str]:
    code = f"import {module}, sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(python(root, code, block=False).split())


def test_importing_the_package_loads_nothing_heavy(root: Path) -> None:
    assert not loaded(root, "rten_aot") & {"numpy", *BLOCKED}


@pytest.mark.parametrize("module", ["rten_aot.runtime", "rten_aot.cli", "rten_aot.format"])
def test_modules_without_the_compiler(root: Path, module: str) -> None:
    assert not loaded(root, module) & set(BLOCKED)


def test_public_names_without_the_compiler(root: Path) -> None:
    python(
        root,
        """
        import rten_aot
        for name in rten_aot.__all__:
            assert getattr(rten_aot, name) is not None, name
            assert name in dir(rten_aot), name
        assert rten_aot.load is rten_aot.runtime.load
        assert issubclass(rten_aot.ModelFormatError, rten_aot.CompileError)
        try:
            rten_aot.no_such_name
        except AttributeError as err:
            assert str(err) == "module 'rten_aot' has no attribute 'no_such_name'", err
        """,
    )


def test_compile_says_what_to_install(root: Path) -> None:
    output = python(
        root,
        """
        import rten_aot
        try:
            rten_aot.compile("model.rten", "model.so")
        except rten_aot.CompileError as err:
            print(err)
        """,
    )
    assert output.startswith("the compiler is not installed (no module ")
    assert output.endswith('hint: pip install "rten-aot[compiler]"\n')


@pytest.mark.parametrize(
    "command",
    [
        "ops",
        "targets",
        "compile examples/digits/digits.rten",
        "bench examples/digits/digits.rten",
        "profile examples/digits/digits.rten",
    ],
)
def test_commands_say_what_to_install(root: Path, command: str) -> None:
    output = python(
        root,
        f"""
        sys.stderr = sys.stdout
        from rten_aot.cli import main
        assert main({command.split()!r}) == 1
        """,
    )
    assert output.startswith("rten-aot: error: the compiler is not installed (no module ")
    assert 'hint: pip install "rten-aot[compiler]"' in output


@pytest.mark.parametrize("command", ["export-onnx", "verify"])
def test_commands_say_what_to_install_for_onnx(root: Path, command: str) -> None:
    output = python(
        root,
        f"""
        sys.stderr = sys.stdout
        from rten_aot.cli import main
        assert main([{command!r}, "examples/digits/digits.rten"]) == 1
        """,
    )
    start = "rten-aot: error: ONNX and ONNX Runtime are not installed (no module "
    assert output.startswith(start)
    assert output.endswith('hint: pip install "rten-aot[verify]"\n')


def test_models_can_be_inspected(root: Path) -> None:
    output = python(
        root,
        """
        from rten_aot.cli import main
        assert main(["inspect", "examples/digits/digits.rten"]) == 0
        """,
    )
    assert "parameters" in output
    assert "unsupported" not in output


def test_the_runtime_by_itself(root: Path, tmp_path: Path) -> None:
    """``python -m rten_aot.runtime`` with NumPy and nothing else of the package."""
    plain = plain_python(tmp_path / "venv")
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    package = site / "rten_aot"
    shutil.copytree(root / "rten_aot/runtime", package / "runtime")
    shutil.copy(root / "rten_aot/__init__.py", package)
    library = build_fake(tmp_path)
    np.savez(tmp_path / "x.npz", **feed(5))

    def call(command: str, *words: str | Path) -> str:
        return run(plain, "-I", "-m", "rten_aot.runtime", command, library, *words, cwd=tmp_path)

    assert "  x  float32  [batch, 4]\n" in call("describe")
    assert "rows  int32  [3]  0 2 4\n" in call("run", "--input", "x.npz", "--output", "y.npz")
    with np.load(tmp_path / "y.npz") as results:
        assert results["rows"].tolist() == [0, 2, 4]
    assert call("time", "--threads", "2", "--seconds", "0.01").endswith(" runs)\n")
    usage = run(plain, "-I", "-m", "rten_aot.runtime", "--help")
    assert usage.startswith("usage: python -m rten_aot.runtime ")
