"""Convolutions, pooling and resizing: operators on pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.generated.generator import SIZES, Generator
from tests.ops import test_conv, test_pooling, test_resize
from tests.support.cases import Array, Case


def scaled(g: Generator, *shape: int) -> Array:
    """Weights whose sums of products stay near 1, so that one tolerance fits all sizes."""
    return g.array(*shape) / np.float32(np.sqrt(np.prod(shape[1:])))


def conv(g: Generator, name: str) -> Case:
    kernel = [g.pick(1, 2, 3, 3, 5, 7), g.pick(1, 2, 3, 3, 5)]
    strides = [g.pick(1, 1, 2, 3), g.pick(1, 1, 2)]
    dilations = [g.pick(1, 1, 1, 2), g.pick(1, 1, 1, 3)]
    pads = [g.random.randrange(4) for _ in range(4)]
    sizes = [
        max(
            g.random.randrange(1, 24),
            (kernel[d] - 1) * dilations[d] + 1 - pads[d] - pads[d + 2],
        )
        for d in (0, 1)
    ]
    groups, per_group, out = g.pick(1, 1, 1, 2, 3), g.pick(*SIZES), g.pick(*SIZES)
    if g.chance(0.2):  # depthwise
        groups, per_group, out = per_group, 1, g.pick(1, 1, 1, 2)
    x = g.array(g.pick(1, 1, 2, 3), per_group * groups, *sizes)
    return test_conv.conv(
        name,
        x,
        scaled(g, out * groups, per_group, *kernel),
        bias=g.chance(0.5),
        pads=pads,
        strides=strides,
        dilations=dilations,
        groups=groups,
    )


def conv_transpose(g: Generator, name: str) -> Case:
    kernel = [g.pick(1, 2, 3, 4, 5), g.pick(1, 2, 3, 4)]
    strides = [g.pick(1, 2, 2, 3), g.pick(1, 2)]
    groups, per_group = g.pick(1, 1, 2, 4), g.pick(1, 2, 3, 8, 16, 17)
    sizes = [g.random.randrange(1, 12) for _ in range(2)]
    pads = [
        min(g.random.randrange(3), ((sizes[d] - 1) * strides[d] + kernel[d] - 1) // 2)
        for d in (0, 1)
    ]
    return test_conv.conv_transpose(
        name,
        g.array(g.pick(1, 2), per_group * groups, *sizes),
        g.array(per_group * groups, g.pick(1, 2, 3, 8, 16, 33), *kernel),
        bias=g.chance(0.5),
        pads=pads + pads,
        strides=strides,
        output_padding=[g.random.randrange(s) for s in strides],
        groups=groups,
    )


def pooling(g: Generator, name: str) -> Case:
    kernel = [g.pick(1, 2, 3, 3, 5), g.pick(1, 2, 3, 4)]
    sizes = [g.random.randrange(k, 20) for k in kernel]
    op = g.pick("MaxPool", "AveragePool")
    return test_pooling.case(
        op,
        name,
        g.array(g.pick(1, 2), g.pick(*SIZES), *sizes),
        kernel,
        pads=[g.random.randrange(kernel[d % 2]) for d in range(4)],
        strides=[g.pick(1, 2, 2, 3), g.pick(1, 2, 4)],
        ceil_mode=g.chance(0.4),
        include_pad=op == "AveragePool" and g.chance(0.5),
    )


def resize(g: Generator, name: str) -> Case:
    n, c = g.pick(1, 2), g.pick(*SIZES)
    sizes = [g.random.randrange(1, 12) for _ in range(2)]
    scales = [1, 1, g.pick(0.5, 1, 2, 3, 1.5, 0.75, 4), g.pick(0.5, 1, 2, 1.25)]
    fits = all(int(s * k) > 0 for s, k in zip(sizes, scales[2:], strict=True))
    if fits and g.chance(0.5):
        target: dict[str, Any] = {"scales": scales}
    else:
        target = {"sizes": [n, c, g.random.randrange(1, 20), g.random.randrange(1, 20)]}
    return test_resize.resize(
        name,
        g.array(n, c, *sizes),
        mode=g.pick("nearest", "linear"),
        coords=g.pick(*test_resize.COORDINATES),
        nearest=g.pick(*test_resize.NEAREST),
        **target,
    )


FAMILIES: dict[str, Callable[[Generator, str], Case]] = {
    "conv": conv,
    "conv_transpose": conv_transpose,
    "pooling": pooling,
    "resize": resize,
}
