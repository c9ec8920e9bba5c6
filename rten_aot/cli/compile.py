"""``rten-aot compile``: a .rten model to a shared library, or to a stage on the way."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from pathlib import Path

import rten_aot
from rten_aot.cli import choices
from rten_aot.cli.parser import Parser
from rten_aot.cli.progress import ProgressLine
from rten_aot.cli.text import bytes_text
from rten_aot.options import default_output

_EPILOG = """\
examples:
  rten-aot compile model.rten --target llvm -mcpu=native
  rten-aot compile model.rten --target x86-64-v3 --shape x=1,3,224,224 -o fast.so
  rten-aot compile model.rten --target llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72
  rten-aot compile model.rten --dim batch=1 --emit tir -o model.tir
"""


def main(words: list[str]) -> int:
    """Compile as the words say; returns the exit code."""
    parser = build_parser()
    args = parser.parse(choices.join_features(words, parser.option_strings))
    choices.check_unique(parser, args)
    args.emit = args.emit or "lib"
    output = args.output or default_output(args.model, args.emit)
    if _same_file(args.model, output):
        parser.error(f'the output "{output}" is the model itself')
    if not output.parent.is_dir():
        raise FileNotFoundError(2, "the folder does not exist", str(output.parent))
    return _compile(args, output)


def _compile(args: Namespace, output: Path) -> int:
    progress = ProgressLine(sys.stderr, verbose=args.verbose)
    start = time.perf_counter()

    def stage(name: str, _seconds: float = 0) -> None:
        # Counted from here, so that loading the compiler is in it.
        progress(name, time.perf_counter() - start)

    stage("loading the compiler")
    try:
        path = rten_aot.compile(
            args.model,
            output,
            target=choices.target_text(args.target, args),
            shapes=dict(args.shape),
            dims=dict(args.dim),
            opt_level=args.O,
            emit=args.emit,
            explain=progress.note if args.explain else None,
            progress=stage,
            symbol_prefix=args.symbol_prefix,
            profile=args.profile,
        )
    finally:
        progress.clear()
    seconds = time.perf_counter() - start
    progress.done(f"{path}: {bytes_text(path.stat().st_size)}, {seconds:.1f} s")
    return 0


def build_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(
        "compile",
        "Compile a .rten model to a shared library that needs neither TVM nor Python.",
        epilog=_EPILOG,
        attached=frozenset({"-O"}),
    )
    add = parser.add_argument
    add("model", metavar="MODEL", type=Path, help="the .rten file")
    add(
        "-o",
        "--output",
        metavar="OUT",
        type=Path,
        help="the file to write (default: beside MODEL, with the suffix .so)",
    )
    choices.add_compile_options(parser, target="llvm")
    add(
        "--emit",
        metavar="STAGE",
        type=choices.emit,
        help=f"write a stage in place of the library: {', '.join(choices.EMITS)}",
    )
    add(
        "--symbol-prefix",
        metavar="P",
        help="what the C functions begin with, in place of rten_aot",
    )
    add("--profile", action="store_true", help="time the kernels, for rten-aot profile")
    add("--explain", action="store_true", help="say what the optimiser did and refused, and why")
    add("-v", "--verbose", action="store_true", help="a line for each stage, on any output")
    return parser


def _same_file(model: Path, output: Path) -> bool:
    return model.resolve() == output.resolve()
