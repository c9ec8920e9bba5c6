"""Commands, exit codes and the form of messages."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import rten_aot
from rten_aot.cli import COMMANDS
from rten_aot.errors import InternalError, UnsupportedOpError
from rten_aot.runtime.errors import InputError, ModelLoadError, ModelRunError
from rten_aot.targets import get_machine
from tests.cli.conftest import Command, FakeDriver, FakeModel


@pytest.mark.parametrize("word", ["--help", "-h", "help"])
def test_help_lists_the_commands(command: Command, word: str) -> None:
    done = command(word)
    assert (done.code, done.err) == (0, "")
    assert all(f"  {name} " in done.out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(command: Command, name: str) -> None:
    done = command(name, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"usage: rten-aot {name} ")
    assert command("help", name).out == done.out


def test_version(command: Command) -> None:
    assert command("--version").out == f"rten-aot {rten_aot.__version__}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "no command given"),
        ("complie m.rten", 'unknown command "complie"; did you mean "compile"?'),
        ("xyz", f'unknown command "xyz"; commands: {", ".join(COMMANDS)}'),
        ("--xyz", f'unknown option "--xyz"; commands: {", ".join(COMMANDS)}'),
        ("compile", "the following arguments are required: MODEL"),
        ("compile --trget llvm", 'unknown option "--trget"; did you mean "--target"?'),
        ("compile m.rten -mcpuu=native", 'unknown option "-mcpuu"; did you mean "-mcpu"?'),
        ("compile m.rten -output m.so", 'unknown option "-output"; did you mean "--output"?'),
        ("compile m.rten --targ llvm", 'unknown option "--targ"; did you mean "--target"?'),
        ("compile m.rten -x", 'unknown option "-x"'),
        ("compile m.rten n.rten", 'unexpected argument "n.rten"'),
        ("compile m.rten --target", "argument --target: expected one argument"),
        ("compile ''", "argument MODEL: the name is empty"),
        ("compile m.rten --output ''", "argument -o/--output: the name is empty"),
        ("compile m.rten --bundle ''", "argument --bundle: the name is empty"),
        ("export-onnx m.rten ''", "argument OUT: the name is empty"),
        ("run m.so --output ./m.so", 'the output "m.so" is the model itself'),
        ("tune m.rten --db ./m.rten", 'the file "m.rten" is the model itself'),
        ("ops --markdwon", 'unknown option "--markdwon"; did you mean "--markdown"?'),
    ],
)
def test_usage_errors(command: Command, words: str, message: str) -> None:
    done = command(*shlex.split(words))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("usage: rten-aot ")
    assert done.err.endswith(f"\nrten-aot: error: {message}\n")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            UnsupportedOpError("no", node="a/b", op="Conv", hint="try else"),
            'in node "a/b" (Conv): no\nhint: try else',
        ),
        (ModelLoadError("no such model"), "no such model"),
        (InputError("wrong input"), "wrong input"),
        (ModelRunError("index out of range"), "index out of range"),
        (FileNotFoundError(2, "No such file or directory", "m.rten"), "m.rten: No such file or"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (MemoryError(), "out of memory"),
    ],
)
def test_errors_of_the_user(
    command: Command,
    driver: FakeDriver,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    message: str,
) -> None:
    driver.error = error
    done = command("compile", "m.rten")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"rten-aot: error: {message}")
    monkeypatch.setenv("RTEN_AOT_TRACEBACK", "1")
    traced = command("compile", "m.rten")
    assert traced.code == 1
    assert traced.err.startswith("Traceback (most recent call last):\n")
    assert traced.err.endswith(done.err)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InternalError("stage 3 lost"), "stage 3 lost"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
    ],
)
def test_faults_keep_their_traceback(
    command: Command, driver: FakeDriver, error: Exception, message: str
) -> None:
    driver.error = error
    done = command("compile", "m.rten")
    assert done.code == 3
    assert done.err.startswith("Traceback (most recent call last):\n")
    assert f"\nrten-aot: internal error: {message}\n" in done.err
    assert "please report it with the model" in done.err


def test_interrupt(command: Command, driver: FakeDriver, model: FakeModel) -> None:
    driver.error = model.error = KeyboardInterrupt()
    for words in (("compile", "m.rten"), ("run", "m.so")):
        done = command(*words)
        assert (done.code, done.err) == (130, "")


def test_closed_pipe(root: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "rten_aot", "inspect", "examples/digits/digits.rten"],
        cwd=root,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_ended_by_a_signal(number: signal.Signals, root: Path, tmp_path: Path) -> None:
    """What the command made for itself ends with it."""
    script = (
        "import os, sys, rten_aot\n"
        "from rten_aot.cli import main\n"
        "from rten_aot.files import new_file\n"
        "def compile(model, output, **options):\n"
        "    with new_file(output) as place:\n"
        "        place.write_text('half')\n"
        f"        os.kill(os.getpid(), {number})\n"
        "        place.write_text('whole')\n"
        "rten_aot.compile = compile\n"
        "sys.exit(main(['compile', 'm.rten']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (128 + number, "")
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("model", ["/", ".."])
def test_a_folder_is_no_model(command: Command, model: str) -> None:
    assert command("compile", model).code == 1
    assert command("export-onnx", model).code == 1


@pytest.mark.parametrize("words", ["bench", "profile", "verify"])
def test_code_for_other_computers(command: Command, root: Path, words: str) -> None:
    """It is not compiled to be measured or compared here."""
    if get_machine("wasm32").runs_here():
        pytest.skip("it can run here")
    model = root / "examples" / "digits" / "digits.rten"
    done = command(words, model, "--target", "wasm32", "--dim", "batch=1")
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        'rten-aot: error: this computer cannot run code for "wasm32"\n'
        "hint: compile it with rten-aot compile, and run it where it belongs\n"
    )


@pytest.mark.parametrize("closed", ["<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_without_standard_streams(closed: str, root: Path) -> None:
    model = root / "examples" / "digits" / "digits.rten"
    command = f"{sys.executable} -m rten_aot inspect {model} {closed}"
    done = subprocess.run(
        ["sh", "-c", command], cwd=root, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
