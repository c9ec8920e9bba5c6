"""The words of ``rten-aot compile`` that argparse cannot read by itself: targets, shapes, sizes."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import TypeVar

from rten_aot.cli.parser import Parser, did_you_mean
from rten_aot.interop.peers import PEERS
from rten_aot.options import LIBCS, OPT_LEVELS, SUFFIXES, WEIGHTS, Emit, Libc, Weights

_Name = TypeVar("_Name", bound=str)

EMITS: tuple[Emit, ...] = tuple(kind for kind in SUFFIXES if kind != "lib")

# Options of LLVM's tools and TVM's target strings, which have one dash.
TARGET_OPTIONS = ("mcpu", "mattr", "mtriple", "arch", "precision")


def add_compile_options(parser: Parser, *, target: str) -> None:
    """The options that say how a model is to be compiled, for every command that does so."""
    add = parser.add_argument
    add(
        "--target",
        metavar="T",
        default=target,
        help='a name that "rten-aot targets" lists, or "llvm" with the options below, as separate '
        'words or in one string: --target="llvm -mcpu=native"; names joined by commas are for a '
        "library that takes the best that the CPU allows (default: " + target + ")",
    )
    add("-mcpu", metavar="CPU", help='the CPU to build for; "native" is this machine\'s')
    add("-mattr", metavar="+A,-B", action="append", help="CPU features to add or leave out")
    add("-mtriple", metavar="TRIPLE", help="the system to build for, as LLVM names it")
    add(
        "-arch",
        metavar="ARCHS",
        help="the GPU architectures to build for (default: sm_75,sm_80,sm_90); newer GPUs are "
        "served as well",
    )
    add(
        "-precision",
        "--precision",
        metavar="P",
        help="how a GPU multiplies matrices: fp32 (default), or tf32 or fp16 in tensor cores, "
        "faster and less exact",
    )
    add_sizes(parser)
    add(
        "-O",
        metavar="LEVEL",
        type=opt_level,
        default=3,
        help="from -O0 (compile fast) to -O3 (run fast, the default)",
    )


def add_sizes(parser: Parser) -> None:
    """The options that say what sizes inputs have."""
    add = parser.add_argument
    add(
        "--shape",
        metavar="NAME=1,3,h,w",
        type=shape,
        action="append",
        default=[],
        help='shape of an input: sizes, dimension names, or "?" for a free size; '
        '"NAME=" is a scalar; may be repeated',
    )
    add(
        "--dim",
        metavar="NAME=1",
        type=dim,
        action="append",
        default=[],
        help="fix a named dimension; may be repeated",
    )


def add_weights(parser: Parser) -> None:
    """The option that says how weights are stored."""
    parser.add_argument(
        "--weights",
        metavar="KIND",
        type=weights,
        default="fp32",
        help="how large float32 weights are stored: fp32, or, at -O3, rounded to fp16 where that "
        "costs no more than its precision (2**-11); arithmetic is in fp32 (default: fp32)",
    )


def join_features(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """``-mattr -a,+b`` as one word, since argparse takes ``-a,+b`` for an option."""
    joined: list[str] = []
    for word in words:
        value = word.startswith("-") and word.partition("=")[0] not in options
        if value and joined and joined[-1] == "-mattr":
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def target_text(target: str, options: argparse.Namespace) -> str:
    """The target with the options that came as separate words: ``llvm -mcpu=native -mattr=+a``."""
    parts = [target]
    for name in TARGET_OPTIONS:
        value = getattr(options, name)
        if isinstance(value, list):
            value = ",".join(value)
        if value is not None:
            parts.append(f"-{name}={value}")
    return " ".join(parts)


def shape(text: str) -> tuple[str, tuple[int | str | None, ...]]:
    """``x=1,3,h,?`` as name and sizes; splits at the last ``=``, since names may hold one."""
    name, entries = _split(text, "--shape", "NAME=1,3,h,w")
    if not entries.strip():
        return name, ()
    return name, tuple(_dim(entry.strip(), text) for entry in entries.split(","))


def dim(text: str) -> tuple[str, int]:
    """``batch=1`` as name and size."""
    name, size = _split(text, "--dim", "NAME=1")
    value = _size(size.strip())
    if value is None:
        raise argparse.ArgumentTypeError(f'size "{size}" in "{text}" is not a number')
    return name, value


def emit(text: str) -> Emit:
    """One of the values of --emit."""
    return _one_of(EMITS, text)


def libc(text: str) -> Libc:
    """One of the values of --libc."""
    return _one_of(LIBCS, text)


def weights(text: str) -> Weights:
    """One of the values of --weights."""
    return _one_of(WEIGHTS, text)


def _one_of(values: Sequence[_Name], text: str) -> _Name:
    for value in values:
        if value == text:
            return value
    hint = did_you_mean(text, values) or f"; choose from {', '.join(values)}"
    raise argparse.ArgumentTypeError(f'"{text}" is not known{hint}')


def opt_level(text: str) -> int:
    """The level of -O."""
    if text not in [str(level) for level in OPT_LEVELS]:
        raise argparse.ArgumentTypeError(f'level "{text}" is not known; choose from 0, 1, 2, 3')
    return int(text)


def threads(text: str) -> int:
    """The number of --threads."""
    return count(text)


def count(text: str) -> int:
    """A number of at least 1."""
    value = _size(text)
    if not value:
        raise argparse.ArgumentTypeError(f'"{text}" is not a positive number')
    return value


def seconds(text: str) -> float:
    """The number of --seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f'"{text}" is not a positive number')
    return value


def runtime(text: str) -> str:
    """One of the runtimes of --against."""
    if text not in PEERS:
        hint = did_you_mean(text, PEERS) or f"; choose from {', '.join(PEERS)}"
        raise argparse.ArgumentTypeError(f'"{text}" is not known{hint}')
    return text


def tolerance(text: str) -> float:
    """The number of --tolerance."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f'"{text}" is not a number of at least 0')
    return value


def check_unique(parser: Parser, args: argparse.Namespace) -> None:
    """Refuse an input or a dimension that is given twice."""
    for option, pairs in (("--shape", args.shape), ("--dim", args.dim)):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                parser.error(f'argument {option}: "{name}" is given twice')
            seen.add(name)


def _split(text: str, option: str, form: str) -> tuple[str, str]:
    name, equals, rest = text.rpartition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f'"{text}" does not have the form {option} {form}')
    return name, rest


def _dim(entry: str, text: str) -> int | str | None:
    if entry == "?":
        return None
    if (size := _size(entry)) is not None:
        return size
    if not entry or entry[0] in "-+" or entry[0].isdigit():
        raise argparse.ArgumentTypeError(
            f'entry "{entry}" in "{text}" is neither a size, nor a name, nor "?"'
        )
    return entry


def _size(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None
