"""Deterministic pictures and sounds, enough like real ones for a trained network to react to.

Pictures are uint8 arrays of shape (height, width, 3), red first; sounds are float32 in -1..1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter, ImageFont

Picture = npt.NDArray[np.uint8]
Sound = npt.NDArray[np.float32]

_WORDS = (
    "invoice total amount paid number street Berlin station ticket coffee 2024 open daily "
    "from 8:30 to 19:00 service fresh bread compiler tensor kernel shape 42 EUR thank you"
).split()


def text_page(height: int, width: int, seed: int = 0) -> Picture:
    """Draw a page with several lines of printed text on slightly shaded paper."""
    rng = np.random.default_rng(seed)
    page = _shaded_paper(height, width, rng)
    draw = ImageDraw.Draw(page)
    top = 6
    while top < height - 10:
        size = int(rng.integers(14, 30))
        left = int(rng.integers(4, max(5, width // 6)))
        draw.text((left, top), _sentence(rng), fill=_ink(rng), font=_font(size))
        top += int(size * 1.8)
    return np.asarray(page)


def text_line(height: int, width: int, seed: int = 0) -> Picture:
    """Draw one line of printed text, cropped closely as a text detector would."""
    rng = np.random.default_rng(seed)
    line = _shaded_paper(height, width, rng)
    font = _font(int(height * 0.62))
    text = _sentence(rng)
    while len(text) > 1 and font.getlength(text) > width - 8:
        text = text[:-1]
    ImageDraw.Draw(line).text((4, height * 0.12), text, fill=_ink(rng), font=font)
    return np.asarray(line)


def captcha(height: int, width: int, seed: int = 0) -> Picture:
    """Draw slanted letters and digits crossed by lines, in a row or scattered if there is room."""
    rng = np.random.default_rng(seed)
    picture = _shaded_paper(height, width, rng)
    size = min(height, 64)
    advance = size * 9 // 16
    for left in range(0, max(1, width - size + advance // 2), advance):
        tile = Image.new("L", (size, size), 0)
        glyph = str(rng.choice(list("abcdefhkmnpqrstuvwxyz23456789")))
        ImageDraw.Draw(tile).text((size * 0.2, 0), glyph, fill=255, font=_font(size * 3 // 4))
        mask = tile.rotate(float(rng.uniform(-20, 20)), resample=Image.Resampling.BILINEAR)
        picture.paste(_ink(rng), (left, int(rng.integers(0, height - size + 1))), mask)
    draw = ImageDraw.Draw(picture)
    for _ in range(2):
        draw.line(
            (0, rng.uniform(0, height), width, rng.uniform(0, height)), fill=_ink(rng), width=1
        )
    return np.asarray(picture)


def scene(height: int, width: int, seed: int = 0) -> Picture:
    """Draw overlapping coloured shapes over a sky-like gradient, with a little blur and grain."""
    rng = np.random.default_rng(seed)
    picture = _gradient(rng.uniform(0, 255, (2, 3)), height, width)
    draw = ImageDraw.Draw(picture)
    for index in range(10):
        centre_x, centre_y = rng.uniform(0, width), rng.uniform(0, height)
        half_w, half_h = rng.uniform(0.06, 0.25, 2) * (width, height)
        box = (centre_x - half_w, centre_y - half_h, centre_x + half_w, centre_y + half_h)
        colour = _rgb(rng.uniform(0, 255, 3))
        if index % 2:
            draw.rectangle(box, fill=colour)
        else:
            draw.ellipse(box, fill=colour)
    return _grain(picture.filter(ImageFilter.GaussianBlur(1)), rng)


def face(height: int, width: int, seed: int = 0) -> Picture:
    """Draw a crude frontal face: an oval with hair, eyes, nose and mouth before a gradient."""
    rng = np.random.default_rng(seed)
    picture = _gradient(rng.uniform(40, 220, (2, 3)), height, width)
    draw = ImageDraw.Draw(picture)
    size = min(height, width) * rng.uniform(0.75, 0.95)
    left, top = (width - size) / 2, (height - size) / 2

    def oval(
        x: float, y: float, half_w: float, half_h: float, colour: tuple[int, int, int]
    ) -> None:
        centre = (left + x * size, top + y * size)
        draw.ellipse(
            (
                centre[0] - half_w * size,
                centre[1] - half_h * size,
                centre[0] + half_w * size,
                centre[1] + half_h * size,
            ),
            fill=colour,
        )

    oval(0.5, 0.42, 0.42, 0.46, (70, 45, 30))  # hair
    oval(0.5, 0.54, 0.36, 0.44, (225, 180, 150))
    for x in (0.35, 0.65):
        oval(x, 0.38, 0.10, 0.02, (80, 50, 35))  # brow
        oval(x, 0.46, 0.08, 0.04, (245, 240, 235))
        oval(x, 0.46, 0.035, 0.04, (50, 35, 30))
    oval(0.5, 0.62, 0.05, 0.07, (200, 150, 125))
    oval(0.5, 0.78, 0.15, 0.04, (165, 70, 70))
    return _grain(picture.filter(ImageFilter.GaussianBlur(size / 60)), rng)


def speech(samples: int, rate: int = 16000, seed: int = 0) -> Sound:
    """Synthesise a vowel: a gliding pulse train with breath noise through three formants."""
    rng = np.random.default_rng(seed)
    warm_up = rate // 20
    count = samples + warm_up
    time = np.arange(count) / rate
    pitch = rng.uniform(100, 180) * (1 + 0.05 * np.sin(2 * np.pi * 4 * time))
    cycles = np.cumsum(pitch) / rate
    source = np.diff(np.floor(cycles), prepend=0.0) + 0.01 * rng.standard_normal(count)
    sound = source
    for frequency, bandwidth in (
        (rng.uniform(550, 800), 80),
        (rng.uniform(1000, 1700), 100),
        (2600, 140),
    ):
        sound = _resonate(sound, frequency, bandwidth, rate)
    sound = sound[warm_up:]
    return np.asarray(0.5 * sound / np.abs(sound).max(), dtype=np.float32)


def _resonate(
    source: npt.NDArray[np.float64], frequency: float, bandwidth: float, rate: int
) -> npt.NDArray[np.float64]:
    """Apply a two-pole resonator: out[n] = in[n] + 2 r cos(w) out[n-1] - r^2 out[n-2]."""
    radius = np.exp(-np.pi * bandwidth / rate)
    first = 2 * radius * np.cos(2 * np.pi * frequency / rate)
    second = -(radius**2)
    out = np.zeros_like(source)
    before, before_that = 0.0, 0.0
    for index, value in enumerate(source):
        before, before_that = value + first * before + second * before_that, before
        out[index] = before
    return out


def _gradient(ends: npt.NDArray[np.float64], height: int, width: int) -> Image.Image:
    """Blend from the colour ends[0] at the top to ends[1] at the bottom."""
    blend = np.linspace(0.0, 1.0, height)[:, None, None]
    rows = ends[0] * (1 - blend) + ends[1] * blend
    return Image.fromarray(np.broadcast_to(rows, (height, width, 3)).astype(np.uint8))


def _shaded_paper(height: int, width: int, rng: np.random.Generator) -> Image.Image:
    shade = rng.uniform(215, 255, (2, 1)) * np.ones((2, 3))
    return _gradient(shade, height, width)


def _grain(picture: Image.Image, rng: np.random.Generator) -> Picture:
    values = np.asarray(picture, dtype=np.float64)
    noisy = values + 4 * rng.standard_normal(values.shape)
    return np.clip(noisy, 0, 255).astype(np.uint8)


def _sentence(rng: np.random.Generator) -> str:
    return " ".join(rng.choice(_WORDS, size=6))


def _ink(rng: np.random.Generator) -> tuple[int, int, int]:
    return _rgb(rng.uniform(0, 70, 3))


def _rgb(values: npt.NDArray[np.float64]) -> tuple[int, int, int]:
    red, green, blue = (int(value) for value in values)
    return red, green, blue


def _font(size: int) -> Any:
    return ImageFont.load_default(size)
