"""Times every real model against ONNX Runtime: ``python -m tests.support.bench [MODEL ...]``.

Both run in one process, in turn, on the same inputs; the medians of the single runs are compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import onnxruntime

import rten_aot
from tests.support import models


def main() -> None:
    """Print a table with a row for each model and input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="*", help="names of models; all if none is given")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=2.0, help="for each row and thread count")
    parser.add_argument("--target", default="llvm -mcpu=native")
    args = parser.parse_args()
    columns = "".join(f" | ORT {t}T ms | ours {t}T ms | ratio" for t in args.threads)
    print(f"| model | compile s{columns} |")
    print("|---|---" + "|---|---|---" * len(args.threads) + "|")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        for case in models.CASES:
            if not args.model or case.model in args.model:
                print(_row(case, args, Path(folder)), flush=True)
    print(f"\nload average: {load:.1f} before, {os.getloadavg()[0]:.1f} after")


def _row(case: models.Case, args: argparse.Namespace, folder: Path) -> str:
    library = folder / "model.so"
    start = time.perf_counter()
    rten_aot.compile(
        models.rten_path(case.model), library, target=args.target, shapes=case.shapes()
    )
    cells = [str(case), f"{time.perf_counter() - start:.1f}"]
    feed = case.inputs("realistic", 0)
    own_feed = models.rten_inputs(feed)
    for threads in args.threads:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        # Its workers spin on after a run, on the core that ours would need for the next one.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        session = onnxruntime.InferenceSession(
            models.onnx_path(case.model), options, providers=["CPUExecutionProvider"]
        )
        with rten_aot.load(library, num_threads=threads) as model:
            theirs, ours = _medians(
                lambda session=session: session.run(None, feed),
                lambda model=model: model.run(own_feed),
                args.seconds,
            )
        cells += [f"{theirs * 1e3:.2f}", f"{ours * 1e3:.2f}", f"{theirs / ours:.2f}"]
    return "| " + " | ".join(cells) + " |"


def _medians(
    first: Callable[[], object], second: Callable[[], object], seconds: float
) -> tuple[float, float]:
    """The median times of both, run in turn after a warm-up."""
    times: tuple[list[float], list[float]] = ([], [])
    for function in (first, second):
        function()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for function, kept in zip((first, second), times, strict=True):
            start = time.perf_counter()
            function()
            kept.append(time.perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])


if __name__ == "__main__":
    main()
