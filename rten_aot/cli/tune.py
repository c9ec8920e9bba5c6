"""``rten-aot tune``: finds choices that are faster than the cost model's, by measuring here."""

from __future__ import annotations

import argparse
import math
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rten_aot.cli import choices, library
from rten_aot.cli.arrays import Array, add_inputs, inputs_to_measure
from rten_aot.cli.parser import Parser, file_path
from rten_aot.cli.progress import ProgressLine
from rten_aot.cli.text import align, ms_text
from rten_aot.extras import import_compiler
from rten_aot.files import is_same_file
from rten_aot.runtime import TensorInfo

if TYPE_CHECKING:
    from rten_aot.tuner.tune import Outcome, Row

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}

_EPILOG = """\
Every trial compiles the model with other algorithms and tiles for all of its convolutions and
matrix products that take a noticeable part of the time, and runs it in turn with the untuned model,
in a process apart. What is clearly faster, and again together with all else that is, goes into
TUNE.json, for "rten-aot compile --db TUNE.json". The file is written after each trial: the same
command goes on where it was stopped, and does nothing when all its trials are done. Inputs are
seeded random values if not given. Let nothing else run meanwhile.

examples:
  rten-aot tune model.rten --target llvm -mcpu=native --shape x=1,3,224,224 --db tune.json
  rten-aot tune model.rten --db tune.json --trials 100 --time 10m --threads 2
  rten-aot compile model.rten -mcpu=native --shape x=1,3,224,224 --db tune.json
"""


def main(words: list[str]) -> int:
    """Tune as the words say; returns the exit code."""
    parser = build_parser()
    args = library.parse(parser, words)
    if args.O != 3:
        parser.error(f"argument -O: there is nothing to choose below -O3, got -O{args.O}")
    if is_same_file(args.model, args.db):
        parser.error(f'the file "{args.db}" is the model itself')
    progress = ProgressLine(sys.stderr, verbose=args.verbose)

    def note(line: str) -> None:
        progress.clear()
        print(line, file=sys.stderr, flush=True)

    progress("loading the compiler", 0.0)
    try:
        outcome = _tune(args, progress, note)
    finally:
        progress.clear()
    print("\n".join(_table(outcome, args.db)))
    return 0


def _tune(args: Namespace, progress: ProgressLine, note: Callable[[str], None]) -> Outcome:
    tuner = import_compiler("rten_aot.tuner.tune")
    sizes = Namespace(**{**vars(args), "shape": [], "dim": []})

    def inputs(infos: Sequence[TensorInfo]) -> list[Array]:
        # Sizes that the words give are those of the compiled model already.
        return list(inputs_to_measure(infos, sizes).values())

    plan = tuner.Plan(
        args.model,
        choices.target_text(args.target, args),
        dict(args.shape),
        dict(args.dim),
        inputs,
        args.trials,
        args.threads,
        args.seconds,
        args.time,
    )
    outcome: Outcome = tuner.tune(plan, args.db, note, progress)
    return outcome


def _table(outcome: Outcome, file: Path) -> list[str]:
    before, after = ms_text(outcome.before), ms_text(outcome.before * outcome.ratio)
    found = sum(row.found is not None for row in outcome.rows)
    lines = [f"the model: {before} ms untuned, {after} ms tuned ({outcome.ratio:.3f} of the time)"]
    if outcome.rows:
        cells = [("share", "ms before", "ms after", "ratio", "choice", "problem")]
        lines += align([*cells, *map(_cells, outcome.rows)], indent="", right=range(4))
    return [*lines, f"{file}: {found} of {len(outcome.rows)} problems have a better choice"]


def _cells(row: Row) -> tuple[str, ...]:
    ratio = row.found.ratio if row.found else 1.0
    return (
        f"{100 * row.share:.1f} %",
        ms_text(row.before),
        ms_text(row.before * ratio),
        f"{ratio:.3f}",
        str(row.found.choice) if row.found else "untuned",
        row.key,
    )


def duration(text: str) -> float:
    """``90``, ``90s``, ``10m`` or ``1.5h`` in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?)([smh]?)", text)
    if match is None or not 0 < (seconds := float(match[1]) * _UNITS[match[2]]) < math.inf:
        raise argparse.ArgumentTypeError(f'"{text}" is no time like 90s, 10m or 1h')
    return seconds


def build_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(
        "tune",
        "Find out by measuring which algorithms and tiles make a model faster on this machine.",
        epilog=_EPILOG,
        attached=frozenset({"-O"}),
    )
    add = parser.add_argument
    add("model", metavar="MODEL.rten", type=file_path, help="the model")
    add(
        "--db",
        metavar="TUNE.json",
        type=file_path,
        required=True,
        help="the file with what was found",
    )
    add(
        "--trials",
        metavar="N",
        type=choices.count,
        default=20,
        help="candidates for each problem, those that were tried before included (default: 20)",
    )
    add("--time", metavar="10m", type=duration, help="begin no trial that ends after this time")
    add(
        "--seconds",
        metavar="S",
        type=choices.seconds,
        default=1.5,
        help="how long each measurement takes at least (default: 1.5)",
    )
    add_inputs(parser)
    choices.add_compile_options(parser, target="llvm -mcpu=native")
    add(
        "--threads",
        metavar="N",
        type=choices.threads,
        help="how many threads to use (default: the physical cores)",
    )
    add("-v", "--verbose", action="store_true", help="a line for each stage, on any output")
    return parser
