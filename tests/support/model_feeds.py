"""Input arrays for the real models: noise of the right scale, or what they were trained to see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from tests.support import minilm, pictures

Array = npt.NDArray[Any]
Feed = dict[str, Array]
Shape = tuple[int, ...]
Kind = Literal["random", "realistic"]
PerChannel = float | tuple[float, float, float]

_PATCH = 16


class FeedMaker(Protocol):
    """Makes the inputs of one model for a variant; the same arguments give the same arrays."""

    def __call__(self, shape: Shape, kind: Kind, seed: int) -> Feed: ...


def picture_feed(
    name: str,
    draw: Callable[[int, int, int], pictures.Picture],
    mean: PerChannel,
    deviation: PerChannel,
    *,
    noise_scale: float = 1.0,
    channels_last: bool = False,
) -> FeedMaker:
    """Feed pictures as (picture - mean) / deviation, on the scale 0..255; one channel is grey."""

    def make(shape: Shape, kind: Kind, seed: int) -> Feed:
        order = (0, 1, 2, 3) if channels_last else (0, 3, 1, 2)
        batch, height, width, channels = (shape[order.index(axis)] for axis in range(4))
        if kind == "random":
            array = noise_scale * _patchy_noise((batch, height, width, channels), seed)
        else:
            drawn = [draw(height, width, 997 * seed + index) for index in range(batch)]
            array = (np.stack(drawn).astype(np.float64) - mean) / deviation
            if channels == 1:
                array = array.mean(axis=-1, keepdims=True)
        return {name: np.ascontiguousarray(array.transpose(order), dtype=np.float32)}

    return make


def voice_feed(shape: Shape, kind: Kind, seed: int) -> Feed:
    """Feed Silero (batch, samples).

    A chunk is 64 + 512 samples at 16 kHz or 32 + 256 at 8 kHz, the first part being the end of the
    chunk before.
    """
    batch, samples = shape
    rate = 16000 if samples >= 512 else 8000
    rng = np.random.default_rng(seed)
    if kind == "random":
        sound = (0.3 * rng.standard_normal(shape)).astype(np.float32)
    else:
        sound = np.stack(
            [pictures.speech(samples, rate, 997 * seed + index) for index in range(batch)]
        )
    state = rng.uniform(-0.5, 0.5, (2, batch, 128)).astype(np.float32)
    return {"input": sound, "state": state, "sr": np.array(rate, np.int64)}


def sentence_feed(shape: Shape, kind: Kind, seed: int) -> Feed:
    """Feed MiniLM (batch, sequence); later rows are shorter, padded and masked."""
    batch, length = shape
    rng = np.random.default_rng(seed)
    if kind == "random":
        rows = [
            rng.integers(1000, 30000, max(1, length - 3 * row)).tolist() for row in range(batch)
        ]
    else:
        tokenizer = minilm.Tokenizer()
        rows = [tokenizer.encode(_text(length, seed + row, row), length) for row in range(batch)]
    ids = np.zeros(shape, np.int64)
    mask = np.zeros(shape, np.int64)
    for row, values in enumerate(rows):
        ids[row, : len(values)] = values
        mask[row, : len(values)] = 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros(shape, np.int64)}


def _text(length: int, first: int, fewer: int) -> str:
    """As many sentences as fill about `length` tokens, less `fewer`, but one at least."""
    count = max(1, length // 14 - fewer)
    return " ".join(
        minilm.SENTENCES[(first + index) % len(minilm.SENTENCES)] for index in range(count)
    )


def _patchy_noise(shape: Shape, seed: int) -> npt.NDArray[np.float64]:
    """Noise of deviation 1, half of it in square patches.

    Of pure pixel noise, global pooling leaves only the mean, so that all answers are alike.
    """
    rng = np.random.default_rng(seed)
    batch, height, width, channels = shape
    patches = rng.standard_normal((batch, -(-height // _PATCH), -(-width // _PATCH), channels))
    coarse = patches.repeat(_PATCH, axis=1).repeat(_PATCH, axis=2)[:, :height, :width]
    fine = rng.standard_normal(shape)
    return np.asarray((coarse + fine) / np.sqrt(2))
