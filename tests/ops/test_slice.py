"""Slice, Split, Concat and Pad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.cases import Case, Mode, Suite

Array = np.ndarray[Any, Any]
MIN, MAX = -(2**31), 2**31 - 1


def numbers(*shape: int, dtype: str = "float32") -> Array:
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def i32(values: Sequence[int]) -> Array:
    return np.array(values, dtype=np.int32)


def cut(
    id: str,
    x: Array,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> Case:
    index = [slice(None)] * x.ndim
    for k, (start, end) in enumerate(zip(starts, ends, strict=True)):
        step = 1 if steps is None else steps[k]
        axis = k if axes is None else axes[k]
        # Python takes None, not a large negative number, for "past the first element".
        stop = None if step < 0 and end < -x.shape[axis] else end
        index[axis] = slice(start, stop, step)
    inputs: list[Array | None] = [x, i32(starts), i32(ends)]
    if axes is not None or steps is not None:
        inputs.append(None if axes is None else i32(axes))
    if steps is not None:
        inputs.append(i32(steps))
    return Case(
        f"slice-{id}",
        "Slice",
        inputs,
        lambda x, *_: x[tuple(index)],
        constant=[1, 2, 3, 4][: len(inputs) - 1],
        modes=["static", "dynamic", "folded"],
    )


def split(
    id: str, x: Array, axis: int, outputs: int, sizes: Sequence[int] | None = None, **attrs: int
) -> Case:
    whole = x.shape[axis]
    size = -(-whole // outputs)
    parts = sizes or [size] * (outputs - 1) + [whole - size * (outputs - 1)]
    cuts = np.cumsum(parts)[:-1]
    return Case(
        f"split-{id}",
        "Split",
        [x] if sizes is None else [x, np.array(sizes, np.int64)],
        lambda x, *_: np.split(x, cuts, axis),
        {"axis": axis, **attrs},
        outputs=outputs,
        constant=[1],
        modes=["static", "dynamic", "folded"],
    )


def concat(id: str, axis: int, *xs: Array) -> Case:
    modes: list[Mode] = ["static", "dynamic", "constant", "folded"]
    return Case(
        f"concat-{id}",
        "Concat",
        xs,
        lambda *xs: np.concatenate(xs, axis),
        {"axis": axis},
        modes=modes,
    )


def pad(
    id: str,
    x: Array,
    pads: Sequence[int],
    mode: str = "constant",
    value: Any = None,
    axes: Sequence[int] | None = None,
    run_time_value: bool = False,
) -> Case:
    places = [a % x.ndim for a in (range(x.ndim) if axes is None else axes)]
    inputs: list[Array | None] = [x, np.array(pads, np.int64)]
    if value is not None or axes is not None:
        inputs.append(None if value is None else np.array(value, x.dtype))
    if axes is not None:
        inputs.append(np.array(axes, np.int64))

    def expected(x: Array, *_: Array) -> Array:
        widths = [(0, 0)] * x.ndim
        for k, axis in enumerate(places):
            before, after = pads[k], pads[len(places) + k]
            x = x[(slice(None),) * axis + (slice(max(-before, 0), x.shape[axis] + min(after, 0)),)]
            widths[axis] = (max(before, 0), max(after, 0))
        if not widths:
            return x
        if mode == "constant":
            return np.pad(x, widths, constant_values=0 if value is None else value)
        return np.pad(x, widths, mode)  # type: ignore[call-overload,no-any-return]

    return Case(
        f"pad-{id}",
        "Pad",
        inputs,
        expected,
        {"mode": mode},
        constant=[1, 3] if run_time_value else [1, 2, 3],
        modes=["static", "dynamic"] if run_time_value else ["static", "dynamic", "folded"],
    )


CUBE = numbers(4, 5, 6)

SUITE = Suite(
    [
        cut("first", CUBE, [1], [3]),
        cut("axes", CUBE, [1, 0], [3, 2], [2, 0]),
        cut("negative", CUBE, [-3, 1], [-1, 5], [-1, 1]),
        cut("steps", CUBE, [0, 1], [4, 6], [0, 2], [2, 3]),
        cut("steps-no-axes", CUBE, [0, 1], [4, 5], None, [3, 2]),
        cut("backwards", CUBE, [-1], [MIN], [1], [-1]),
        cut("backwards-far", CUBE, [MAX, 3], [MIN, 0], [1, 0], [-2, -1]),
        cut("backwards-to-second", CUBE, [4], [0], [1], [-1]),
        cut("backwards-negative-end", CUBE, [4], [-4], [1], [-1]),
        cut("far", CUBE, [MIN, 2], [MAX, MAX], [0, 1]),
        cut("start-past-end", CUBE, [9], [12], [1]),
        cut("empty-backwards", numbers(10), [0], [5], [0], [-1]),
        cut("empty-forwards", numbers(10), [5], [3], [0]),
        cut("of-empty", numbers(0, 3), [0], [5], [0]),
        cut("of-empty-backwards", numbers(0, 3), [-1], [MIN], [0], [-1]),
        *[
            cut(f"{d}-backwards-empty", numbers(10, dtype=d), [0], [5], [0], [-1])
            for d in ("float32", "int32", "int8", "uint8")
        ],
        *[
            cut(f"limits-{start}-{end}-{step}", numbers(10), [start], [end], [0], [step])
            for start in (MIN, -11, 0, 9, MAX)
            for end in (MIN, -1, 5, MAX)
            for step in (1, -3, MIN, MAX)
        ],
        cut("whole", CUBE, [0], [MAX], [0]),
        cut("int32", numbers(33, dtype="int32"), [7], [31], [0], [3]),
        cut("int8", numbers(3, 40, dtype="int8"), [1], [39], [1]),
        cut("uint8", numbers(3, 40, dtype="uint8"), [39], [2], [1], [-1]),
        split("equal", CUBE, 2, 3),
        split("sizes", CUBE, 1, 3, [1, 0, 4]),
        split("negative-axis", CUBE, -3, 2, [3, 1]),
        split("smaller-last", CUBE, 1, 2, num_outputs=2),
        split("smaller-last-of-many", numbers(7), 0, 4, num_outputs=4),
        split("smaller-last-negative", numbers(2, 7), -1, 3, num_outputs=3),
        split("all-in-the-middle", CUBE, 1, 3, [0, 5, 0]),
        split("of-empty", numbers(0, 4), 1, 2, [1, 3]),
        split("one", CUBE, 0, 1, num_outputs=1),
        split("int8", numbers(6, 33, dtype="int8"), 1, 3),
        concat("first", 0, numbers(2, 3), numbers(1, 3), numbers(4, 3)),
        concat("last", -1, numbers(2, 3), numbers(2, 40)),
        concat("middle", 1, CUBE, CUBE[:, :1], CUBE[:, :0], CUBE),
        concat("one", 0, CUBE),
        *[
            concat(
                f"with-empty-{d}",
                -1,
                numbers(2, 3, dtype=d),
                numbers(2, 0, dtype=d),
                numbers(2, 2, dtype=d),
            )
            for d in ("float32", "int32", "int8", "uint8")
        ],
        concat("empty", 0, numbers(0, 3), numbers(0, 3)),
        concat("other-empty", 1, numbers(0, 3), numbers(0, 2)),
        concat("int32", 0, numbers(17, dtype="int32"), numbers(1, dtype="int32")),
        concat("int8", 1, numbers(3, 65, dtype="int8"), numbers(3, 3, dtype="int8")),
        concat("uint8", 0, numbers(200, dtype="uint8"), numbers(100, dtype="uint8")),
        concat("large", 0, numbers(300, 130), numbers(1, 130), numbers(100, 130)),
        concat("large-rows", 1, numbers(300, 130), numbers(300, 7)),
        pad("zeros", CUBE, [0, 1, 2, 0, 3, 4]),
        pad("value", CUBE, [1, 0, 0, 0, 0, 2], value=-1.5),
        pad("infinite", numbers(3, 4), [0, 1, 0, 1], value=-np.inf),
        pad("run-time-value", numbers(3, 4), [0, 1, 2, 1], value=2.5, run_time_value=True),
        pad("value-vector", numbers(3, 4), [0, 1, 2, 1], value=[2.5]),
        pad("run-time-value-vector", numbers(3, 4), [0, 1, 2, 1], value=[2.5], run_time_value=True),
        pad("axes", CUBE, [1, 2, 3, 4], axes=[2, -3]),
        pad("axes-value", CUBE, [2, 1], value=9, axes=[-1]),
        pad("negative", CUBE, [0, -1, 1, -2, 2, -3]),
        pad("none", CUBE, [0] * 6),
        pad("of-empty", numbers(0, 2), [1, 0, 1, 0], value=3),
        pad("reflect", CUBE, [1, 0, 2, 2, 3, 1], "reflect"),
        pad("reflect-negative", CUBE, [-1, 0, 2, 2, 0, -2], "reflect"),
        pad("reflect-far", numbers(3), [5, 7], "reflect"),
        pad("reflect-one", numbers(1, 2), [2, 0, 1, 0], "reflect"),
        pad("edge", CUBE, [1, 0, 2, 0, 7, 1], "edge"),
        pad("edge-negative", numbers(6), [-2, 3], "edge"),
        pad("wrap", CUBE, [1, 0, 2, 0, 3, 8], "wrap"),
        pad("wrap-negative", numbers(6), [3, -2], "wrap"),
        *[
            pad(f"{mode}-nothing-left-{before}", numbers(3), [before, -3 - before], mode)
            for mode in ("constant", "reflect", "edge", "wrap")
            for before in (-3, -1, 0)
        ],
        pad("int32", numbers(3, 4, dtype="int32"), [1, 1, 1, 1], value=-7),
        pad("int8", numbers(2, 33, dtype="int8"), [0, 5, 0, 1], value=-7),
        pad("uint8", numbers(2, 33, dtype="uint8"), [0, 5, 0, 1], "reflect"),
        pad("scalar", np.float32(3).reshape(()), []),
    ]
)


@pytest.mark.parametrize(("case", "mode"), SUITE.parameters())
def test_slice(case: Case, mode: Mode) -> None:
    SUITE.check(case, mode)
