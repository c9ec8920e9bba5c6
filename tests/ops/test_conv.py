from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import rten_aot
from rten_aot.runtime.errors import InputError
from tests.support.cases import Array, Case, Mode, Suite, run_case


def rng(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def u8(*shape: int, dtype: str = "uint8") -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(1).integers(info.min, info.max, shape, dtype, endpoint=True)


def same_pads(sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int]) -> list[int]:
    totals = [
        max((-(-n // s) - 1) * s + k - n, 0) for n, k, s in zip(sizes, kernel, strides, strict=True)
    ]
    return [t // 2 for t in totals] + [t - t // 2 for t in totals]


def convolve(
    x: Array,
    w: Array,
    pads: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> Array:
    """Convolution over any number of spatial axes by adding up shifted inputs."""
    rank = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    kernel = w.shape[2:]
    sizes = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, s, d in zip(x.shape[2:], kernel, strides, dilations, strict=True)
    ]
    out, own = w.shape[:2]
    result = np.zeros((x.shape[0], out, *sizes), x.dtype)
    for tap in np.ndindex(*kernel):
        window = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, s, n in zip(tap, dilations, strides, sizes, strict=True)
        )
        part = x[(slice(None), slice(None), *window)]
        weights = w[(slice(None), slice(None), *tap)]
        for g in range(groups):
            rows = slice(g * out // groups, (g + 1) * out // groups)
            columns = slice(g * own, (g + 1) * own)
            result[:, rows] += np.einsum("nc...,oc->no...", part[:, columns], weights[rows])
    return result


def transpose(
    x: Array,
    w: Array,
    pads: Sequence[int],
    strides: Sequence[int],
    extra: Sequence[int],
    groups: int,
) -> Array:
    """Transposed convolution by spreading every input element."""
    rank = x.ndim - 2
    full = [
        (n - 1) * s + k + e
        for n, s, k, e in zip(x.shape[2:], strides, w.shape[2:], extra, strict=True)
    ]
    own, inner = w.shape[1], x.shape[1] // groups
    result = np.zeros((x.shape[0], own * groups, *full), x.dtype)
    for tap in np.ndindex(*w.shape[2:]):
        window = tuple(
            slice(t, t + (n - 1) * s + 1, s)
            for t, n, s in zip(tap, x.shape[2:], strides, strict=True)
        )
        for g in range(groups):
            taken = slice(g * inner, (g + 1) * inner)
            weights = w[(taken, slice(None), *tap)]
            where = (slice(None), slice(g * own, (g + 1) * own), *window)
            result[where] += np.einsum("nc...,co->no...", x[:, taken], weights)
    cut = tuple(slice(pads[d], full[d] - pads[d + rank]) for d in range(rank))
    return result[(slice(None), slice(None), *cut)]


def with_bias(y: Array, bias: Array | None) -> Array:
    return y if bias is None else y + bias.reshape(-1, *[1] * (y.ndim - 2))


def conv(
    label: str,
    x: Array,
    w: Array,
    *,
    bias: bool = True,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    groups: int = 1,
    auto_pad: str | None = None,
    kernel: Sequence[int] | None = None,
    direct: bool = False,
    **options: Any,
) -> Case:
    """A Conv whose attributes appear in the file only as far as they are given here.

    ``direct`` writes it without rten-convert, which takes attributes of one or two axes only.
    """
    rank = x.ndim - 2
    stated = {
        "pads": pads, "strides": strides, "dilations": dilations, "group": groups,
        "auto_pad": auto_pad, "kernel_shape": kernel,
    }  # fmt: skip
    steps, spread = strides or [1] * rank, dilations or [1] * rank
    rten = {
        "pads": pads, "strides": steps, "dilations": spread, "groups": groups,
        "auto_pad": "NotSet" if auto_pad is None else "Same",
    }  # fmt: skip
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], spread, strict=True)]
    margins = pads or [0] * (2 * rank)
    if auto_pad == "SAME_UPPER":
        margins = same_pads(x.shape[2:], reach, steps)

    def expected(v: Array, weights: Array, b: Array | None = None) -> Array:
        return with_bias(convolve(v, weights, margins, steps, spread, groups), b)

    return Case(
        f"conv-{label}",
        "Conv",
        [x, w, rng(w.shape[0])] if bias else [x, w],
        expected,
        {k: v for k, v in stated.items() if v is not None},
        rten if direct else None,
        # Kernel sizes and numbers of output channels are those of the file.
        fixed=[(1, d) for d in range(w.ndim) if d != 1],
        tolerance="approximate",
        **options,
    )


def conv_transpose(
    label: str,
    x: Array,
    w: Array,
    *,
    bias: bool = True,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    groups: int = 1,
    auto_pad: str | None = None,
    direct: bool = False,
) -> Case:
    rank = x.ndim - 2
    stated = {
        "pads": pads, "strides": strides, "output_padding": output_padding, "group": groups,
        "auto_pad": auto_pad,
    }  # fmt: skip
    steps, extra = list(strides or [1] * rank), list(output_padding or [0] * rank)
    margins = list(pads or [0] * (2 * rank))
    rten = {
        "pads": pads, "strides": steps, "output_padding": extra, "groups": groups,
        "auto_pad": "NotSet" if auto_pad is None else "Same",
    }  # fmt: skip
    if auto_pad == "SAME_UPPER":
        surplus = [k - s + e for k, s, e in zip(w.shape[2:], steps, extra, strict=True)]
        margins = [max(s, 0) // 2 for s in surplus]
        margins += [max(s, 0) - max(s, 0) // 2 for s in surplus]
        extra = [e + max(-s, 0) for e, s in zip(extra, surplus, strict=True)]

    def expected(v: Array, weights: Array, b: Array | None = None) -> Array:
        return with_bias(transpose(v, weights, margins, steps, extra, groups), b)

    return Case(
        f"transpose-{label}",
        "ConvTranspose",
        [x, w, rng(w.shape[1] * groups)] if bias else [x, w],
        expected,
        {k: v for k, v in stated.items() if v is not None},
        rten if direct else None,
        fixed=[(1, d) for d in range(1, w.ndim)],
        tolerance="approximate",
    )


def conv_integer(label: str, *inputs: Array | None, **attrs: Any) -> Case:
    def expected(x: Array, w: Array, x_zero: Any = None, w_zero: Any = None) -> Array:
        x = x.astype("int64") - (0 if x_zero is None else x_zero.astype("int64"))
        zero = np.zeros(1, "int64") if w_zero is None else w_zero.astype("int64")
        w = w.astype("int64") - zero.reshape(-1, *[1] * (w.ndim - 1))
        return convolve(x, w, pads, strides, ones, attrs.get("group", 1)).astype("int32")

    assert inputs[0] is not None
    rank = inputs[0].ndim - 2
    ones = [1] * rank
    pads, strides = attrs.get("pads", [0] * (2 * rank)), attrs.get("strides", ones)
    rten = {
        "auto_pad": "NotSet",
        "pads": pads,
        "strides": strides,
        "dilations": ones,
        "groups": attrs.get("group", 1),
    }
    fixed = [(1, d) for d in (0, *range(2, rank + 2))]
    return Case(f"integer-{label}", "ConvInteger", inputs, expected, rten=rten, fixed=fixed)


CASES = [
    conv("plain", rng(2, 3, 9, 11), rng(5, 3, 3, 3)),
    conv("no-bias", rng(1, 16, 14, 14), rng(32, 16, 3, 3), bias=False, pads=[1, 1, 1, 1]),
    conv("pointwise", rng(2, 19, 7, 5), rng(33, 19, 1, 1)),
    conv("pointwise-picture", rng(2, 19, 13, 15), rng(33, 19, 1, 1)),
    conv("pointwise-picture-groups", rng(2, 12, 16, 20), rng(18, 4, 1, 1), groups=3),
    conv("pointwise-picture-stride", rng(2, 6, 31, 40), rng(9, 6, 1, 1), strides=[2, 3]),
    conv("pointwise-line", rng(1, 9, 201), rng(11, 9, 1)),
    conv("pointwise-stride", rng(1, 8, 9, 9), rng(16, 8, 1, 1), strides=[2, 2]),
    conv("stride", rng(1, 3, 15, 17), rng(8, 3, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1]),
    conv("uneven", rng(1, 4, 12, 9), rng(6, 4, 2, 5), strides=[3, 1], pads=[0, 1, 2, 3]),
    conv("dilated", rng(1, 4, 13, 14), rng(6, 4, 3, 2), dilations=[2, 3], pads=[2, 1, 2, 1]),
    conv("stride-over-kernel", rng(1, 3, 11, 10), rng(4, 3, 2, 2), strides=[4, 3]),
    conv("groups", rng(2, 12, 8, 7), rng(18, 4, 3, 3), groups=3, pads=[1, 1, 1, 1]),
    conv("depthwise", rng(1, 17, 10, 9), rng(17, 1, 3, 3), groups=17, pads=[1, 1, 1, 1]),
    conv("depthwise-stride", rng(1, 32, 9, 9), rng(32, 1, 5, 5), groups=32, strides=[2, 2],
         pads=[2, 2, 2, 2]),
    conv("depthwise-multiple", rng(1, 4, 6, 6), rng(8, 1, 3, 3), groups=4),
    conv("depthwise-wide-pads", rng(1, 8, 3, 2), rng(8, 1, 3, 3), groups=8, pads=[4, 5, 4, 5]),
    *[
        made
        for h, w, k, stride, channels in (
            (1, 1, 5, 1, 8), (2, 2, 7, 1, 8), (1, 3, 9, 1, 17), (3, 1, 5, 2, 16), (2, 1, 5, 1, 1),
        )
        for made in (
            conv(f"depthwise-outside-{h}x{w}", rng(1, channels, h, w), rng(channels, 1, k, k),
                 groups=channels, pads=[k // 2] * 4, strides=[stride] * 2),
            conv(f"depthwise-outside-{h}x{w}-dilated", rng(1, channels, h, w),
                 rng(channels, 1, k, k), groups=channels, pads=[k - 1] * 4, dilations=[2, 2]),
            conv(f"outside-{h}x{w}", rng(1, 3, h, w), rng(channels, 3, k, k),
                 pads=[k // 2] * 4, strides=[stride] * 2),
            conv(f"line-depthwise-outside-{h}x{w}", rng(1, channels, w), rng(channels, 1, k),
                 groups=channels, pads=[k // 2] * 2),
        )
    ],
    conv("windows-of-pads", rng(1, 3, 2, 2), rng(4, 3, 2, 2), pads=[5, 0, 0, 7], strides=[3, 3]),
    conv("depthwise-stride-over-kernel", rng(1, 8, 11, 10), rng(8, 1, 2, 2), groups=8,
         strides=[4, 3]),
    conv("line-stride-over-kernel", rng(1, 3, 20), rng(4, 3, 2), strides=[5]),
    conv("no-channels", rng(1, 0, 5, 5), rng(4, 0, 3, 3)),
    conv("volume", rng(2, 3, 5, 6, 7), rng(4, 3, 3, 2, 3)),
    conv("volume-options", rng(1, 4, 5, 6, 7), rng(6, 2, 3, 2, 2), groups=2, strides=[2, 1, 2],
         dilations=[2, 1, 3], pads=[2, 0, 1, 2, 0, 1], direct=True),
    conv("volume-depthwise", rng(1, 8, 4, 5, 6), rng(8, 1, 3, 3, 3), groups=8, pads=[1] * 6,
         direct=True),
    conv("volume-same", rng(1, 3, 5, 6, 7), rng(4, 3, 3, 3, 3), auto_pad="SAME_UPPER",
         strides=[2, 2, 2], direct=True),
    conv("volume-empty", rng(0, 3, 5, 6, 7), rng(4, 3, 3, 3, 3)),
    conv("four-axes", rng(1, 3, 4, 5, 4, 3), rng(4, 3, 2, 2, 2, 2), strides=[1, 2, 1, 1],
         direct=True),
    conv("first-layer", rng(1, 3, 32, 32), rng(16, 3, 7, 7), strides=[2, 2], pads=[3, 3, 3, 3]),
    conv("whole-image", rng(2, 5, 4, 4), rng(3, 5, 4, 4)),
    conv("no-images", rng(0, 3, 5, 5), rng(4, 3, 3, 3)),
    conv("line", rng(2, 3, 20), rng(7, 3, 3), pads=[1, 2], strides=[2]),
    conv("line-dilated", rng(1, 4, 33), rng(8, 4, 5), dilations=[3], pads=[6, 6]),
    conv("line-depthwise", rng(1, 9, 17), rng(9, 1, 3), groups=9, pads=[1, 1]),
    conv("same", rng(1, 3, 7, 8), rng(4, 3, 3, 3), auto_pad="SAME_UPPER"),
    conv("same-stride", rng(1, 3, 7, 8), rng(4, 3, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2]),
    conv("same-even", rng(1, 3, 7, 8), rng(4, 3, 2, 4), auto_pad="SAME_UPPER", strides=[2, 3]),
    conv("same-line", rng(1, 3, 10), rng(4, 3, 3), auto_pad="SAME_UPPER", strides=[2]),
    conv("same-dilated", rng(1, 3, 9, 8), rng(4, 3, 3, 3), auto_pad="SAME_UPPER",
         dilations=[2, 1]),
    conv("groups-dilated-uneven", rng(2, 6, 9, 11), rng(8, 3, 3, 2), groups=2, dilations=[2, 3],
         pads=[2, 0, 1, 4], strides=[2, 1]),
    conv("depthwise-dilated-uneven", rng(1, 5, 9, 7), rng(10, 1, 3, 3), groups=5,
         dilations=[3, 2], pads=[3, 1, 0, 4], strides=[1, 2]),
    conv("depthwise-row", rng(1, 7, 5, 9), rng(7, 1, 1, 5), groups=7, pads=[0, 2, 0, 2]),
    conv("depthwise-column", rng(1, 7, 9, 5), rng(7, 1, 5, 1), groups=7, pads=[4, 0, 0, 0]),
    conv("long-row", rng(1, 2, 3, 20), rng(3, 2, 3, 17), pads=[1, 8, 1, 8]),
    conv("one-channel", rng(1, 1, 6, 6), rng(1, 1, 2, 2)),
    conv("line-groups", rng(2, 6, 15), rng(9, 2, 4), groups=3, strides=[3], pads=[2, 1]),
    conv("line-same-dilated", rng(1, 3, 11), rng(4, 3, 3), auto_pad="SAME_UPPER", dilations=[2],
         strides=[3]),
    conv("pointwise-padded", rng(3, 5, 7, 8), rng(9, 5, 1, 1), strides=[3, 2], pads=[1, 0, 0, 1]),
    conv("infinite", np.full((1, 2, 4, 4), np.inf, "float32"), np.ones((2, 2, 3, 3), "float32"),
         pads=[1, 1, 1, 1]),
    *[
        conv(f"valid-{label}", x, w, strides=strides, auto_pad="VALID", kernel=w.shape[2:])
        for label, x, w, strides in (
            ("plane", rng(1, 3, 8, 7), rng(4, 3, 3, 2), [2, 3]),
            ("line", rng(1, 3, 8), rng(4, 3, 3), [2]),
        )
    ],
    conv("nan", np.where(rng(1, 2, 6, 6) > 1.5, np.nan, rng(1, 2, 6, 6)), rng(3, 2, 3, 3)),
    conv_transpose("plain", rng(2, 3, 5, 7), rng(3, 4, 3, 3)),
    conv_transpose("stride", rng(1, 8, 6, 5), rng(8, 5, 2, 2), strides=[2, 2]),
    conv_transpose("padded", rng(1, 4, 6, 5), rng(4, 3, 4, 4), strides=[2, 2], pads=[1, 1, 1, 1]),
    conv_transpose("uneven", rng(1, 4, 6, 5), rng(4, 3, 3, 2), strides=[3, 1], pads=[1, 0, 0, 1]),
    conv_transpose("unequal-pads", rng(1, 2, 9, 9), rng(2, 3, 3, 4), strides=[2, 1],
                   pads=[2, 1, 2, 1]),
    conv_transpose("output-padding", rng(1, 2, 28, 28), rng(2, 3, 3, 3), strides=[2, 2],
                   pads=[1, 1, 1, 1], output_padding=[1, 1]),
    conv_transpose("stride-over-kernel", rng(1, 2, 4, 4), rng(2, 3, 2, 2), strides=[3, 4]),
    conv_transpose("groups", rng(1, 6, 4, 5), rng(6, 2, 3, 3), groups=3, strides=[2, 2]),
    conv_transpose("line", rng(1, 3, 9), rng(3, 4, 4), strides=[2], pads=[1, 1]),
    conv_transpose("no-bias", rng(1, 3, 4, 4), rng(3, 17, 3, 3), bias=False, strides=[2, 2]),
    conv_transpose("same", rng(1, 3, 5, 6), rng(3, 4, 3, 3), strides=[2, 2],
                   auto_pad="SAME_UPPER"),
    conv_transpose("depthwise", rng(1, 8, 6, 5), rng(8, 1, 3, 3), groups=8, strides=[2, 2],
                   pads=[1, 1, 1, 1], output_padding=[1, 1]),
    conv_transpose("groups-uneven", rng(2, 4, 5, 3), rng(4, 3, 3, 4), groups=2, strides=[2, 3],
                   pads=[1, 0, 2, 3], output_padding=[1, 2]),
    conv_transpose("line-depthwise", rng(2, 4, 5), rng(4, 3, 3), groups=4, strides=[3],
                   pads=[1, 0], output_padding=[2]),
    conv_transpose("pointwise", rng(1, 3, 4, 4), rng(3, 2, 1, 1), strides=[2, 2]),
    conv_transpose("pixel", rng(1, 3, 1, 1), rng(3, 2, 4, 4), strides=[2, 2], pads=[1, 1, 1, 1]),
    conv_transpose("same-groups", rng(1, 4, 5, 6), rng(4, 3, 4, 3), groups=2, strides=[2, 3],
                   auto_pad="SAME_UPPER"),
    conv_transpose("no-images", np.zeros((0, 3, 4, 4), "float32"), rng(3, 2, 3, 3)),
    conv_transpose("line-groups", rng(1, 4, 6), rng(4, 3, 4), groups=2, strides=[2], pads=[1, 1]),
    conv_transpose("line-output-padding", rng(1, 4, 28), rng(4, 3, 3), strides=[2], pads=[1, 1],
                   output_padding=[1]),
    conv_transpose("kernel-below-stride", rng(1, 3, 4, 5), rng(3, 4, 1, 1), strides=[3, 2],
                   output_padding=[2, 1]),
    conv_transpose("volume", rng(1, 3, 3, 4, 3), rng(3, 2, 3, 3, 3)),
    conv_transpose("volume-options", rng(2, 4, 3, 4, 3), rng(4, 2, 3, 2, 4), strides=[2, 3, 2],
                   pads=[1, 0, 1, 0, 1, 2], output_padding=[1, 0, 1], groups=2, direct=True),
    conv_transpose("volume-kernel-below-stride", rng(1, 3, 3, 4, 3), rng(3, 2, 1, 2, 1),
                   strides=[3, 2, 2], direct=True),
    conv_transpose("volume-same", rng(1, 3, 3, 4, 3), rng(3, 2, 3, 3, 3), strides=[2, 2, 2],
                   auto_pad="SAME_UPPER", direct=True),
    Case(
        "transpose-group-bias",
        "ConvTranspose",
        [np.ones((1, 2, 1, 1), "float32"), np.arange(1, 5, dtype="float32").reshape(2, 2, 1, 1),
         np.array([10, 20, 30, 40], "float32")],
        [np.array([11, 22, 33, 44], "float32").reshape(1, 4, 1, 1)],
        {"group": 2},
        fixed=[(1, d) for d in (1, 2, 3)],
    ),
    Case(
        "transpose-untouched",
        "ConvTranspose",
        [np.ones((1, 1, 1, 1), "float32"), np.array([1, 2], "float32").reshape(1, 1, 1, 2)],
        [np.full((1, 1, 1, 1), 2, "float32")],
        {"pads": [0, 1, 0, 0]},
        fixed=[(1, d) for d in (1, 2, 3)],
    ),
    conv_integer("u8-i8", u8(1, 3, 8, 9), u8(4, 3, 3, 3, dtype="int8")),
    conv_integer("u8-u8", u8(1, 3, 8, 9), u8(4, 3, 3, 3)),
    conv_integer("zero-x", u8(1, 3, 8, 9), u8(4, 3, 3, 3, dtype="int8"), np.array(128, "uint8"),
                 pads=[1, 1, 1, 1]),
    conv_integer("zero-w", u8(1, 3, 8, 9), u8(4, 3, 3, 3), None, np.array(7, "uint8")),
    conv_integer("line", u8(2, 3, 20), u8(4, 3, 3, dtype="int8"), np.array(7, "uint8"),
                 pads=[1, 2], strides=[2]),
    conv_integer("volume", u8(1, 3, 4, 5, 5), u8(4, 3, 2, 2, 2, dtype="int8"),
                 np.array(128, "uint8"), np.array(3, "int8"), pads=[1] * 6, strides=[2, 1, 1]),
    conv_integer("extreme", np.full((1, 70, 3, 3), 255, "uint8"),
                 np.full((2, 70, 3, 3), -128, "int8")),
    conv_integer("zero-one", u8(1, 3, 8, 9), u8(4, 3, 3, 3), np.array([3], "uint8"),
                 np.array([7], "uint8")),
    conv_integer("zero-channel", u8(1, 3, 8, 9), u8(1, 3, 3, 3), None, np.array([7], "uint8")),
    conv_integer("zero-channels", u8(1, 4, 8, 9), u8(4, 2, 3, 3, dtype="int8"),
                 np.array(9, "uint8"), np.arange(4).astype("int8"), group=2, strides=[2, 1],
                 pads=[0, 1, 2, 0]),
]  # fmt: skip
SUITE = Suite(CASES)


@pytest.mark.parametrize(("case", "mode"), SUITE.parameters())
def test_conv(case: Case, mode: Mode) -> None:
    SUITE.check(case, mode)


def test_an_input_smaller_than_the_kernel_is_refused() -> None:
    case = conv("small", rng(1, 3, 2, 9), rng(4, 3, 3, 3))
    message = "the input with its padding is smaller than the kernel"
    with pytest.raises(rten_aot.ShapeError, match=message):
        run_case(case)
    with pytest.raises(InputError, match=message):
        run_case(case, "dynamic")


@pytest.mark.parametrize(
    ("x", "w", "attrs", "message"),
    [
        (rng(1, 3, 5, 5), rng(4, 2, 3, 3), {}, "channels of input and weights 3 and 2 differ"),
        (rng(1, 4, 5, 5), rng(3, 2, 3, 3), {"group": 2}, "3 output channels cannot be divided"),
        (rng(1, 3, 5, 5), rng(4, 3, 3), {}, "weights of rank 3 for an input of rank 4"),
        (rng(3, 5), rng(4, 3), {}, "the input has rank 2; needed: 3 or more"),
        (rng(1, 3, 5, 5), rng(4, 3, 3, 3), {"strides": [1]}, "1 values for 2 spatial axes"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    x: Array, w: Array, attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(rten_aot.ShapeError, match=message):
        run_case(Case("conv", "Conv", [x, w], [], attrs))
