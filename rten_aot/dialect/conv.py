"""Convolutions. Weights are OIHW as ONNX has them, or packed for the kernels of a machine.

Semantics: ONNX Conv and ConvTranspose, without the bias, which is an addition of its own.
Padding is always an operand ``[top, left, bottom, right]``, because automatic padding of symbolic
sizes depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te, tirx
from tvm.sym import Analyzer

from rten_aot.dialect.broadcast import index, static
from rten_aot.dialect.registry import UNANNOTATED, Annotations, Layout, Pattern, define
from rten_aot.dialect.storage import stored

Sizes = Sequence[tirx.Expr]

REAL_TERMS = "rten.real_terms"
"""Annotation of a stage: which part of its sum's terms, a fraction, the model's operator has."""

ACCUMULATOR = {"int8": "int32", "uint8": "int32"}
"""Types of sums whose terms have another type."""


def widened(value: tirx.Expr, dtype: str) -> tirx.Expr:
    """``value`` in the type that sums of ``dtype`` are made in."""
    wide = ACCUMULATOR.get(dtype, dtype)
    return value if wide == dtype else tirx.Cast(wide, value)


def result_size(
    size: tirx.Expr, kernel: tirx.Expr, stride: int, dilation: int, pads: tirx.Expr
) -> tirx.Expr:
    """How many positions of a window there are along an axis; ``pads`` counts both sides."""
    reach = (kernel - index(1)) * index(dilation) + index(1)
    return _at_least_zero(tirx.floordiv(size + pads - reach, index(stride)) + index(1))


def _at_least_zero(size: tirx.Expr) -> tirx.Expr:
    """The size in its simplest form, so that equal sizes look equal; zero for a fixed negative."""
    size = Analyzer().simplify(size)
    known = static(size)
    return index(max(known, 0)) if known is not None else size


def padded(x: te.Tensor, pads: Sizes, axes: tuple[int, int], name: str = "pad") -> te.Tensor:
    """``x`` with zeros around the two ``axes``; ``x`` itself where all pads are surely zero."""
    if all(static(p) == 0 for p in pads):
        return x
    before = dict(zip(axes, pads[:2], strict=True))
    after = dict(zip(axes, pads[2:], strict=True))
    shape = [
        _at_least_zero(size + before[d] + after[d]) if d in before else size
        for d, size in enumerate(x.shape)
    ]

    def element(*i: tirx.Var) -> tirx.Expr:
        source = [v - before[d] if d in before else v for d, v in enumerate(i)]
        inside = [
            condition for d in axes for condition in (source[d] >= index(0), source[d] < x.shape[d])
        ]
        return tirx.if_then_else(tirx.all(*inside), x(*source), tirx.const(0, str(x.dtype)))

    return te.compute(tuple(shape), element, name=name)


def _pixel(
    x: te.Tensor, pads: Sizes, n: tirx.Expr, h: tirx.Expr, v: tirx.Expr, c: tirx.Expr
) -> tirx.Expr:
    """The element of NHWC ``x`` at a position of the padded image, 0 on the padding.

    The padding is part of the sum's terms, so that kernels choose whether to copy the image.
    """
    row, column = h - pads[0], v - pads[1]
    if all(static(p) == 0 for p in pads):
        return x(n, row, column, c)
    inside = tirx.all(row >= index(0), row < x.shape[1], column >= index(0), column < x.shape[2])
    return tirx.if_then_else(inside, x(n, row, column, c), tirx.const(0, str(x.dtype)))


def reduction(extents: Sequence[tirx.Expr], names: str) -> list[tirx.IterVar]:
    """Axes of a sum, one for each letter of ``names``."""
    return [
        te.reduce_axis((index(0), extent), name=f"r{name}")
        for extent, name in zip(extents, names, strict=True)
    ]


@define("conv", layout=Layout.SPATIAL, pattern=Pattern.ANCHOR)
def conv(
    x: te.Tensor,
    w: te.Tensor,
    pads: Sizes,
    *,
    strides: list[int],
    dilations: list[int],
    groups: int,
    layout: str = "NCHW",
) -> te.Tensor:
    """2-D convolution of ``x`` (in ``layout``) with ``w`` (OIHW): ONNX Conv.

    Sums of 8-bit integers are made in int32.
    """
    axes = (2, 3) if layout == "NCHW" else (1, 2)
    source = padded(x, pads, axes)
    out_channels, in_channels, kernel_h, kernel_w = w.shape
    sizes = [
        result_size(
            x.shape[axes[d]], w.shape[2 + d], strides[d], dilations[d], pads[d] + pads[d + 2]
        )
        for d in (0, 1)
    ]
    group = tirx.floordiv(out_channels, index(groups))
    ry, rx, rc = reduction([kernel_h, kernel_w, in_channels], "yxc")

    def element(n: tirx.Expr, o: tirx.Expr, h: tirx.Expr, v: tirx.Expr) -> tirx.Expr:
        channel = rc if groups == 1 else tirx.floordiv(o, group) * in_channels + rc
        row = h * index(strides[0]) + ry * index(dilations[0])
        column = v * index(strides[1]) + rx * index(dilations[1])
        place = (n, channel, row, column) if layout == "NCHW" else (n, row, column, channel)
        data = widened(source(*place), str(x.dtype))
        return te.sum(data * widened(w(o, rc, ry, rx), str(w.dtype)), axis=[ry, rx, rc])

    if layout == "NCHW":
        return te.compute((x.shape[0], out_channels, *sizes), element, name="conv")
    return te.compute(
        (x.shape[0], *sizes, out_channels), lambda n, h, v, o: element(n, o, h, v), name="conv"
    )


@define("conv_packed", pattern=Pattern.ANCHOR)
def conv_packed(
    x: te.Tensor,
    w: te.Tensor,
    pads: Sizes,
    *,
    out_channels: int,
    strides: list[int],
    dilations: list[int],
    real_taps: str = "1",
    annotations: Annotations = UNANNOTATED,
) -> te.Tensor:
    """2-D convolution of NHWC ``x`` with weights packed as ``[groups, blocks, h, w, in, lanes]``.

    Output channel ``o`` of a group is lane ``o % lanes`` of block ``o // lanes``; lanes past the
    last channel hold zeros and give no output. ``w`` may be float16. ``real_taps`` is the part of
    the kernel, a fraction, that is not filled with zeros; it matters to nothing but profiles.
    """
    groups, _, kernel_h, kernel_w, in_channels, lanes = w.shape
    sizes = [
        result_size(x.shape[1 + d], w.shape[2 + d], strides[d], dilations[d], pads[d] + pads[d + 2])
        for d in (0, 1)
    ]
    per_group = index(out_channels // int(groups))
    ry, rx, rc = reduction([kernel_h, kernel_w, in_channels], "yxc")

    def element(n: tirx.Expr, h: tirx.Expr, v: tirx.Expr, o: tirx.Expr) -> tirx.Expr:
        group = tirx.floordiv(o, per_group)
        own = tirx.floormod(o, per_group)
        if int(groups) == 1:
            group, own = index(0), o
        data = _pixel(
            x,
            pads,
            n,
            h * index(strides[0]) + ry * index(dilations[0]),
            v * index(strides[1]) + rx * index(dilations[1]),
            group * in_channels + rc,
        )
        weight = w(group, tirx.floordiv(own, lanes), ry, rx, rc, tirx.floormod(own, lanes))
        return te.sum(data * stored(weight), axis=[ry, rx, rc])

    return te.compute(
        (x.shape[0], *sizes, index(out_channels)),
        element,
        name="conv",
        attrs={
            "rten.anchor": "conv2d",
            **_geometry(strides, dilations),
            **({} if real_taps == "1" else {REAL_TERMS: real_taps}),
            **annotations,
        },
    )


@define("depthwise", pattern=Pattern.ANCHOR)
def depthwise(
    x: te.Tensor,
    w: te.Tensor,
    pads: Sizes,
    *,
    strides: list[int],
    dilations: list[int],
    annotations: Annotations = UNANNOTATED,
) -> te.Tensor:
    """Depthwise convolution of NHWC ``x`` with ``w`` ``[h, w, channels]``.

    The channels of the result are those of ``w``, a multiple of those of ``x``: output channel
    ``o`` reads input channel ``o // multiple``.
    """
    kernel_h, kernel_w, channels = w.shape
    sizes = [
        result_size(x.shape[1 + d], w.shape[d], strides[d], dilations[d], pads[d] + pads[d + 2])
        for d in (0, 1)
    ]
    multiple = int(channels) // int(x.shape[3])
    ry, rx = reduction([kernel_h, kernel_w], "yx")

    def element(n: tirx.Expr, h: tirx.Expr, v: tirx.Expr, o: tirx.Expr) -> tirx.Expr:
        data = _pixel(
            x,
            pads,
            n,
            h * index(strides[0]) + ry * index(dilations[0]),
            v * index(strides[1]) + rx * index(dilations[1]),
            o if multiple == 1 else tirx.floordiv(o, index(multiple)),
        )
        return te.sum(data * w(ry, rx, o), axis=[ry, rx])

    return te.compute(
        (x.shape[0], *sizes, channels),
        element,
        name="depthwise",
        attrs={
            "rten.anchor": "depthwise",
            "multiple": multiple,
            **_geometry(strides, dilations),
            **annotations,
        },
    )


def _geometry(strides: Sequence[int], dilations: Sequence[int]) -> dict[str, int]:
    return {
        "stride_h": strides[0],
        "stride_w": strides[1],
        "dilation_h": dilations[0],
        "dilation_w": dilations[1],
    }


@define("conv_transpose", layout=Layout.SPATIAL, pattern=Pattern.ANCHOR)
def conv_transpose(
    x: te.Tensor,
    w: te.Tensor,
    pads: Sizes,
    *,
    strides: list[int],
    dilations: list[int],
    output_padding: list[int],
    groups: int,
    layout: str = "NCHW",
) -> te.Tensor:
    """Transposed 2-D convolution of ``x`` (in ``layout``) with ``w`` (IOHW): ONNX ConvTranspose.

    ``w`` has ``[channels of x, output channels of a group, h, w]``. ``pads`` are cut off the full
    result and may be larger than it; ``output_padding`` lengthens its end.
    """
    axes = (2, 3) if layout == "NCHW" else (1, 2)
    channels, per_group, kernel_h, kernel_w = w.shape
    lengths = [x.shape[a] for a in axes]
    sizes = [
        transposed_size(
            lengths[d],
            w.shape[2 + d],
            strides[d],
            dilations[d],
            pads[d] + pads[d + 2] - index(output_padding[d]),
        )
        for d in (0, 1)
    ]
    in_group = tirx.floordiv(channels, index(groups))
    ry, rx, rc = reduction([kernel_h, kernel_w, in_group], "yxc")

    def element(n: tirx.Expr, o: tirx.Expr, h: tirx.Expr, v: tirx.Expr) -> tirx.Expr:
        group, own = tirx.floordiv(o, per_group), tirx.floormod(o, per_group)
        if groups == 1:
            group, own = index(0), o
        # Output position p gets tap k of input position (p + pad - k * dilation) / stride.
        distances = [
            p + pads[d] - r * index(dilations[d]) for d, (p, r) in enumerate(((h, ry), (v, rx)))
        ]
        row, column = (tirx.floordiv(distances[d], index(strides[d])) for d in (0, 1))
        channel = group * in_group + rc
        place = (n, channel, row, column) if layout == "NCHW" else (n, row, column, channel)
        hit = [
            condition
            for d, position in enumerate((row, column))
            for condition in (
                tirx.EQ(position * index(strides[d]), distances[d]),
                position >= index(0),
                position < lengths[d],
            )
        ]
        term = widened(x(*place), str(x.dtype)) * widened(w(channel, own, ry, rx), str(w.dtype))
        zero = tirx.const(0, ACCUMULATOR.get(str(x.dtype), str(x.dtype)))
        return te.sum(tirx.if_then_else(tirx.all(*hit), term, zero), axis=[ry, rx, rc])

    batch, all_channels = x.shape[0], per_group * index(groups)
    attrs = {REAL_TERMS: f"1/{strides[0] * strides[1]}"}
    if layout == "NCHW":
        return te.compute(
            (batch, all_channels, *sizes), element, name="conv_transpose", attrs=attrs
        )
    return te.compute(
        (batch, *sizes, all_channels),
        lambda n, h, v, o: element(n, o, h, v),
        name="conv_transpose",
        attrs=attrs,
    )


def transposed_size(
    size: tirx.Expr, kernel: tirx.Expr, stride: int, dilation: int, cut: tirx.Expr
) -> tirx.Expr:
    """The length of a transposed convolution's result along an axis, ``cut`` elements removed."""
    length = (size - index(1)) * index(stride) + (kernel - index(1)) * index(dilation) + index(1)
    return _at_least_zero(length - cut)


@define("interleave_phases", pattern=Pattern.INJECTIVE)
def interleave_phases(x: te.Tensor, first: Sizes, sizes: Sizes, *, strides: list[int]) -> te.Tensor:
    """Spreads channels over the plane: the last step of a transposed convolution by phases.

    NHWC ``x`` has ``strides[0] * strides[1]`` blocks of channels, one for each phase. Pixel ``p``
    of the result, whose height and width are ``sizes``, is pixel ``q // stride`` of the block of
    phase ``q % stride``, where ``q = p + first``.
    """
    channels = tirx.floordiv(x.shape[3], index(strides[0] * strides[1]))

    def element(n: tirx.Expr, h: tirx.Expr, v: tirx.Expr, o: tirx.Expr) -> tirx.Expr:
        row, column = h + first[0], v + first[1]
        sh, sw = index(strides[0]), index(strides[1])
        phase = tirx.floormod(row, sh) * sw + tirx.floormod(column, sw)
        return x(n, tirx.floordiv(row, sh), tirx.floordiv(column, sw), phase * channels + o)

    return te.compute((x.shape[0], *sizes, channels), element, name="interleave_phases")
