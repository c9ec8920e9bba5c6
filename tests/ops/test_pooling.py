from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import rten_aot
from rten_aot.runtime.errors import InputError
from tests.support.cases import Array, Case, Mode, Suite, run_case


def rng(*shape: int, shift: float = 0.0) -> Array:
    return (np.random.default_rng(sum(shape)).normal(size=shape) + shift).astype("float32")


def pool(
    x: Array,
    kind: str,
    kernel: Sequence[int],
    pads: Sequence[int],
    strides: Sequence[int],
    *,
    ceil_mode: bool = False,
    include_pad: bool = False,
) -> Array:
    """Windows one by one, straight from the definition."""
    rank = x.ndim - 2
    sizes = []
    for d in range(rank):
        room = x.shape[2 + d] + pads[d] + pads[d + rank] - kernel[d]
        count = (-(-room // strides[d]) if ceil_mode else room // strides[d]) + 1
        if ceil_mode and (count - 1) * strides[d] >= x.shape[2 + d] + pads[d]:
            count -= 1
        sizes.append(count)
    result = np.zeros((*x.shape[:2], *sizes), x.dtype)
    for at in np.ndindex(*sizes):
        where, counted = [], 1
        for d in range(rank):
            start = at[d] * strides[d] - pads[d]
            stop = start + kernel[d]
            where.append(slice(max(start, 0), max(min(stop, x.shape[2 + d]), 0)))
            within = min(stop, x.shape[2 + d] + pads[d + rank]) - start
            counted *= within if include_pad else where[-1].stop - where[-1].start
        window = x[(slice(None), slice(None), *where)]
        axes = tuple(range(2, x.ndim))
        value = window.max(axes) if kind == "max" else window.sum(axes) / counted
        result[(slice(None), slice(None), *at)] = value
    return result


def same_pads(x: Array, kernel: Sequence[int], strides: Sequence[int]) -> list[int]:
    totals = [
        max((-(-n // s) - 1) * s + k - n, 0)
        for n, k, s in zip(x.shape[2:], kernel, strides, strict=True)
    ]
    return [t // 2 for t in totals] + [t - t // 2 for t in totals]


def case(
    op: str,
    label: str,
    x: Array,
    kernel: Sequence[int],
    *,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    auto_pad: str | None = None,
    ceil_mode: bool = False,
    include_pad: bool = False,
    direct: bool = False,
) -> Case:
    """``direct`` writes the case without rten-convert, which takes one or two axes only."""
    rank = x.ndim - 2
    steps = strides or [1] * rank
    margins = pads or [0] * (2 * rank)
    if auto_pad == "SAME_UPPER":
        margins = same_pads(x, kernel, steps)
    attrs: dict[str, Any] = {"kernel_shape": list(kernel), "pads": pads, "strides": strides}
    attrs |= {"auto_pad": auto_pad, "ceil_mode": int(ceil_mode) or None}
    if include_pad:
        attrs["count_include_pad"] = 1
    options = {"ceil_mode": ceil_mode, "include_pad": include_pad}
    kind = "max" if op == "MaxPool" else "average"
    rten = {
        "kernel_size": list(kernel), "pads": pads or [0] * (2 * rank), "strides": steps,
        "auto_pad": "NotSet" if auto_pad is None else "Same", "ceil_mode": ceil_mode,
        **({"count_include_pad": include_pad} if kind == "average" else {}),
    }  # fmt: skip
    return Case(
        f"{op.lower()}-{label}",
        op,
        [x],
        lambda v: pool(v, kind, kernel, margins, steps, **options),
        {k: v for k, v in attrs.items() if v is not None},
        rten if direct else None,
        tolerance="exact" if kind == "max" else "close",
    )


NANS = np.where(rng(1, 2, 5, 5) > 1, np.nan, rng(1, 2, 5, 5)).astype("float32")

CASES = [
    *[
        made
        for op in ("MaxPool", "AveragePool")
        for made in (
            case(op, "plain", rng(2, 3, 9, 8), [2, 2], strides=[2, 2]),
            case(op, "overlap", rng(1, 17, 9, 11), [3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
            case(op, "stride-1", rng(1, 16, 7, 7), [3, 3], pads=[1, 1, 1, 1]),
            case(op, "uneven", rng(1, 4, 12, 9), [2, 5], strides=[3, 1], pads=[0, 1, 1, 2]),
            case(op, "stride-over-kernel", rng(1, 3, 11, 10), [2, 2], strides=[4, 3]),
            case(op, "negative", rng(1, 3, 6, 6, shift=-9), [3, 3], pads=[1, 1, 1, 1]),
            case(op, "line", rng(2, 3, 20), [3], strides=[2], pads=[1, 0]),
            case(op, "whole", rng(2, 5, 4, 6), [4, 6]),
            case(op, "same", rng(1, 3, 7, 8), [3, 3], strides=[2, 2], auto_pad="SAME_UPPER"),
            case(op, "same-2", rng(1, 1, 2, 2), [3, 3], strides=[2, 2], auto_pad="SAME_UPPER"),
            case(op, "same-line", rng(1, 3, 9), [2], strides=[1], auto_pad="SAME_UPPER"),
            case(op, "nan", NANS, [2, 2]),
            case(op, "no-images", rng(0, 3, 5, 5), [2, 2]),
            case(op, "ceil", rng(1, 2, 7, 8), [3, 3], strides=[2, 2], ceil_mode=True),
            case(op, "ceil-2", rng(1, 2, 6, 5), [2, 2], strides=[3, 2], ceil_mode=True),
            case(op, "ceil-pads", rng(1, 2, 6, 7), [3, 3], strides=[2, 2], pads=[1, 1, 1, 1],
                 ceil_mode=True),
            case(op, "line-pads", rng(1, 3, 5, shift=-9), [3], pads=[1, 1]),
            case(op, "line-ceil", rng(1, 3, 5), [2], strides=[2], ceil_mode=True),
            case(op, "pixels", rng(1, 3, 5, 4), [1, 1], strides=[2, 3]),
            case(op, "same-uneven", rng(1, 3, 5, 4), [3, 2], strides=[2, 3],
                 auto_pad="SAME_UPPER"),
            case(op, "larger-than-input", rng(1, 3, 2, 2, shift=-9), [4, 4], pads=[1, 1, 1, 1]),
            case(op, "volume", rng(2, 3, 5, 6, 7), [2, 3, 2], direct=True),
            case(op, "volume-pads", rng(1, 3, 5, 6, 7, shift=-9), [3, 3, 3], pads=[1] * 6,
                 strides=[2, 2, 1], direct=True),
            case(op, "volume-ceil", rng(1, 3, 5, 6, 7), [2, 2, 3], strides=[2, 3, 2],
                 pads=[1, 0, 1, 0, 1, 1], ceil_mode=True, direct=True),
            case(op, "volume-same", rng(1, 3, 5, 6, 7), [2, 2, 3], strides=[2, 3, 2],
                 auto_pad="SAME_UPPER", direct=True),
            case(op, "four-axes", rng(1, 2, 3, 4, 3, 5), [2, 2, 1, 3], direct=True),
            case(op, "ceil-drops", rng(1, 1, 2, 4), [1, 2], strides=[3, 3], pads=[0, 0, 0, 1],
                 ceil_mode=True),
        )
    ],
    case("AveragePool", "include-pad", rng(1, 3, 6, 6), [3, 3], pads=[1, 1, 1, 1],
         include_pad=True),
    case("AveragePool", "include-pad-ceil", rng(1, 3, 6, 7), [3, 3], strides=[2, 2],
         pads=[1, 0, 1, 1], include_pad=True, ceil_mode=True),
    case("AveragePool", "volume-include-pad", rng(1, 3, 5, 6, 7), [3, 2, 3], pads=[1] * 6,
         strides=[2, 2, 2], include_pad=True, ceil_mode=True, direct=True),
    *[
        case("MaxPool", f"{dtype}-{label}", x.astype(dtype), [3, 3], strides=[2, 2],
             pads=[1, 1, 1, 1])
        for dtype in ("int32", "int8", "uint8")
        for label, x in (
            ("plain", np.random.default_rng(0).integers(0, 128, (1, 3, 6, 6))),
            ("negative", np.random.default_rng(0).integers(-128, 0, (1, 3, 6, 6))),
            ("least", np.full((1, 2, 4, 4), np.iinfo(dtype).min)),
        )
    ],
    # Windows that lie on padding alone: NaN is the mean of nothing.
    *[
        Case(f"averagepool-on-pads-{label}", "AveragePool", [x],
             [np.full(shape, np.nan, "float32")], attrs, modes=("static", "dynamic", "folded"))
        for label, x, attrs, shape in (
            ("pixel", rng(1, 1, 1, 1), {"kernel_shape": [1, 1], "pads": [1, 0, 0, 0],
                                        "strides": [2, 1]}, (1, 1, 1, 1)),
            ("line", rng(1, 2, 1), {"kernel_shape": [1], "pads": [1, 0], "strides": [2]},
             (1, 2, 1)),
            ("no-rows", np.zeros((1, 2, 0, 5), "float32"),
             {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1]}, (1, 2, 1, 6)),
        )
    ],
    case("AveragePool", "wide-pads", rng(1, 2, 3, 4), [2, 2], pads=[0, 1, 1, 0]),
    *[
        case(op, f"valid-{label}", x, kernel, strides=strides, auto_pad="VALID")
        for op in ("MaxPool", "AveragePool")
        for label, x, kernel, strides in (
            ("plane", rng(1, 3, 7, 9), [3, 2], [2, 2]), ("line", rng(2, 3, 8), [3], [2]),
        )
    ],
    case("MaxPool", "volume-uint8",
         np.random.default_rng(0).integers(0, 256, (1, 2, 4, 4, 4), "uint8"), [2, 2, 2],
         strides=[2, 2, 2], direct=True),
    case("MaxPool", "minus-infinity", np.full((1, 2, 4, 4), -np.inf, "float32"), [3, 3],
         pads=[1, 1, 1, 1]),
    *[
        Case(
            f"global-{label}",
            "GlobalAveragePool",
            [x],
            lambda v: v.mean(tuple(range(2, v.ndim)), keepdims=True),
            tolerance="close",
        )
        for label, x in (
            ("plane", rng(2, 33, 7, 5)),
            ("line", rng(2, 3, 17)),
            ("pixel", rng(1, 3, 1, 1)),
            ("volume", rng(1, 3, 2, 3, 4)),
            ("nan", NANS),
            ("no-images", np.zeros((0, 3, 4, 4), "float32")),
            ("no-channels", np.zeros((2, 0, 4, 4), "float32")),
            ("no-axes", rng(2, 3)),
        )
    ],
    Case(
        "global-no-elements",
        "GlobalAveragePool",
        [np.zeros((2, 3, 0, 4), "float32")],
        [np.full((2, 3, 1, 1), np.nan, "float32")],
        modes=("static", "dynamic", "folded"),
    ),
]  # fmt: skip
SUITE = Suite(CASES)


@pytest.mark.parametrize(("case", "mode"), SUITE.parameters())
def test_pooling(case: Case, mode: Mode) -> None:
    SUITE.check(case, mode)


def test_an_input_smaller_than_the_kernel_is_refused() -> None:
    small = case("MaxPool", "small", rng(1, 3, 2, 9), [3, 3])
    message = "the input with its padding is smaller than the kernel"
    with pytest.raises(rten_aot.ShapeError, match=message):
        run_case(small)
    with pytest.raises(InputError, match=message):
        run_case(small, "dynamic")
