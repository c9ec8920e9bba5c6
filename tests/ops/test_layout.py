"""Reshape, Transpose and their kin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.cases import Case, Mode, Suite

Array = np.ndarray[Any, Any]


def floats(*shape: int) -> Array:
    """Numbers that are all different."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 3


def ints(*shape: int, dtype: str = "int32") -> Array:
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def i64(*values: int) -> Array:
    return np.array(values, dtype=np.int64)


def reshape(id: str, x: Array, shape: Sequence[int], want: Sequence[int], **attrs: int) -> Case:
    return Case(
        f"reshape-{id}",
        "Reshape",
        [x, i64(*shape)],
        lambda x, _: x.reshape(want),
        attrs,
        constant=[1],
        modes=["static", "dynamic", "folded"],
    )


def transpose(id: str, x: Array, perm: Sequence[int] | None) -> Case:
    attrs = {} if perm is None else {"perm": list(perm)}
    modes: list[Mode] = ["static", "dynamic", "folded"]
    return Case(
        f"transpose-{id}", "Transpose", [x], lambda x: x.transpose(perm), attrs, modes=modes
    )


def expand(id: str, x: Array, shape: Sequence[int], want: Sequence[int]) -> Case:
    return Case(
        f"expand-{id}",
        "Expand",
        [x, i64(*shape)],
        lambda x, _: np.broadcast_to(x, want),
        constant=[1],
        modes=["static", "dynamic", "folded"],
    )


def tile(id: str, x: Array, repeats: Sequence[int]) -> Case:
    return Case(
        f"tile-{id}",
        "Tile",
        [x, i64(*repeats)],
        lambda x, _: np.tile(x, repeats),
        constant=[1],
        modes=["static", "dynamic", "folded"],
    )


def shape(id: str, x: Array, start: int | None, end: int | None) -> Case:
    attrs = {k: v for k, v in {"start": start, "end": end}.items() if v is not None}
    want = np.array(x.shape[start:end], np.int32)
    return Case(f"shape-{id}", "Shape", [x], [want], attrs, modes=["static", "dynamic", "folded"])


def squeeze(op: str, id: str, x: Array, axes: Sequence[int] | None, want: Sequence[int]) -> Case:
    return Case(
        f"{op.lower()}-{id}",
        op,
        [x] if axes is None else [x, i64(*axes)],
        lambda x, *_: x.reshape(want),
        constant=[] if axes is None else [1],
        # Whether a free size is 1 must be known where axes are not given.
        modes=["static", "folded"] if axes is None else ["static", "dynamic", "folded"],
    )


