"""Times every real model against other runtimes: ``python -m tests.support.bench [MODEL ...]``.

Two run in one process, in turn, on the same inputs; the medians of the single runs are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import rten_aot
from rten_aot.cli.timing import Comparison, Spread, alternating, geometric_mean, warn_if_busy
from rten_aot.errors import CompileError
from rten_aot.interop.peers import PEERS, Peer, open_peer
from tests.support import models

_SHORT = {"onnxruntime": "ORT", "openvino": "OV"}


@dataclass(frozen=True)
class Result:
    """The times of one model and input on so many threads."""

    case: str
    threads: int
    own: Spread
    compared: dict[str, Comparison | None]
    """By the name of the other runtime; None where it cannot run the model."""

    def facts(self) -> dict[str, Any]:
        """The result as plain data, times in seconds."""
        return {
            **asdict(self),
            "ratios": {name: c.ratio for name, c in self.compared.items() if c is not None},
        }

    def cells(self) -> list[str]:
        """Its part of the row in the table."""
        cells = [f"{self.own.median * 1e3:.2f}"]
        for comparison in self.compared.values():
            if comparison is None:
                cells += ["", ""]
            else:
                cells += [f"{comparison.other.median * 1e3:.2f}", f"{comparison.ratio:.2f}"]
        return cells


def main() -> None:
    """Print a table with a row for each model and input, and the means of its ratios."""
    args = _parser().parse_args()
    columns = "".join(
        f" | ours {t}T ms" + "".join(f" | {_SHORT[p]} {t}T ms | ratio" for p in args.against)
        for t in args.threads
    )
    print(f"| model | compile s{columns} |")
    print("|---" * (columns.count("|") + 2) + "|")
    load = os.getloadavg()[0]
    results: list[Result] = []
    versions = {"rten-aot": rten_aot.__version__}
    with tempfile.TemporaryDirectory() as folder:
        for case in models.CASES:
            if not args.model or case.model in args.model:
                results += _row(case, args, Path(folder, "model.so"), versions)
    print("\n" + "\n".join(summary(results)))
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    print(f"load average: {load:.1f} before, {os.getloadavg()[0]:.1f} after")
    warn_if_busy(load, max(args.threads), [result.own for result in results])
    if args.json is not None:
        facts = {"versions": versions, "results": [result.facts() for result in results]}
        args.json.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="*", help="names of models; all if none is given")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=2.0, help="for each pair of times")
    parser.add_argument("--target", default="llvm -mcpu=native")
    parser.add_argument(
        "--against", nargs="*", choices=list(PEERS), default=["onnxruntime"], metavar="RUNTIME"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all times to a file")
    return parser


def _row(
    case: models.Case, args: argparse.Namespace, library: Path, versions: dict[str, str]
) -> list[Result]:
    """Measure a model and print its row."""
    start = time.perf_counter()
    rten_aot.compile(
        models.rten_path(case.model), library, target=args.target, shapes=case.shapes()
    )
    cells = [str(case), f"{time.perf_counter() - start:.1f}"]
    feed = models.rten_inputs(case.inputs("realistic", 0))
    results = []
    for threads in args.threads:
        peers = _peers(case, args.against, feed, threads)
        versions |= {peer.name: peer.version for peer in peers}
        with rten_aot.load(library, num_threads=threads) as model:
            own, comparisons = alternating(
                lambda model=model: model.run(feed), [peer.run for peer in peers], args.seconds
            )
        compared = dict.fromkeys(args.against) | {
            peer.name: comparison for peer, comparison in zip(peers, comparisons, strict=True)
        }
        results.append(Result(str(case), threads, own, compared))
        cells += results[-1].cells()
    print("| " + " | ".join(cells) + " |", flush=True)
    return results


def _peers(case: models.Case, names: Sequence[str], feed: models.Feed, threads: int) -> list[Peer]:
    """Those of the runtimes that can run the model."""
    peers = []
    for name in names:
        try:
            peers.append(open_peer(name, models.onnx_path(case.model), feed, threads))
        except CompileError as err:
            print(f"{case}: {str(err).splitlines()[0]}", file=sys.stderr)
    return peers


def summary(results: Sequence[Result]) -> list[str]:
    """For each number of threads the geometric means of the ratios."""
    lines = []
    for threads in dict.fromkeys(result.threads for result in results):
        chosen = [result for result in results if result.threads == threads]
        names = list(chosen[0].compared)
        means = [_mean([[r.compared[name]] for r in chosen], name) for name in names]
        if len(names) > 1:
            means.append(_mean([list(r.compared.values()) for r in chosen], "the better one"))
        if names:
            lines.append(f"geometric mean of the speed, {threads}T: {', '.join(means)}")
    return lines


def _mean(rows: Sequence[Sequence[Comparison | None]], name: str) -> str:
    """That of the least ratio of each row that has one."""
    least = [min(ratios) for row in rows if (ratios := [c.ratio for c in row if c is not None])]
    if not least:
        return f"none of {name}"
    return f"{geometric_mean(least):.2f} of {name} ({len(least)} rows)"


if __name__ == "__main__":
    main()
