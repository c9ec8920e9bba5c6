"""``python -m rten_aot.runtime``: describe, run or time a compiled model where only NumPy is."""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import sys
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rten_aot.runtime.errors import InputError, ModelLoadError, ModelRunError
from rten_aot.runtime.inputs import Array
from rten_aot.runtime.model import Model, TensorInfo, load


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says; returns the exit code."""
    args = parser().parse_args(words)
    if args.command == "run" and args.output is not None and _is_same(args.output, args.model):
        print(f"error: the output {args.output} is the model itself", file=sys.stderr)
        return 2
    try:
        with load(args.model, num_threads=args.threads) as model:
            match args.command:
                case "describe":
                    _describe(model, as_json=args.json)
                case "run":
                    _run(model, args.input, args.output)
                case _:
                    _time(model, args.input, args.seconds, args.runs)
    except (ModelLoadError, InputError, ModelRunError, OSError) as err:
        print(f"error: {err}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    program = f"python -m {__package__}" if __package__ else None
    top = argparse.ArgumentParser(prog=program, description="Describe, run or time a model.")
    commands = top.add_subparsers(dest="command", required=True)
    describe = commands.add_parser("describe", help="show inputs, outputs, the target and sizes")
    describe.add_argument("--json", action="store_true", help="all metadata, as JSON")
    run = commands.add_parser("run", help="run once and show the outputs")
    run.add_argument("--output", metavar="Y.npz", type=Path, help="write the outputs to a file")
    times = commands.add_parser("time", help="time runs")
    times.add_argument(
        "--seconds",
        metavar="S",
        type=_seconds,
        default=2.0,
        help="how long to measure (default: 2)",
    )
    times.add_argument("--runs", metavar="N", type=_positive, help="run so many times instead")
    for command in (describe, run, times):
        command.add_argument("model", metavar="MODEL.so")
        command.add_argument(
            "--threads",
            metavar="N",
            type=_positive,
            help="how many threads to use (default: the physical cores)",
        )
    for command in (run, times):
        command.add_argument(
            "--input",
            metavar="FILE",
            action="append",
            default=[],
            help="NAME=X.npy for one input, or X.npz for several; random values by default",
        )
    return top


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'"{text}" is not a positive number')
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f'"{text}" is not a positive number')
    return value


def _is_same(output: Path, model: str) -> bool:
    return os.path.realpath(output) == os.path.realpath(model)


def _describe(model: Model, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(model.metadata, indent=2, ensure_ascii=False))
        return
    for title, infos in (("inputs", model.inputs), ("outputs", model.outputs)):
        print(f"{title}:")
        for info in infos:
            print(f"  {info.name}  {info.dtype}  {_shape_text(info.shape)}")
    target = model.metadata.get("target", {})
    print(f"target: {target.get('triple', 'unknown')} {target.get('cpu', '')}".rstrip())
    if target.get("levels"):
        print(f"level: {target['level']}, of {', '.join(target['levels'])}")
    for what, size in model.metadata.get("sizes", {}).items():
        print(f"{what}: {'depends on the shapes' if size is None else f'{size:,} bytes'}")


def _run(model: Model, files: Sequence[str], output: Path | None) -> None:
    results = model.run(_inputs(model, files))
    for name, array in results.items():
        first = " ".join(f"{value:.6g}" for value in array.reshape(-1)[:4].tolist())
        more = " ..." if array.size > 4 else ""
        print(f"{name}  {array.dtype}  {_shape_text(array.shape)}  {first}{more}")
    if output is not None:
        _write(output, _archive(results))


def _write(path: Path, data: bytes) -> None:
    """Write a file as a whole or not at all; devices and pipes take the bytes."""
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    place = Path(os.path.realpath(path))
    temporary = place.with_name(f".{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, place)
    finally:
        temporary.unlink(missing_ok=True)


def _archive(arrays: Mapping[str, Array]) -> bytes:
    # numpy.savez takes names as keyword arguments, of which it has some itself.
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return data.getvalue()


def _time(model: Model, files: Sequence[str], seconds: float, runs: int | None) -> None:
    inputs = _inputs(model, files)
    model.run(inputs)  # takes memory, and reads the weights from the file
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < runs if runs else not times or time.perf_counter() < end:
        start = time.perf_counter()
        model.run(inputs)
        times.append((time.perf_counter() - start) * 1e3)
    times.sort()
    print(f"best {times[0]:.3f} ms  median {times[len(times) // 2]:.3f} ms  ({len(times)} runs)")


def _inputs(model: Model, files: Sequence[str]) -> dict[str, Array]:
    if not files:
        return {info.name: _random(info) for info in model.inputs}
    arrays: dict[str, Array] = {}
    for text in files:
        # Names may hold "=": the model's own decide where the name ends.
        names = [info.name for info in model.inputs if text.startswith(info.name + "=")]
        name = max(names, key=len, default="")
        path = text[len(name) + 1 :] if name else text
        loaded = _load(path)
        if isinstance(loaded, dict) == bool(name):
            raise InputError(f'"{text}" is neither NAME=X.npy nor X.npz')
        arrays.update(loaded if isinstance(loaded, dict) else {name: loaded})
    return arrays


def _load(path: str) -> Array | dict[str, Array]:
    try:
        with open(path, "rb") as file:
            loaded: Array | np.lib.npyio.NpzFile = np.load(file, allow_pickle=False)
            return loaded if isinstance(loaded, np.ndarray) else dict(loaded)
    except (ValueError, EOFError, zipfile.BadZipFile) as err:
        raise InputError(f"{path}: not a file with plain arrays ({err})") from err


def _random(info: TensorInfo) -> Array:
    """Seeded values; free dimensions are 1, and integers 0, which is in range as an index."""
    shape = tuple(size if isinstance(size, int) else 1 for size in info.shape)
    if info.dtype == "float32":
        return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    return np.zeros(shape, info.dtype)


def _shape_text(shape: Sequence[int | str | None]) -> str:
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"


if __name__ == "__main__":
    sys.exit(main())
