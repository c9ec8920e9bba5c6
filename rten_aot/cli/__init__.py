"""The ``rten-aot`` command: finds the command, and turns failures into messages and exit codes."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType, ModuleType

import rten_aot
from rten_aot.cli.parser import UsageError, did_you_mean
from rten_aot.errors import CompileError, Ended, InternalError

COMMANDS: Mapping[str, str] = {
    "compile": "compile a .rten model to a shared library",
    "run": "run a compiled model",
    "verify": "compare a compiled model with ONNX Runtime",
    "bench": "measure a model, and other runtimes with it",
    "tune": "find out what makes a model faster on this machine",
    "profile": "show where the time of a model goes",
    "export-onnx": "write a .rten model as an ONNX model",
    "inspect": "show what is in a .rten model or a compiled one",
    "ops": "list the operators and what of them is supported",
    "targets": "list the names that --target takes",
}
"""The commands in the order of --help, each in the module of this package with its name."""

USER_ERROR, USAGE_ERROR, INTERNAL_ERROR = 1, 2, 3
# What a shell reports for a process that the signal ended.
INTERRUPTED, BROKEN_PIPE = 130, 141

_USAGE = "usage: rten-aot COMMAND [options]"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0 success, 1 a model, compile or run error, 2 wrong usage, 3 a fault of rten-aot itself.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    _open_streams()
    try:
        with _orderly_end():
            status = _dispatch(words)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Python flushes stdout once more when it ends; let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as err:
        return _report(err)


def _open_streams() -> None:
    """Give a process that was started without standard streams some that go nowhere.

    Otherwise the next file that it opens takes their numbers, and the messages of libraries.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    sys.stdout = sys.stdout or open(os.devnull, "w")
    sys.stderr = sys.stderr or open(os.devnull, "w")


@contextlib.contextmanager
def _orderly_end() -> Iterator[None]:
    """While it lasts, a signal to end lets temporary files and processes end as well."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: FrameType | None) -> None:
        raise Ended(128 + number)  # what a shell reports for a process that it ended

    # One that is ignored, as SIGHUP under nohup, stays so.
    ours = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _dispatch(words: list[str]) -> int:
    match words:
        case ["-h" | "--help" | "help"]:
            print(_help())
            return 0
        case ["-V" | "--version"]:
            print(f"rten-aot {rten_aot.__version__}")
            return 0
        case []:
            raise UsageError("no command given", _help())
        case [name, *rest] if name in COMMANDS:
            run: Callable[[list[str]], int] = command_module(name).main
            return run(rest)
        case ["help", name, *_] if name in COMMANDS:
            return _dispatch([name, "--help"])
    kind = "option" if words[0].startswith("-") else "command"
    hint = did_you_mean(words[0], COMMANDS)
    known = "" if hint else f"; commands: {', '.join(COMMANDS)}"
    raise UsageError(f'unknown {kind} "{words[0]}"{hint or known}', _USAGE)


def command_module(name: str) -> ModuleType:
    """The module of a command; ``export-onnx`` is in ``export_onnx``."""
    return importlib.import_module(f"rten_aot.cli.{name.replace('-', '_')}")


def _help() -> str:
    lines = [_USAGE, "", "Compile RTen models ahead of time, and run them.", "", "commands:"]
    lines += [f"  {name:<12} {text}" for name, text in COMMANDS.items()]
    lines += ["", "rten-aot COMMAND --help explains a command; --version tells the version."]
    return "\n".join(lines)


def _report(err: Exception) -> int:
    if isinstance(err, UsageError):
        _complain(f"{err.usage}\nrten-aot: error: {err}")
        return USAGE_ERROR
    message = _user_message(err)
    if message is None:
        what = str(err) if isinstance(err, InternalError) else f"{type(err).__name__}: {err}"
        _complain(
            f"{_trace(err)}rten-aot: internal error: {what}\n"
            "This is a fault of rten-aot; please report it with the model and the lines above."
        )
        return INTERNAL_ERROR
    shown = _trace(err) if os.environ.get("RTEN_AOT_TRACEBACK", "") not in ("", "0") else ""
    _complain(f"{shown}rten-aot: error: {message}")
    return USER_ERROR


def _user_message(err: Exception) -> str | None:
    """What to tell about an error that the user can do something about; None for faults."""
    from rten_aot.runtime.errors import InputError, ModelLoadError, ModelRunError

    match err:
        case CompileError() | InputError() | ModelLoadError() | ModelRunError():
            return str(err)
        case OSError() if err.filename is not None:
            return f"{os.fsdecode(err.filename)}: {err.strerror}"
        case OSError() if err.strerror:
            return err.strerror
        case MemoryError():
            return "out of memory"
        case _:
            return None


def _trace(err: Exception) -> str:
    return "".join(traceback.format_exception(err))


def _complain(text: str) -> None:
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        pass  # nobody is listening; the exit code still tells
