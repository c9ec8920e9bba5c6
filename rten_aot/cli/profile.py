"""``rten-aot profile``: where the time of a model goes, kernel by kernel."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import rten_aot
from rten_aot.cli import choices
from rten_aot.cli.arrays import inputs_to_measure
from rten_aot.cli.kernel_times import Report, Row, measure_peaks, report
from rten_aot.cli.library import add_library, library_of, parse
from rten_aot.cli.parser import Parser
from rten_aot.cli.text import align, bytes_text, ms_text
from rten_aot.cli.timing import interleaved, warn_if_busy
from rten_aot.runtime import Profile

_NODES_WIDTH = 70

_EPILOG = """\
MODEL is a library made by "rten-aot compile --profile", or a .rten model, which is compiled first.
Times are medians over the runs. FLOPs are those of sums of products, two for each term; bytes are
those of operands and results, each once. "of peak" is the least time by the machine's measured
peaks (c: by computing, m: by moving data), in percent of the time taken. "(outside)" is what no
kernel takes: inputs and outputs, sizes, reading the clock.

examples:
  rten-aot profile model.so --threads 1
  rten-aot profile model.rten -mcpu=native --shape x=1,3,224,224 --top 10
"""


def main(words: list[str]) -> int:
    """Profile as the words say; returns the exit code."""
    args = parse(build_parser(), words)
    with library_of(args, profile=True) as library:
        return _profile(args, library)


def _profile(args: Namespace, library: Path) -> int:
    load = os.getloadavg()[0]
    with rten_aot.load(library, num_threads=args.threads) as model:
        model.take_profile()  # fails at once where there is none
        inputs = list(inputs_to_measure(model.inputs, args).values())
        profiles: list[Profile] = []

        def run() -> None:
            model(*inputs)
            profiles.append(model.take_profile())

        (times,) = interleaved([run], args.seconds, args.runs)
        peaks = measure_peaks(model.measure_peak)
        steps = model.metadata["profile"]
    found = report(steps, profiles[-len(times) :], peaks, by_call=args.calls)
    if args.json:
        print(json.dumps(_facts(found), indent=2, ensure_ascii=False))
    else:
        print("\n".join([*_summary(args.model, found), *_table(found, args.top)]))
    warn_if_busy(load, args.threads or 1, [found.run])
    return 0


def _summary(model: Path, found: Report) -> list[str]:
    run, peaks = found.run, found.peaks
    copies = ", ".join(
        f"{rate * 1e-9:.1f} GB/s in {bytes_text(size)}" for size, rate in peaks.copies.items()
    )
    return [
        f"{model}: median of {run.runs} runs {ms_text(run.median)} ms "
        f"(10 % below {ms_text(run.p10)}, 10 % above {ms_text(run.p90)})",
        f"measured peaks: {peaks.flops * 1e-9:.1f} GFLOP/s; copying {copies}",
    ]


def _table(found: Report, top: int | None) -> list[str]:
    shown = list(found.rows)[:top]
    left = sum(row.seconds for row in found.rows[len(shown) :])
    cells = [
        ("share", "ms", "calls", "GFLOP/s", "GB/s", "of peak", "kernel", "nodes"),
        *(_cells(row, found) for row in shown),
        (_share(found, found.outside), ms_text(found.outside), *[""] * 4, "(outside)", ""),
    ]
    if len(shown) < len(found.rows):
        name = f"({len(found.rows) - len(shown)} more)"
        cells.append((_share(found, left), ms_text(left), *[""] * 4, name, ""))
    return align(cells, indent="", right=range(6))


def _cells(row: Row, found: Report) -> tuple[str, ...]:
    seconds = max(row.seconds, 1e-9)
    bound = "m" if row.is_memory_bound(found.peaks) else "c"
    part = f"{100 * row.limit(found.peaks) / seconds:.0f} % {bound}"
    return (
        _share(found, row.seconds),
        ms_text(row.seconds),
        f"{row.calls:g}",
        f"{row.flops / seconds * 1e-9:.1f}" if row.flops else "",
        f"{row.bytes / seconds * 1e-9:.1f}" if row.bytes else "",
        part if row.flops or row.bytes else "",
        row.kernel.removeprefix("rten_"),
        _nodes_text(row.nodes),
    )


def _share(found: Report, seconds: float) -> str:
    return f"{100 * found.share(seconds):.1f} %"


def _nodes_text(nodes: Sequence[tuple[str, str]]) -> str:
    text = ", ".join(f"{name} ({op})" if name else op for name, op in nodes) or "?"
    return text if len(text) <= _NODES_WIDTH else text[: _NODES_WIDTH - 1] + "…"


def _facts(found: Report) -> dict[str, Any]:
    run, peaks = found.run, found.peaks
    return {
        "runs": run.runs,
        "seconds": {"median": run.median, "p10": run.p10, "p90": run.p90},
        "outside_seconds": found.outside,
        "peaks": {
            "flops_per_second": peaks.flops,
            "copy_bytes_per_second": {str(size): rate for size, rate in peaks.copies.items()},
        },
        "kernels": [
            {
                "kernel": row.kernel,
                "nodes": [{"name": name, "op": op} for name, op in row.nodes],
                "share": found.share(row.seconds),
                "seconds": row.seconds,
                "calls": row.calls,
                "flops": row.flops,
                "bytes": row.bytes,
                "limit_seconds": row.limit(peaks),
                "limit": "memory" if row.is_memory_bound(peaks) else "compute",
            }
            for row in found.rows
        ],
    }


def build_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(
        "profile",
        "Show which kernels the time of a model goes to, how close they come to the machine's\n"
        "measured peaks, and which nodes of the model they stand for.",
        epilog=_EPILOG,
        attached=frozenset({"-O"}),
    )
    add_library(parser, "a library compiled with --profile, or a .rten model")
    add = parser.add_argument
    add("--top", metavar="N", type=choices.count, help="show the N most expensive rows only")
    add("--calls", action="store_true", help="a row for each call, not for each kernel")
    return parser
