"""Tensors in files, as run_raw.c reads and writes them: models run in programs without Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rten_aot.runtime import abi
from tests.support.model_feeds import Array

PROGRAM = Path(__file__).with_name("run_raw.c")


def pack(array: Array) -> bytes:
    """A tensor as run_raw.c reads it."""
    head = [*abi.DTYPES[array.dtype.name], array.ndim, *array.shape]
    return np.array(head, np.int64).tobytes() + array.tobytes()


def unpack(data: bytes) -> Iterator[Array]:
    """The tensors that run_raw.c wrote."""
    names = {kind: name for name, kind in abi.DTYPES.items()}
    at = 0

    def numbers(count: int) -> list[int]:
        nonlocal at
        at += 8 * count
        return [int(n) for n in np.frombuffer(data, np.int64, count, at - 8 * count)]

    while at < len(data):
        code, bits, rank = numbers(3)
        shape = numbers(rank)
        count = int(np.prod(shape))
        yield np.frombuffer(data, names[code, bits], count, at).reshape(shape)
        at += count * bits // 8
