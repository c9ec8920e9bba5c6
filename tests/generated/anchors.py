"""The large operators of random graphs: products, convolutions, pooling, normalisation."""

from __future__ import annotations

import numpy as np

from tests.generated.moves import Move, mean
from tests.generated.programs import Program, Unfit
from tests.ops import test_conv, test_norm
from tests.support.cases import Array


def weights(p: Program, *shape: int) -> int:
    return p.constant(p.g.numbers.integers(-2, 3, shape), "float32")


def matmul(p: Program) -> list[int]:
    """By a constant, by another value, or by the value's own transpose."""
    x = p.pick("float32", least=2)
    rank, inner = p.arrays[x].ndim, p.arrays[x].shape[-1]
    kind = p.g.random.random()
    if kind < 0.5:
        other = weights(p, inner, p.g.pick(1, 3, 8, 17))
    elif kind < 0.8:
        perm = [*range(rank - 2), rank - 1, rank - 2]
        (other,) = p.op("Transpose", [x], lambda v: v.transpose(perm), perm=perm)
    else:
        other = p.pick("float32", least=2)
    return p.op("MatMul", [x, other], np.matmul)


def conv(p: Program) -> list[int]:
    x = p.pick("float32", least=4, most=4)
    channels = p.arrays[x].shape[1]
    if 0 in p.arrays[x].shape or channels > 40:
        raise Unfit("Conv")
    depthwise = p.g.chance(0.3)
    out, groups = (channels, channels) if depthwise else (p.g.pick(1, 4, 8, 16, 17), 1)
    kernel = p.g.pick((1, 1), (3, 3), (1, 3), (2, 2))
    pads = [p.g.pick(0, k // 2) for k in kernel] * 2
    strides = p.g.pick([1, 1], [1, 1], [2, 2], [1, 2])
    operands = [x, weights(p, out, channels // groups, *kernel)]
    if p.g.chance(0.5):
        operands.append(weights(p, out))

    def function(v: Array, w: Array, bias: Array | None = None) -> Array:
        if v.shape[1] != w.shape[1] * groups:
            raise ValueError("channels")
        sizes = [n + 2 * a for n, a in zip(v.shape[2:], pads, strict=False)]
        if 0 in v.shape or any(n < k for n, k in zip(sizes, kernel, strict=True)):
            raise ValueError("size")
        y = test_conv.convolve(v, w, pads, strides, [1, 1], groups)
        return y if bias is None else y + bias.reshape(-1, 1, 1)

    attrs = {"auto_pad": "NotSet", "groups": groups, "dilations": [1, 1]}
    return p.op("Conv", operands, function, pads=pads, strides=strides, **attrs)


def pool(p: Program) -> list[int]:
    """The largest of 2x2, or the average of all."""
    x = p.pick("float32", least=4, most=4)
    if min(p.arrays[x].shape[2:]) < 2:
        raise Unfit("pooling")
    if p.g.chance(0.3):
        function = lambda v: mean(v, (2, 3), keepdims=True)  # noqa: E731  (a step keeps it)
        return p.op("GlobalAveragePool", [x], function, rough=True)
    stride = p.g.pick(1, 2)

    def largest(v: Array) -> Array:
        if min(v.shape[2:]) < 2:
            raise ValueError("size")
        windows = np.lib.stride_tricks.sliding_window_view(v, (2, 2), (2, 3))
        return windows[:, :, ::stride, ::stride].max((-1, -2))

    attrs = {"auto_pad": "NotSet", "pads": [0] * 4, "ceil_mode": False}
    return p.op("MaxPool", [x], largest, kernel_size=[2, 2], strides=[stride] * 2, **attrs)


def enlarge(p: Program) -> list[int]:
    x = p.pick("float32", least=4, most=4)
    scales = p.constant([1, 1, 2, 2], "float32")
    roi = p.constant([], "float32")
    attrs = {"mode": "Nearest", "coord_mode": "Asymmetric", "nearest_mode": "Floor"}
    return p.op("Resize", [x, roi, scales], lambda v, *_: v.repeat(2, 2).repeat(2, 3), **attrs)


def batch_norm(p: Program) -> list[int]:
    x = p.pick("float32", least=3, most=4)
    channels = p.arrays[x].shape[1]
    scale, bias, mean = (weights(p, channels) for _ in range(3))
    variance = p.constant(p.g.pick(1, 4) * np.ones(channels), "float32")

    def function(v: Array, s: Array, b: Array, m: Array, w: Array) -> Array:
        if v.shape[1] != len(s):
            raise ValueError("channels")
        s, b, m, w = (c.reshape(-1, *[1] * (v.ndim - 2)) for c in (s, b, m, w))
        return (v - m) / np.sqrt(w + 1e-5) * s + b

    operands = [x, scale, bias, mean, variance]
    return p.op("BatchNormalization", operands, function, rough=True, epsilon=1e-5)


def layer_norm(p: Program) -> list[int]:
    x = p.pick("float32", least=2, most=4)
    if p.arrays[x].shape[-1] == 0:
        raise Unfit("LayerNormalization")
    scale, bias = (weights(p, p.arrays[x].shape[-1]) for _ in range(2))

    def function(v: Array, s: Array, b: Array) -> Array:
        if v.shape[-1] != len(s):
            raise ValueError("sizes")
        return np.asarray(test_norm.layer_norm(-1)(v, s, b))

    return p.op("LayerNormalization", [x, scale, bias], function, rough=True, axis=-1, epsilon=1e-5)


ANCHORS: tuple[Move, ...] = (
    matmul,
    matmul,
    conv,
    conv,
    conv,
    pool,
    enlarge,
    batch_norm,
    layer_norm,
)
