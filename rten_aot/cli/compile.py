"""``rten-aot compile``: a .rten model to a shared library, or to a stage on the way."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from pathlib import Path

import rten_aot
from rten_aot.bundle import library_name, new_files, texts
from rten_aot.cli import choices
from rten_aot.cli.artifact import read_metadata
from rten_aot.cli.parser import Parser, file_path
from rten_aot.cli.progress import ProgressLine
from rten_aot.cli.text import bytes_text
from rten_aot.files import check_writable, is_same_file
from rten_aot.options import LIBCS, default_output
from rten_aot.runtime.abi import DEFAULT_PREFIX

_EPILOG = """\
examples:
  rten-aot compile model.rten --target llvm -mcpu=native
  rten-aot compile model.rten --target x86-64-v3 --shape x=1,3,224,224 -o fast.so
  rten-aot compile model.rten --target raspberry-pi-4
  rten-aot compile model.rten --target llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72
  rten-aot compile model.rten --target wasm32 -o model.wasm
  rten-aot compile model.rten --emit static --libc musl --symbol-prefix face -o face.a
  rten-aot compile model.rten --target x86-64-v2,x86-64-v3,x86-64-v4
  rten-aot compile model.rten --target cortex-a72 --bundle for-the-board
  rten-aot compile model.rten --target cortex-a72 --weights fp16
  rten-aot compile model.rten --dim batch=1 --emit tir -o model.tir
"""


def main(words: list[str]) -> int:
    """Compile as the words say; returns the exit code."""
    parser = build_parser()
    args = parser.parse(choices.join_features(words, parser.option_strings))
    choices.check_unique(parser, args)
    if args.bundle is not None:
        for option, value in (("-o", args.output), ("--emit", args.emit)):
            if value is not None:
                parser.error(f"argument --bundle: not with {option}; it says what is written where")
        if "wasm32" in choices.target_text(args.target, args):
            parser.error("argument --bundle: not for wasm32; a module is all that is needed")
        return _bundle(args)
    args.emit = args.emit or "lib"
    output = args.output or default_output(
        args.model, args.emit, choices.target_text(args.target, args)
    )
    if is_same_file(args.model, output):
        parser.error(f'the output "{output}" is the model itself')
    check_writable(output)
    _compile(args, output, output)
    return 0


def _bundle(args: Namespace) -> int:
    """Compile to a folder, together with what goes with the library."""
    args.emit = "lib"
    name = library_name(args.model.stem)
    prefix = (args.symbol_prefix or DEFAULT_PREFIX).rstrip("_")
    with new_files(args.bundle) as folder:
        _compile(args, folder / name, args.bundle / name)
        rten_aot.compile(
            args.model, folder / f"{prefix}.h", emit="header", symbol_prefix=args.symbol_prefix
        )
        for file, text in texts(name, prefix, read_metadata(folder / name)).items():
            (folder / file).write_text(text, encoding="utf-8")
    return 0


def _compile(args: Namespace, output: Path, destination: Path) -> None:
    """Compile to a file, which will be at ``destination`` in the end."""
    progress = ProgressLine(sys.stderr, verbose=args.verbose)
    start = time.perf_counter()

    def stage(name: str, _seconds: float = 0) -> None:
        # Counted from here, so that loading the compiler is in it.
        progress(name, time.perf_counter() - start)

    def warn(line: str) -> None:
        progress.clear()
        print(f"warning: {line}", file=sys.stderr)

    stage("loading the compiler")
    try:
        rten_aot.compile(
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
            libc=args.libc,
            profile=args.profile,
            db=args.db,
            warn=warn,
            weights=args.weights,
        )
    finally:
        progress.clear()
    seconds = time.perf_counter() - start
    progress.done(f"{destination}: {bytes_text(output.stat().st_size)}, {seconds:.1f} s")


def build_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(
        "compile",
        "Compile a .rten model to a shared library that needs neither TVM nor Python.",
        epilog=_EPILOG,
        attached=frozenset({"-O"}),
    )
    add = parser.add_argument
    add("model", metavar="MODEL", type=file_path, help="the .rten file")
    add(
        "-o",
        "--output",
        metavar="OUT",
        type=file_path,
        help="the file to write (default: beside MODEL, with the suffix .so, or for wasm32 .wasm)",
    )
    choices.add_compile_options(parser, target="llvm")
    choices.add_weights(parser)
    add(
        "--emit",
        metavar="STAGE",
        type=choices.emit,
        help="write, in place of the library, an archive with its header for programs to link "
        f"(static), or a stage: {', '.join(e for e in choices.EMITS if e != 'static')}",
    )
    add(
        "--bundle",
        metavar="DIR",
        type=file_path,
        help="write the library into a folder, with its C header, a loader for Python, an example "
        "in each language, a CMake file and a README",
    )
    add(
        "--symbol-prefix",
        metavar="P",
        help="what the C functions begin with, in place of rten_aot",
    )
    add(
        "--libc",
        metavar="NAME",
        type=choices.libc,
        help=f"the C library of the Linux that it is for: {', '.join(LIBCS)} (default: glibc)",
    )
    add("--db", metavar="TUNE.json", type=file_path, help="use what rten-aot tune found to be fast")
    add("--profile", action="store_true", help="time the kernels, for rten-aot profile")
    add("--explain", action="store_true", help="say what the optimiser did and refused, and why")
    add("-v", "--verbose", action="store_true", help="a line for each stage, on any output")
    return parser
