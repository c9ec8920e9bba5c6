"""Kernels use the same memory one after the other, under other names and types."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rten_aot
from tests.codegen.nets import Net


def windows(
    kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int] = (0, 0, 0, 0)
) -> dict[str, Any]:
    options = {"auto_pad": "NotSet", "ceil_mode": False}
    return {"kernel_size": kernel, "strides": strides, "pads": pads, **options}


@pytest.mark.parametrize("others", range(5))
def test_small_kernels_of_two_types(others: int, tmp_path: Path) -> None:
    """Whatever the number of kernels, which decides how they are spread over objects."""
    net = Net()
    floats, numbers = (
        net.input("floats", (1, 15, 6, 7)),
        net.input("numbers", (1, 8, 4, 4), "uint8"),
    )
    outputs = [net.op("Neg", net.input(f"x{i}", (3 + i,)), name=f"other{i}") for i in range(others)]
    shape = np.array([1, 3, 5, -1], np.int32)
    y = net.op("AveragePool", floats, name="a", count_include_pad=True,
               **windows([2, 3], [2, 2], [0, 1, 0, 1]))  # fmt: skip
    y = net.op("Reshape", y, shape, name="b", allow_zero=False)
    outputs.append(net.op("AveragePool", y, name="c", count_include_pad=True,
                          **windows([3, 1], [2, 1], [1, 0, 1, 0])))  # fmt: skip
    y = net.op("MaxPool", numbers, name="d", **windows([2, 2], [2, 2]))
    y = net.op("Reshape", y, np.array([1, 2, 4, 4], np.int32), name="e", allow_zero=False)
    outputs.append(net.op("MaxPool", y, name="f", **windows([2, 1], [2, 1])))
    library = rten_aot.compile(net.write(tmp_path / "m.rten", *outputs), target="llvm -mcpu=native")
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (1, 8, 4, 4), np.uint8)
    feeds = [rng.standard_normal((1, 15, 6, 7), np.float32), x]
    feeds += [np.zeros(3 + i, np.float32) for i in range(others)]
    pooled = x.reshape(1, 8, 2, 2, 2, 2).max((3, 5)).reshape(1, 2, 2, 2, 4).max(3)
    np.testing.assert_array_equal(rten_aot.load(library)(*feeds)[-1], pooled)
