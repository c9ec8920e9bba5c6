"""``rten-aot export-onnx``: a .rten model as an ONNX model."""

from __future__ import annotations

import sys
from pathlib import Path

from rten_aot.cli.parser import Parser, file_path
from rten_aot.cli.progress import ProgressLine
from rten_aot.cli.text import bytes_text
from rten_aot.extras import import_verify
from rten_aot.files import check_writable, is_same_file
from rten_aot.format import read_model

_EPILOG = """\
The model has RTen's data types: what is bool or int64 in ONNX is int32, with casts where ONNX wants
the former. Weights beyond 2 GB go to a file beside OUT. Needs the package onnx.
"""


def main(words: list[str]) -> int:
    """Write the model as the words say; returns the exit code."""
    parser = build_parser()
    args = parser.parse(words)
    output = args.output or _beside(args.model)
    if is_same_file(args.model, output):
        parser.error(f'the output "{output}" is the model itself')
    check_writable(output)
    export = import_verify("rten_aot.interop.export")
    data = export.export_onnx(read_model(args.model), output)
    for path in (output, data):
        if path is not None:
            ProgressLine(sys.stderr, verbose=False).done(
                f"{path}: {bytes_text(path.stat().st_size)}"
            )
    return 0


def _beside(model: Path) -> Path:
    stem = model.stem if model.suffix.lower() == ".rten" else model.name
    return model.parent / f"{stem}.onnx"


def build_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(
        "export-onnx",
        "Write a .rten model as ONNX, for viewers such as Netron and for ONNX Runtime.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("model", metavar="MODEL", type=file_path, help="the .rten file")
    add(
        "output",
        metavar="OUT",
        nargs="?",
        type=file_path,
        help="the file to write (default: beside MODEL, with the suffix .onnx)",
    )
    return parser
