"""STFT: https://onnx.ai/onnx/operators/onnx__STFT.html."""

from __future__ import annotations

import numpy as np
from tvm import relax

import rten_aot.dialect.matmul
import rten_aot.dialect.signal  # noqa: F401  (both define what is emitted here)
from rten_aot.importer.context import Integers, OpContext, Size
from rten_aot.importer.registry import FLOATS, op
from rten_aot.importer.sizes import at_least, expr

_MAX_FRAME = 4096


@op(
    "STFT",
    types=FLOATS,
    limits=f"frame_step and frame_length must be constant; frames of {_MAX_FRAME} at most",
)
def stft(
    ctx: OpContext,
    signal: relax.Expr,
    frame_step: Integers,
    window: relax.Expr | None = None,
    frame_length: Integers | None = None,
) -> relax.Expr:
    """The spectrum of overlapping frames: each frame times a matrix of waves."""
    onesided = ctx.attrs.bool("onesided", default=True)
    step = _constant(ctx, frame_step, "frame_step")
    length = _length(ctx, window, frame_length)
    if ctx.rank(signal) not in (2, 3):
        ctx.shape_error(f"the signal has rank {ctx.rank(signal)}; needed: 3")
    shape = ctx.shape(signal)
    channels = shape[2] if len(shape) == 3 else 1
    if channels not in (1, 2):
        ctx.fail(
            f"the last size of the signal is {ctx.text(channels)}; supported: 1 (real), 2 (complex)"
        )
    if ctx.dtype(signal) != "float32":
        ctx.fail(f"the signal is {ctx.dtype(signal)}; supported: float32")
    if onesided and channels == 2:
        ctx.fail("value 1 is not supported for a complex signal", attr="onesided")
    if window is None:
        window = ctx.const(np.ones(length, np.float32))
    at_least(ctx, shape[1], length, f"the signal is shorter than a frame of {length}")
    count = _frames(shape[1], length, step)
    sizes = [ctx.shape_expr([n]) for n in (count, step)]
    x = ctx.reshape(signal, [shape[0], shape[1], channels])
    frames = ctx.call("frames", x, window, *sizes)
    bins = length // 2 + 1 if onesided else length
    spectrum = ctx.call("matmul", frames, ctx.const(_waves(length, bins, int(channels))))
    return ctx.reshape(spectrum, [shape[0], count, bins, 2])


def _frames(size: Size, length: int, step: int) -> Size:
    if isinstance(size, int):
        return (size - length) // step + 1
    return (size - expr(length)) // expr(step) + 1


def _constant(ctx: OpContext, x: relax.Expr, what: str) -> int:
    values = ctx.ints(x, what)
    if len(values) != 1 or not isinstance(values[0], int) or values[0] < 1:
        ctx.fail(f"{what} must be one positive constant")
    return values[0]


def _length(ctx: OpContext, window: relax.Expr | None, frame_length: relax.Expr | None) -> int:
    """The number of samples of a frame."""
    own: Size | None = None
    if window is not None:
        if ctx.rank(window) != 1:
            ctx.shape_error(f"the window has rank {ctx.rank(window)}; needed: 1")
        own = ctx.shape(window)[0]
    if frame_length is not None:
        length = _constant(ctx, frame_length, "frame_length")
        if own is not None:
            ctx.equal_dims(own, length, "sizes of window and frame")
    elif isinstance(own, int):
        length = own
    else:
        ctx.fail("frame_length, or else the size of the window, must be known at compile time")
    if length > _MAX_FRAME:
        ctx.fail(f"frames have {length} samples; supported: {_MAX_FRAME} at most")
    return length


def _waves(
    length: int, bins: int, channels: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """[length * channels, bins * 2]: what each part of a sample adds to each part of a bin."""
    turns = np.outer(np.arange(length), np.arange(bins)) % length / length
    cosine, sine = np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)
    real = np.stack([cosine, -sine], -1)
    imaginary = np.stack([sine, cosine], -1)
    both = np.stack([real, imaginary][:channels], 1)
    return both.reshape(length * channels, bins * 2).astype(np.float32)