def depth_to_space(mode: str, x: Array, block: int, id: str | None = None) -> Case:
    n, c, h, w = x.shape
    depth = c // block**2

    def expected(x: Array) -> Array:
        if mode == "DCR":
            y = x.reshape(n, block, block, depth, h, w).transpose(0, 3, 4, 1, 5, 2)
        else:
            y = x.reshape(n, depth, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
        return np.asarray(y.reshape(n, depth, h * block, w * block))

    name = id or f"depth_to_space-{mode}-{x.dtype}-{block}-{h}"
    return Case(name, "DepthToSpace", [x], expected, {"mode": mode, "blocksize": block})


SUITE = Suite(
    [
        reshape("infer", floats(2, 3, 4), [-1, 6], [4, 6]),
        reshape("infer-1", floats(2, 3, 4), [-1], [24]),
        reshape("copy", floats(2, 3, 4), [0, -1], [2, 12]),
        reshape("copy-two", floats(2, 3, 4), [0, 0, 2, -1], [2, 3, 2, 2]),
        reshape("same", floats(2, 3, 4), [2, 3, 4], [2, 3, 4]),
        reshape("int8", ints(2, 3, dtype="int8"), [3, 2], [3, 2]),
        reshape("uint8", ints(2, 3, dtype="uint8"), [6], [6]),
        reshape("to-scalar", floats(1, 1), [], []),
        reshape("from-scalar", floats(), [1, 1], [1, 1]),
        reshape("empty-copy", floats(0, 3), [0, 3], [0, 3]),
        reshape("empty-infer", floats(0, 3), [-1, 3], [0, 3]),
        reshape("empty-copy-infer", floats(0, 3), [0, -1], [0, 3]),
        reshape("empty-allowed", floats(0, 3), [3, 0], [3, 0], allowzero=1),
        *[
            Case(f"flatten-{axis}-{x.ndim}", "Flatten", [x], [x.reshape(want)], {"axis": axis})
            for x, axis, want in [
                (floats(2, 3, 4), 0, (1, 24)),
                (floats(2, 3, 4), 1, (2, 12)),
                (floats(2, 3, 4), 3, (24, 1)),
                (floats(2, 3, 4), -1, (6, 4)),
                (floats(2, 3, 4), -3, (1, 24)),
                (floats(5), 1, (5, 1)),
                (floats(), 0, (1, 1)),
                (floats(2, 0, 4, 1), 2, (0, 4)),
            ]
        ],
        squeeze("Squeeze", "one", floats(1, 3, 1), [0], (3, 1)),
        squeeze("Squeeze", "negative", floats(1, 3, 1), [-1, 0], (3,)),
        squeeze("Squeeze", "all", ints(1, 3, 1), None, (3,)),
        squeeze("Squeeze", "to-scalar", floats(1), [0], ()),
        squeeze("Squeeze", "no-axes", floats(1, 2), [], (1, 2)),
        squeeze("Unsqueeze", "one", floats(3), [0], (1, 3)),
        squeeze("Unsqueeze", "mixed", floats(3, 2), [-1, 1], (3, 1, 2, 1)),
        squeeze("Unsqueeze", "scalar", floats(), [0, 1], (1, 1)),
        transpose("default", floats(2, 3, 4), None),
        transpose("perm", floats(2, 3, 4), [1, 2, 0]),
        transpose("identity", floats(2, 3), [0, 1]),
        transpose("scalar", floats(), None),
        transpose("large", floats(33, 65), [1, 0]),
        transpose("rank5", ints(2, 3, 1, 5, 2), [4, 0, 3, 2, 1]),
        transpose("int8", ints(9, 31, dtype="int8"), [1, 0]),
        transpose("uint8", ints(2, 9, 7, dtype="uint8"), [0, 2, 1]),
        transpose("empty", floats(0, 3), [1, 0]),
        expand("one", floats(3, 1), [3, 4], (3, 4)),
        expand("both", floats(3, 1), [1, 4], (3, 4)),
        expand("more-axes", floats(3), [2, 1, 3], (2, 1, 3)),
        expand("fewer-axes", floats(2, 3), [1], (2, 3)),
        expand("scalar", floats(), [2, 3], (2, 3)),
        expand("to-empty", floats(1, 3), [0, 3], (0, 3)),
        expand("no-axes", floats(2, 3), [], (2, 3)),
        expand("of-empty", floats(0, 1), [1, 4], (0, 4)),
        expand("one-to-empty", floats(3, 1), [3, 0], (3, 0)),
        expand("number-to-vector", floats(), [1], (1,)),
        *[
            expand(f"both-ways-{d}", ints(2, 1, 3, dtype=d), [5, 1, 4, 1], (5, 2, 4, 3))
            for d in ("int32", "int8", "uint8")
        ],
        expand("int8", ints(1, 17, dtype="int8"), [3, 17], (3, 17)),
        expand("uint8", ints(2, 1, dtype="uint8"), [2, 33], (2, 33)),
        tile("plain", floats(2, 3), [2, 2]),
        tile("ones", floats(2, 3), [1, 1]),
        tile("none", floats(2, 3), [0, 2]),
        tile("rank3", ints(1, 2, 3), [3, 1, 2]),
        tile("scalar", floats(), []),
        tile("of-empty", floats(0, 3), [4, 2]),
        *[tile(f"rank3-{d}", ints(2, 1, 3, dtype=d), [3, 4, 2]) for d in ("int8", "int32")],
        tile("uint8", ints(5, dtype="uint8"), [7]),
        shape("all", floats(2, 3, 4), None, None),
        shape("scalar", floats(), None, None),
        shape("part", floats(2, 3, 4), 1, None),
        shape("negative", floats(2, 3, 4), -2, -1),
        shape("past", floats(2, 3, 4), -9, 9),
        shape("none", floats(2, 3, 4), 2, 1),
        Case("size", "Size", [floats(2, 3, 4)], [np.array(24, np.int32)]),
        Case("size-scalar", "Size", [floats()], [np.array(1, np.int32)]),
        Case("size-empty", "Size", [floats(2, 0)], [np.array(0, np.int32)]),
        depth_to_space("DCR", floats(2, 12, 3, 5), 2),
        depth_to_space("CRD", floats(2, 12, 3, 5), 2),
        depth_to_space("DCR", ints(1, 9, 1, 2, dtype="uint8"), 3),
        depth_to_space("CRD", floats(1, 3, 2, 2), 1),
    ]
)


@pytest.mark.parametrize(("case", "mode"), SUITE.parameters())
def test_layout(case: Case, mode: Mode) -> None:
    SUITE.check(case, mode)
