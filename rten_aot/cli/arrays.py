"""Arrays in and out of commands that run models: files, random values, a line for each result."""

from __future__ import annotations

import zipfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rten_aot.cli.parser import Parser, did_you_mean, file_path
from rten_aot.cli.text import shape_text
from rten_aot.files import new_file
from rten_aot.runtime import InputError, TensorInfo
from rten_aot.runtime.files import read_arrays

Array: TypeAlias = npt.NDArray[Any]

_SEED = 0
_FIRST = 4


def add_inputs(parser: Parser) -> None:
    """The options that name files with inputs."""
    add = parser.add_argument
    add(
        "--input",
        metavar="NAME=X.npy",
        action="append",
        default=[],
        help="an input and the file with its array; may be repeated",
    )
    add(
        "--inputs", metavar="X.npz", type=file_path, help="a file with the arrays of inputs by name"
    )


def random_inputs(infos: Sequence[TensorInfo]) -> dict[str, Array]:
    """The same random values on every call; free dimensions are 1.

    Integers are 0 or 1, which is in range for masks, and for indices into anything.
    """
    rng = np.random.default_rng(_SEED)
    inputs: dict[str, Array] = {}
    for info in infos:
        shape = tuple(size if isinstance(size, int) else 1 for size in info.shape)
        match info.dtype:
            case "float32":
                inputs[info.name] = rng.standard_normal(shape, dtype=np.float32)
            case "uint8" | "int8":
                kind = np.iinfo(info.dtype)
                inputs[info.name] = rng.integers(kind.min, kind.max + 1, shape, dtype=info.dtype)
            case _:
                inputs[info.name] = rng.integers(0, 2, shape, dtype=info.dtype)
    return inputs


def inputs_to_measure(infos: Sequence[TensorInfo], args: Namespace) -> dict[str, Array]:
    """The arrays of all inputs, in the model's order: those from files, else random values.

    Free dimensions have the sizes that ``--shape`` and ``--dim`` give; what these or arrays give
    for a name holds for all inputs.

    Raises:
        InputError: a name is not the model's, a shape does not fit, or a dimension is left free.
        OSError: a file cannot be read.
    """
    given = file_inputs(infos, args.input, args.inputs)
    own = {name: array.shape for name, array in given.items()}
    left = [t for t in sized(infos, args, own) if t.name not in given]
    for info in left:
        _check_fixed(info)
    values = random_inputs(left) | given
    return {info.name: values[info.name] for info in infos}


def sized(
    infos: Sequence[TensorInfo], args: Namespace, given: Mapping[str, Sequence[int]]
) -> list[TensorInfo]:
    """The inputs with the sizes that ``--shape``, ``--dim`` and ``given`` shapes tell.

    Raises:
        InputError: a name is not the model's, or a shape does not fit.
    """
    shapes, dims = dict(args.shape), dict(args.dim)
    for name in shapes:
        _check_name(name, [info.name for info in infos])
    known = {size for info in infos for size in info.shape if isinstance(size, str)}
    for name in dims:
        _check_dim(name, sorted(known))
    shapes |= given
    for info in infos:
        shape = shapes.get(info.name, info.shape)
        _check_shape(info, shape)
        for own, size in zip(info.shape, shape, strict=True):
            if isinstance(own, str) and isinstance(size, int):
                dims.setdefault(own, size)
    return [_sized(info, shapes.get(info.name, info.shape), dims) for info in infos]


def _check_dim(name: str, known: Sequence[str]) -> None:
    if name not in known:
        names = ", ".join(f'"{k}"' for k in known) or "none"
        hint = did_you_mean(name, known) or f"; free dimensions: {names}"
        raise InputError(f'the model has no free dimension "{name}"{hint}')


def _check_shape(info: TensorInfo, shape: Sequence[int | str | None]) -> None:
    pairs = list(zip(info.shape, shape, strict=False))
    if len(shape) != len(info.shape) or any(
        isinstance(a, int) and b not in (a, None) for a, b in pairs
    ):
        raise InputError(
            f'input "{info.name}" has shape {shape_text(info.shape)}, got {shape_text(shape)}'
        )


def _sized(
    info: TensorInfo, shape: Sequence[int | str | None], dims: Mapping[str, int]
) -> TensorInfo:
    sizes: list[int | str | None] = []
    for own, given in zip(info.shape, shape, strict=True):
        size = own if given is None else given
        sizes.append(dims.get(size, size) if isinstance(size, str) else size)
    return TensorInfo(info.name, info.dtype, tuple(sizes))


def _check_fixed(info: TensorInfo) -> None:
    if not all(isinstance(size, int) for size in info.shape):
        raise InputError(
            f'input "{info.name}" has the free dimensions {shape_text(info.shape)}\n'
            f"hint: give their sizes by --dim NAME=N or --shape {info.name}=1,2,3, or an array by "
            "--input"
        )


def file_inputs(
    infos: Sequence[TensorInfo], pairs: Sequence[str], archive: Path | None
) -> dict[str, Array]:
    """The arrays that ``--inputs archive`` and each ``--input NAME=FILE`` hold, by input name.

    Raises:
        InputError: a name is not an input's, comes twice, or a file holds no plain array.
        OSError: a file cannot be read.
    """
    inputs: dict[str, Array] = {}
    known = [info.name for info in infos]
    if archive is not None:
        loaded = read_arrays(archive)
        if not isinstance(loaded, dict):
            raise InputError(
                f"{archive}: not an .npz file; give single arrays by --input NAME=FILE"
            )
        for name, array in loaded.items():
            _check_name(name, known)
            inputs[name] = array
    for pair in pairs:
        name, path = _split(pair, known)
        if name in inputs:
            raise InputError(f'input "{name}" is given twice')
        loaded = read_arrays(path)
        if isinstance(loaded, dict):
            raise InputError(f"{path}: holds several arrays by name; give it by --inputs")
        inputs[name] = loaded
    return inputs


def _split(pair: str, known: Sequence[str]) -> tuple[str, Path]:
    """Names and paths may both hold ``=``: the names that the model has decide."""
    fits = [name for name in known if pair.startswith(name + "=")]
    name = max(fits, key=len) if fits else pair.rpartition("=")[0]
    if "=" not in pair or not name:
        raise InputError(f'"{pair}" does not have the form --input NAME=FILE.npy')
    _check_name(name, known)
    return name, Path(pair[len(name) + 1 :])


def _check_name(name: str, known: Sequence[str]) -> None:
    if name not in known:
        names = ", ".join(f'"{k}"' for k in known) or "none"
        hint = did_you_mean(name, known) or f"; inputs: {names}"
        raise InputError(f'the model has no input "{name}"{hint}')


def write_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays so that ``np.load(path)[name]`` gives each back; whole or not at all.

    ``np.savez`` is of no use: it takes names as keyword arguments, of which it needs some itself.
    """
    with new_file(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def summary(array: Array) -> str:
    """One line about the values: least, mean, greatest, and the first few."""
    if array.size == 0:
        return "empty"
    values = array.reshape(-1)[:_FIRST].tolist()
    first = " ".join(_number(value) for value in values)
    more = " …" if array.size > _FIRST else ""
    if array.size == 1:
        return f"value {first}"
    with np.errstate(all="ignore"):
        mean = float(array.mean(dtype=np.float64))
    low, high = _number(array.min().item()), _number(array.max().item())
    return f"min {low}  mean {_number(mean)}  max {high}  first {first}{more}"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6g}"
