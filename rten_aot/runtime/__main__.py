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
from rten_aot.runtime.files import read_arrays
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
                    _run(model, _inputs(model, args.input, args.shape), args.output)
                case _:
                    inputs = _inputs(model, args.input, args.shape)
                    _time(model, inputs, args.seconds, args.runs)
        sys.stdout.flush()
    # What a shell reports for a process that Ctrl-C or the end of a pipe's reader ended.
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Python flushes stdout once more when it ends; let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ModelLoadError, InputError, ModelRunError, OSError, MemoryError) as err:
        print(f"error: {_message(err)}", file=sys.stderr)
        return 1
    return 0


def _message(err: Exception) -> str:
    if isinstance(err, OSError) and err.filename is not None:
        return f"{os.fsdecode(err.filename)}: {err.strerror}"
    return str(err) or "out of memory"


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
        command.add_argument(
            "--shape",
            metavar="NAME=1,3,640,640",
            action="append",
            default=[],
            help="the shape of an input's random values; sizes that are left open are 1",
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


def _run(model: Model, inputs: Mapping[str, Array], output: Path | None) -> None:
    results = model.run(inputs)
    for name, array in results.items():
        first = " ".join(f"{value:.6g}" for value in array.reshape(-1)[:4].tolist())
        more = " ..." if array.size > 4 else ""
        print(f"{name}  {array.dtype}  {_shape_text(array.shape)}  {first}{more}")
    if output is not None:
        _write(output, _archive(results))


def _write(path: Path, data: bytes) -> None:
    """Write a file as a whole or not at all; devices and pipes take the bytes."""
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
        else:
            _replace(Path(os.path.realpath(path)), data)
    except OSError as err:
        raise OSError(err.errno, err.strerror, str(path)) from err


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
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


def _time(model: Model, inputs: Mapping[str, Array], seconds: float, runs: int | None) -> None:
    model.run(inputs)  # takes memory, and reads the weights from the file
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < runs if runs else not times or time.perf_counter() < end:
        start = time.perf_counter()
        model.run(inputs)
        times.append((time.perf_counter() - start) * 1e3)
    times.sort()
    print(f"best {times[0]:.3f} ms  median {times[len(times) // 2]:.3f} ms  ({len(times)} runs)")


def _inputs(model: Model, files: Sequence[str], shapes: Sequence[str]) -> dict[str, Array]:
    if not files:
        return _random_inputs(model.inputs, _shapes(model.inputs, shapes))
    if shapes:
        raise InputError("--shape is for random values, and --input gives others")
    arrays: dict[str, Array] = {}
    for text in files:
        name, path = _split(model.inputs, text)
        loaded = read_arrays(path)
        if isinstance(loaded, dict) == bool(name):
            raise InputError(f'"{text}" is neither NAME=X.npy nor X.npz')
        arrays.update(loaded if isinstance(loaded, dict) else {name: loaded})
    return arrays


def _split(infos: Sequence[TensorInfo], text: str) -> tuple[str, str]:
    """``NAME=REST``; without an input's name all is the rest.

    Names may hold "=": the model's own decide where the name ends.
    """
    names = [info.name for info in infos if text.startswith(info.name + "=")]
    name = max(names, key=len, default="")
    return name, text[len(name) + 1 :] if name else text


def _shapes(infos: Sequence[TensorInfo], texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """What each ``NAME=1,2,3`` says, by name."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, sizes = _split(infos, text)
        entries = [entry.strip() for entry in sizes.split(",")] if sizes.strip() else []
        if not name or not all(entry.isascii() and entry.isdigit() for entry in entries):
            known = ", ".join(f'"{info.name}"' for info in infos) or "none"
            raise InputError(f'"{text}" is not NAME=1,2,3; inputs: {known}')
        shapes[name] = tuple(map(int, entries))
    return shapes


def _random_inputs(
    infos: Sequence[TensorInfo], given: Mapping[str, tuple[int, ...]]
) -> dict[str, Array]:
    """A dimension has the size that a shape gives it, else 1, which is told."""
    dims: dict[str, int] = {}
    for info in infos:
        for dim, size in zip(info.shape, given.get(info.name, ()), strict=False):
            if isinstance(dim, str):
                dims.setdefault(dim, size)
    arrays = {}
    for info in infos:
        sizes = [dims.get(d) if isinstance(d, str) else d for d in info.shape]
        shape = given.get(info.name, tuple(1 if size is None else size for size in sizes))
        if info.name not in given and None in sizes:
            hint = f"give others by --shape {info.name}={','.join(map(str, shape))}"
            text = f"{info.name}  {_shape_text(info.shape)}: open sizes are 1; {hint}"
            print(text, file=sys.stderr)
        arrays[info.name] = _random(info.dtype, shape)
    return arrays


def _random(dtype: str, shape: tuple[int, ...]) -> Array:
    """Seeded values; integers are 0, which is in range as an index."""
    if dtype == "float32":
        return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    return np.zeros(shape, dtype)


def _shape_text(shape: Sequence[int | str | None]) -> str:
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"


if __name__ == "__main__":
    sys.exit(main())
