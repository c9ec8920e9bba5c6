"""``rten-aot verify``: a compiled model against ONNX Runtime, and where a difference begins."""

from __future__ import annotations

import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import rten_aot
from rten_aot.cli import choices
from rten_aot.cli.arrays import Array, add_inputs, file_inputs, random_inputs
from rten_aot.cli.library import check_runs_here
from rten_aot.cli.parser import Parser, file_path
from rten_aot.cli.progress import ProgressLine
from rten_aot.cli.text import align, shape_text
from rten_aot.errors import CompileError
from rten_aot.extras import import_compiler, import_verify
from rten_aot.format import Model, read_model
from rten_aot.options import Weights
from rten_aot.runtime import InputError, ModelRunError, TensorInfo
from rten_aot.runtime.inputs import convert

EQUAL, DIFFERENT = 0, 1
TOLERANCES: Mapping[Weights, float] = {"fp32": 1e-4, "fp16": 5e-2}
"""Those that are allowed by default, by how weights are stored."""

_TARGET = "llvm -mcpu=native"

_EPILOG = """\
The exit code is 0 if all outputs are equal and 1 if not. Integers must be the same; floats may be
off by the tolerance times the greatest value of their array. Without inputs the model runs on
seeded random values, with free dimensions set to 1. Needs the packages onnx and onnxruntime.

examples:
  rten-aot verify model.rten
  rten-aot verify model.rten --dim batch=2 --inputs x.npz --threads 1
"""


def main(words: list[str]) -> int:
    """Verify as the words say; returns the exit code."""
    parser = build_parser()
    args = parser.parse(choices.join_features(words, parser.option_strings))
    choices.check_unique(parser, args)
    if args.target == _TARGET and args.mcpu:
        args.target = "llvm"
    if args.tolerance is None:
        args.tolerance = TOLERANCES[args.weights]
    verify = import_verify("rten_aot.interop.verify")
    check_runs_here(choices.target_text(args.target, args))
    model = read_model(args.model)
    with tempfile.TemporaryDirectory(prefix="rten-aot-verify-") as folder:
        engine = _Engine(args, Path(folder))
        try:
            return _verify(engine, model, verify)
        finally:
            engine.progress.clear()


class _Engine:
    """Compiles models for this machine and runs them, all on the same inputs."""

    def __init__(self, args: Namespace, folder: Path) -> None:
        self.args = args
        self.progress = ProgressLine(sys.stderr, verbose=args.verbose)
        self.inputs: list[Array] | None = None
        self.outputs: Sequence[TensorInfo] = ()
        self._library = folder / "model.so"
        self._driver = import_compiler("rten_aot.driver")

    def run(self, model: Model) -> Sequence[Array]:
        """Compile a model and give its outputs; the first one decides what the inputs are."""
        args = self.args
        self._driver.compile(
            model,
            self._library,
            target=choices.target_text(args.target, args),
            shapes=dict(args.shape),
            dims=dict(args.dim),
            opt_level=args.O,
            progress=self.progress,
            weights=args.weights,
        )
        with rten_aot.load(self._library, num_threads=args.threads) as loaded:
            if self.inputs is None:
                self.inputs = self._choose(loaded.inputs)
                self.outputs = loaded.outputs
            self.progress("running", 0)
            outputs: Sequence[Array] = loaded(*self.inputs)
        return outputs

    def _choose(self, infos: Sequence[TensorInfo]) -> list[Array]:
        args = self.args
        if not args.input and not args.inputs:
            values = random_inputs(infos)
        else:
            values = file_inputs(infos, args.input, args.inputs)
        for info in infos:
            if info.name not in values:
                raise InputError(f'input "{info.name}" is missing')
        return [convert(t.name, np.dtype(t.dtype), values[t.name]) for t in infos]


def _verify(engine: _Engine, model: Model, verify: ModuleType) -> int:
    args = engine.args
    got = engine.run(model)
    inputs = engine.inputs or []
    want = verify.run_reference(model, inputs, args.threads or 0)
    comparisons = verify.compare_outputs(model, got, want, args.tolerance)
    engine.progress.clear()
    print("\n".join(align([_row(i, c) for i, c in zip(engine.outputs, comparisons, strict=True)])))
    if all(c is None or c.equal for c in comparisons):
        print(f"equal to ONNX Runtime (tolerance {args.tolerance:g})")
        return EQUAL
    print("different from ONNX Runtime; looking for the first value that differs", flush=True)
    try:
        found = verify.first_difference(
            model, inputs, engine.run, args.tolerance, args.threads or 0
        )
    except (CompileError, ModelRunError) as err:
        engine.progress.clear()
        print(f"it cannot be found: {err}")
        return DIFFERENT
    engine.progress.clear()
    print("\n".join(_story(found)))
    return DIFFERENT


def _row(info: TensorInfo, comparison: Any) -> tuple[str, ...]:
    shape = shape_text(info.shape)
    if comparison is None:
        return (info.name, info.dtype, shape, "random: not compared")
    verdict = "equal" if comparison.equal else "DIFFERENT"
    return (info.name, info.dtype, shape, verdict, _error(comparison))


def _error(comparison: Any) -> str:
    if comparison.note:
        return str(comparison.note)
    return f"worst error {comparison.absolute:.3g}, {comparison.relative:.3g} of the greatest value"


def _story(found: Any) -> list[str]:
    if found is None:
        return [
            "no value differs where each is computed by itself: operators are put together wrongly"
        ]
    place, comparison = found.place, found.comparison
    what = f'output {place.output} of node "{place.node.name}" ({place.node.op})'
    lines = [f"first difference: {what}", f"  {_error(comparison)}"]
    if not comparison.note:
        at = comparison.place
        lines.append(f"  at {list(at)}: {found.got[at]}; ONNX Runtime: {found.want[at]}")
    if found.alone:
        lines.append("  it vanishes where the values before it are outputs too")
    return lines


def build_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(
        "verify",
        "Compile a .rten model for this machine, run it and run ONNX Runtime on the same inputs; "
        "tell\nwhich outputs differ, and which value inside the model is the first to do so.",
        epilog=_EPILOG,
        attached=frozenset({"-O"}),
    )
    add = parser.add_argument
    add("model", metavar="MODEL", type=file_path, help="the .rten file")
    add_inputs(parser)
    choices.add_compile_options(parser, target=_TARGET)
    choices.add_weights(parser)
    add(
        "--threads",
        metavar="N",
        type=choices.threads,
        help="how many threads to use (default: the physical cores)",
    )
    add(
        "--tolerance",
        metavar="T",
        type=choices.tolerance,
        help="error allowed, as a part of the greatest value (default: "
        f"{TOLERANCES['fp32']:g}; of weights in fp16 {TOLERANCES['fp16']:g})",
    )
    add("-v", "--verbose", action="store_true", help="a line for each stage, on any output")
    return parser
