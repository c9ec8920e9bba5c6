"""The library that a command measures: given as it is, or compiled from a .rten model first."""

from __future__ import annotations

import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import rten_aot
from rten_aot.cli import choices
from rten_aot.cli.arrays import add_inputs
from rten_aot.cli.artifact import is_library
from rten_aot.cli.parser import Parser, file_path
from rten_aot.cli.progress import ProgressLine
from rten_aot.errors import TargetError
from rten_aot.extras import import_compiler

_TARGET = "llvm -mcpu=native"


def add_library(parser: Parser, text: str, *, threads: str = "the physical cores") -> None:
    """The options that say what is measured, on which inputs, on how many threads, how long.

    ``text`` says what the model may be, ``threads`` how many there are by default.
    """
    add = parser.add_argument
    add("model", metavar="MODEL", type=file_path, help=text)
    add_inputs(parser)
    choices.add_compile_options(parser, target=_TARGET)
    choices.add_weights(parser)
    add(
        "--threads",
        metavar="N",
        type=choices.threads,
        help=f"how many threads to use (default: {threads})",
    )
    add(
        "--seconds",
        metavar="S",
        type=choices.seconds,
        default=2.0,
        help="how long to measure (default: 2)",
    )
    add("--runs", metavar="N", type=choices.count, help="run so many times, however long it takes")
    add("--json", action="store_true", help="print JSON")


def parse(parser: Parser, words: Sequence[str]) -> Namespace:
    """Parse the words that follow a command with ``add_library``'s options."""
    args = parser.parse(choices.join_features(words, parser.option_strings))
    choices.check_unique(parser, args)
    if args.target == _TARGET and args.mcpu:
        args.target = "llvm"
    return args


def check_runs_here(target: str) -> None:
    """Fail before the work where its result cannot be run.

    Raises:
        TargetError: a name is unknown, or the code is for other computers.
    """
    machines = import_compiler("rten_aot.targets").get_machines(target)
    if not any(machine.runs_here() for machine in machines):
        raise TargetError(
            f'this computer cannot run code for "{target}"',
            hint="compile it with rten-aot compile, and run it where it belongs",
        )


@contextmanager
def library_of(args: Namespace, *, profile: bool = False) -> Iterator[Path]:
    """The library, which ends to exist with the context if it was compiled here.

    Then the sizes that the words give are those of the model, and are no longer in ``args``.
    """
    if is_library(args.model):
        yield args.model
        return
    target = choices.target_text(args.target, args)
    check_runs_here(target)
    with tempfile.TemporaryDirectory(prefix="rten-aot-measure-") as folder:
        library = Path(folder, "model.so")
        progress = ProgressLine(sys.stderr, verbose=False)
        try:
            rten_aot.compile(
                args.model,
                library,
                target=target,
                shapes=dict(args.shape),
                dims=dict(args.dim),
                opt_level=args.O,
                progress=progress,
                profile=profile,
                weights=args.weights,
            )
        finally:
            progress.clear()
        args.shape, args.dim = [], []
        yield library
