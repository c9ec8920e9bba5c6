"""What the words of ``rten-aot compile`` come to."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from rten_aot.cli.progress import ProgressLine
from rten_aot.options import SUFFIXES, default_output
from tests.cli.conftest import Command, FakeDriver


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_defaults(command: Command, driver: FakeDriver) -> None:
    done = command("compile", "m.rten")
    assert (done.code, done.out, done.err) == (0, "", "")
    options = driver.options
    assert options.pop("progress") is not None
    assert options.pop("warn") is not None
    assert options == {
        "model": Path("m.rten"),
        "output": Path("m.so"),
        "target": "llvm",
        "shapes": {},
        "dims": {},
        "opt_level": 3,
        "emit": "lib",
        "explain": None,
        "symbol_prefix": None,
        "libc": None,
        "profile": False,
        "db": None,
        "weights": "fp32",
    }


@pytest.mark.parametrize(
    ("words", "target"),
    [
        (["--target", "llvm", "-mcpu=native"], "llvm -mcpu=native"),
        (["--target", "llvm", "-mcpu", "native"], "llvm -mcpu=native"),
        (["--target=llvm -mcpu=native"], "llvm -mcpu=native"),
        (["--target", "llvm -mcpu=native"], "llvm -mcpu=native"),
        (["-mcpu=native"], "llvm -mcpu=native"),
        (["--target", "x86-64-v3"], "x86-64-v3"),
        (["--target", "x86-64-v3", "-mattr=-fma"], "x86-64-v3 -mattr=-fma"),
        (["-mattr", "-fma,+avx2", "-mcpu", "x"], "llvm -mcpu=x -mattr=-fma,+avx2"),
        (["-mattr", "+avx2"], "llvm -mattr=+avx2"),
        (["-mattr=+a", "-mattr", "-b"], "llvm -mattr=+a,-b"),
        (["--target", "cuda", "-arch=sm_90"], "cuda -arch=sm_90"),
        (
            ["-mtriple=aarch64-linux-gnu", "--target", "llvm", "-mcpu=cortex-a72"],
            "llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu",
        ),
    ],
)
def test_targets(command: Command, driver: FakeDriver, words: list[str], target: str) -> None:
    assert command("compile", "m.rten", *words).code == 0
    assert driver.options["target"] == target
    assert command("compile", *words, "m.rten").code == 0
    assert driver.calls[1]["target"] == target


@pytest.mark.parametrize(
    ("text", "name", "shape"),
    [
        ("x=1,3,h,w", "x", (1, 3, "h", "w")),
        ("sr=", "sr", ()),
        ("x=?,0, batch ,8", "x", (None, 0, "batch", 8)),
        ("enc/a:0=2", "enc/a:0", (2,)),
        ("a=b=2,n", "a=b", (2, "n")),
        ("x=batch-size,unk__3", "x", ("batch-size", "unk__3")),
    ],
)
def test_shapes(
    command: Command, driver: FakeDriver, text: str, name: str, shape: tuple[object, ...]
) -> None:
    assert command("compile", "m.rten", "--shape", text).code == 0
    assert driver.options["shapes"] == {name: shape}


def test_dims_and_levels(command: Command, driver: FakeDriver) -> None:
    words = ["--dim", "batch=1", "--dim=a=b=30", "--shape", "x=1", "--shape", "y=2", "-O0"]
    assert command("compile", "m.rten", *words, "--symbol-prefix", "my").code == 0
    options = driver.options
    assert options["dims"] == {"batch": 1, "a=b": 30}
    assert options["shapes"] == {"x": (1,), "y": (2,)}
    assert (options["opt_level"], options["symbol_prefix"]) == (0, "my")
    assert not options["profile"]


def test_profile(command: Command, driver: FakeDriver) -> None:
    assert command("compile", "m.rten", "--profile").code == 0
    assert driver.options["profile"] is True


def test_weights(command: Command, driver: FakeDriver) -> None:
    assert command("compile", "m.rten", "--weights", "fp16").code == 0
    assert driver.options["weights"] == "fp16"


def test_warnings_are_shown(command: Command, driver: FakeDriver) -> None:
    done = command("compile", "m.rten", "--db", "tune.json")
    assert driver.options["db"] == Path("tune.json")
    assert (done.code, done.err) == (0, "")
    driver.options["warn"]("2 of 3 records not used")
    done = command("inspect", "--help")
    assert done.err == "warning: 2 of 3 records not used\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--shape x", 'argument --shape: "x" does not have the form --shape NAME=1,3,h,w'),
        ("--shape =1,2", 'argument --shape: "=1,2" does not have the form --shape NAME=1,3,h,w'),
        (
            "--shape x=1,,2",
            'argument --shape: entry "" in "x=1,,2" is neither a size, nor a name, nor "?"',
        ),
        (
            "--shape x=1,-2",
            'argument --shape: entry "-2" in "x=1,-2" is neither a size, nor a name, nor "?"',
        ),
        (
            "--shape x=1.5",
            'argument --shape: entry "1.5" in "x=1.5" is neither a size, nor a name, nor "?"',
        ),
        ("--shape x=1 --shape x=2", 'argument --shape: "x" is given twice'),
        ("--dim n", 'argument --dim: "n" does not have the form --dim NAME=1'),
        ("--dim n=m", 'argument --dim: size "m" in "n=m" is not a number'),
        ("--dim n=-1", 'argument --dim: size "-1" in "n=-1" is not a number'),
        ("--dim n=1 --dim n=1", 'argument --dim: "n" is given twice'),
        ("-O4", 'argument -O: level "4" is not known; choose from 0, 1, 2, 3'),
        ("--emit rlax", 'argument --emit: "rlax" is not known; did you mean "relax"?'),
        (
            "--emit x86",
            'argument --emit: "x86" is not known; choose from relax, tir, llvm, asm, cuda, obj, '
            "static, header",
        ),
        (
            "--target wasm32 --bundle d",
            "argument --bundle: not for wasm32; a module is all that is needed",
        ),
        ("--libc bionic", 'argument --libc: "bionic" is not known; choose from glibc, musl'),
        ("--weights f16", 'argument --weights: "f16" is not known; did you mean "fp16"?'),
        ("--weights half", 'argument --weights: "half" is not known; choose from fp32, fp16'),
        ("-o m.rten", 'the output "m.rten" is the model itself'),
        ("-mattr --verbose", "argument -mattr: expected one argument"),
    ],
)
def test_usage_errors(command: Command, driver: FakeDriver, words: str, message: str) -> None:
    done = command("compile", "m.rten", *words.split())
    assert done.code == 2
    assert done.err.endswith(f"\nrten-aot: error: {message}\n")
    assert not driver.calls


@pytest.mark.parametrize(
    ("emit", "suffix"), [(kind, end) for kind, end in SUFFIXES.items() if kind != "lib"]
)
def test_emit(command: Command, driver: FakeDriver, emit: str, suffix: str) -> None:
    assert command("compile", "m.rten", "--emit", emit).code == 0
    assert (driver.options["emit"], driver.options["output"]) == (emit, Path(f"m{suffix}"))


def test_default_output() -> None:
    assert default_output("a/yolo.v8.rten") == Path("a/yolo.v8.so")
    assert default_output("a/yolo.v8") == Path("a/yolo.v8.so")
    assert default_output("m.so") == Path("m.so.so")
    assert default_output("m", "obj") == Path("m.o")
    assert default_output("m.rten", target="wasm32") == Path("m.wasm")
    assert default_output("m.rten", target="llvm -mtriple=wasm32-wasi") == Path("m.wasm")
    assert default_output("m.rten", "asm", target="wasm32") == Path("m.s")


def test_c_library(command: Command, driver: FakeDriver) -> None:
    assert command("compile", "m.rten", "--libc", "musl").code == 0
    assert driver.options["libc"] == "musl"


def test_missing_folder(command: Command, driver: FakeDriver) -> None:
    done = command("compile", "m.rten", "-o", "no/m.so")
    assert done.code == 1
    assert done.err == "rten-aot: error: no: the folder does not exist\n"
    assert not driver.calls


def test_explain_and_verbose(command: Command, driver: FakeDriver) -> None:
    done = command("compile", "m.rten", "--explain", "--verbose")
    assert done.out == "fold-batch-norm: 3 folded\n"
    *stages, last = done.err.splitlines()
    assert [line[6:] for line in stages] == [
        *(" s  loading the compiler", " s  importing", " s  scheduling"),
    ]
    assert all(float(line[:6]) >= 0 for line in stages)
    assert last.startswith("m.so: 1.5 kB, ")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    stream = Terminal()
    progress = ProgressLine(stream, verbose=False)
    progress("importing the whole model", 0.0)
    progress.note("a line")
    progress("linking", 2.0)
    progress.done("m.so")
    wipe = "\r\x1b[2K"
    assert stream.getvalue() == (
        f"{wipe}   0.0 s  importing{wipe}{wipe}   2.0 s  linking{wipe}m.so\n"
    )
    assert capsys.readouterr().out == "a line\n"


def test_no_progress_on_a_dumb_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    progress = ProgressLine(stream, verbose=False)
    progress("importing", 0.0)
    progress.done("m.so")
    assert stream.getvalue() == ""
