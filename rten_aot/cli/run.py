"""``rten-aot run``: run a compiled model once, on arrays from files or on random values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import rten_aot
from rten_aot.cli import choices
from rten_aot.cli.arrays import (
    Array,
    add_inputs,
    file_inputs,
    random_inputs,
    sized,
    summary,
    write_npz,
)
from rten_aot.cli.parser import Parser, file_path
from rten_aot.cli.text import align, shape_text
from rten_aot.files import check_writable, is_same_file
from rten_aot.runtime import TensorInfo


def main(words: list[str]) -> int:
    """Run a model as the words say; returns the exit code."""
    parser = build_parser()
    args = parser.parse(words)
    choices.check_unique(parser, args)
    files = bool(args.input or args.inputs)
    if files and (args.shape or args.dim):
        parser.error("--shape and --dim are for random values, which files take the place of")
    if args.output is not None:
        if is_same_file(args.model, args.output):
            parser.error(f'the output "{args.output}" is the model itself')
        check_writable(args.output)
    model = rten_aot.load(args.model, num_threads=args.threads)
    if files:
        inputs = file_inputs(model.inputs, args.input, args.inputs)
    else:
        infos = sized(model.inputs, args, {})
        inputs = random_inputs(infos)
        _print_random(infos, inputs)
    outputs = model.run(inputs)
    _print_outputs(outputs)
    if args.output is not None:
        write_npz(args.output, outputs)
    return 0


def _print_random(infos: Sequence[TensorInfo], inputs: Mapping[str, Array]) -> None:
    if not inputs:
        return
    free = any(not isinstance(size, int) for info in infos for size in info.shape)
    print("inputs: seeded random values" + (", free dimensions set to 1" if free else ""))
    rows = [(name, str(a.dtype), shape_text(a.shape)) for name, a in inputs.items()]
    print("\n".join(align(rows)))


def _print_outputs(outputs: Mapping[str, Array]) -> None:
    rows = [
        (name, str(array.dtype), shape_text(array.shape), summary(array))
        for name, array in outputs.items()
    ]
    print("\n".join(["outputs:", *align(rows)] if rows else ["outputs: none"]))


def build_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(
        "run",
        "Run a compiled model once and show its outputs. Needs NumPy only.",
        epilog="Without inputs the model runs on seeded random values, just for a look; sizes that "
        "neither it nor --shape and --dim fix are 1 then.",
    )
    add = parser.add_argument
    add("model", metavar="MODEL.so", type=file_path, help="the library that rten-aot compile wrote")
    add_inputs(parser)
    choices.add_sizes(parser)
    add("--output", metavar="Y.npz", type=file_path, help="write the outputs to a file, by name")
    add(
        "--threads",
        metavar="N",
        type=choices.threads,
        help="how many threads to use (default: the physical cores)",
    )
    return parser
