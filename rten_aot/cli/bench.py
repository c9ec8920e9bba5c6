"""``rten-aot bench``: how long a model takes, by itself and against other runtimes."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import rten_aot
from rten_aot.cli import choices
from rten_aot.cli.arrays import Array, inputs_to_measure
from rten_aot.cli.library import add_library, library_of, parse
from rten_aot.cli.parser import Parser, file_path
from rten_aot.cli.text import align, ms_text, shape_text
from rten_aot.cli.timing import Comparison, Spread, alternating, warn_if_busy
from rten_aot.interop.peers import PEERS, Peer, open_peer

_EPILOG = """\
MODEL is a compiled library, or a .rten model, which is compiled first. Without inputs it runs on
seeded random values. Another runtime and the model run in turn in one process, on the same inputs
and as many threads; "ratio" is its median over that of the model's runs between its own: how many
times as fast the model is. The runtimes are optional: pip install "rten-aot[bench]".

examples:
  rten-aot bench model.so --threads 1
  rten-aot bench model.so --against onnxruntime openvino --onnx model.onnx --seconds 10
"""


def main(words: list[str]) -> int:
    """Measure as the words say; returns the exit code."""
    parser = build_parser()
    args = parse(parser, words)
    if args.against and args.onnx is None:
        parser.error("--against needs the model as ONNX: --onnx MODEL.onnx")
    if args.onnx is not None and not args.against:
        parser.error(f"--onnx needs a runtime: --against {' or '.join(PEERS)}")
    # The other runtimes are told, so that all use as many.
    args.threads = args.threads or len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    with library_of(args) as library, rten_aot.load(library, num_threads=args.threads) as model:
        feed = inputs_to_measure(model.inputs, args)
        peers = [
            open_peer(name, args.onnx, feed, args.threads) for name in dict.fromkeys(args.against)
        ]
        inputs = list(feed.values())
        own, comparisons = alternating(
            lambda: model(*inputs), [peer.run for peer in peers], args.seconds, args.runs
        )
    compared = list(zip(peers, comparisons, strict=True))
    if args.json:
        facts = _facts(args.threads, load, feed, own, compared)
        print(json.dumps(facts, indent=2, ensure_ascii=False))
    else:
        print("\n".join(_lines(args, feed, own, compared)))
    warn_if_busy(load, args.threads, [own, *(c.other for c in comparisons)])
    return 0


def _lines(
    args: Namespace,
    feed: Mapping[str, Array],
    own: Spread,
    compared: Sequence[tuple[Peer, Comparison]],
) -> list[str]:
    inputs = ", ".join(f"{name} {shape_text(array.shape)}" for name, array in feed.items())
    rows = [
        ("", "median ms", "10 % below", "10 % above", "runs", "ratio"),
        (f"rten-aot {rten_aot.__version__}", *_cells(own), ""),
    ]
    for peer, comparison in compared:
        ratio = f"{comparison.ratio:.2f}"
        rows.append((f"{peer.name} {peer.version}", *_cells(comparison.other), ratio))
    width = 6 if compared else 5
    threads = "1 thread" if args.threads == 1 else f"{args.threads} threads"
    return [
        f"{args.model}: {threads}, {inputs or 'no inputs'}",
        *align([row[:width] for row in rows], indent="", right=range(1, width)),
    ]


def _cells(times: Spread) -> tuple[str, str, str, str]:
    return ms_text(times.median), ms_text(times.p10), ms_text(times.p90), str(times.runs)


def _facts(
    threads: int,
    load: float,
    feed: Mapping[str, Array],
    own: Spread,
    compared: Sequence[tuple[Peer, Comparison]],
) -> dict[str, Any]:
    return {
        "version": rten_aot.__version__,
        "threads": threads,
        "load_average": load,
        "inputs": {
            name: {"dtype": str(array.dtype), "shape": list(array.shape)}
            for name, array in feed.items()
        },
        "seconds": asdict(own),
        "against": {
            peer.name: {
                "version": peer.version,
                "seconds": asdict(comparison.other),
                "own_seconds": asdict(comparison.own),
                "ratio": comparison.ratio,
            }
            for peer, comparison in compared
        },
    }


def build_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(
        "bench",
        "Measure how long a compiled model takes, and other runtimes on the same inputs.",
        epilog=_EPILOG,
        attached=frozenset({"-O"}),
    )
    add_library(
        parser,
        "a compiled library or a .rten model",
        threads="the processors that this process may use",
    )
    add = parser.add_argument
    add(
        "--against",
        metavar="RUNTIME",
        type=choices.runtime,
        nargs="+",
        default=[],
        help=f"other runtimes to compare with: {', '.join(PEERS)}",
    )
    add(
        "--onnx",
        metavar="MODEL.onnx",
        type=file_path,
        help="the model as the other runtimes read it",
    )
    return parser
