"""STFT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rten_aot
from tests.support.cases import Case, Mode, Suite, run_case

Array = np.ndarray[Any, Any]


def stft(
    id: str,
    signal: Array,
    step: int,
    window: Array | None,
    length: int | None = None,
    onesided: int | None = None,
) -> Case:
    inputs: list[Array | None] = [signal, np.array(step, np.int64), window]
    if length is not None:
        inputs.append(np.array(length, np.int64))
    size = length or len(window if window is not None else [])

    def expected(signal: Array, *_: Array | None) -> Array:
        x = signal[..., 0] if signal.ndim == 3 else signal
        if signal.ndim == 3 and signal.shape[2] == 2:
            x = x + 1j * signal[..., 1]
        count = (x.shape[1] - size) // step + 1
        shape = np.ones(size) if window is None else window
        frames = [x[:, f * step : f * step + size] * shape for f in range(count)]
        spectrum = np.fft.fft(np.stack(frames, 1))
        if onesided in (None, 1):
            spectrum = spectrum[..., : size // 2 + 1]
        return np.stack([spectrum.real, spectrum.imag], -1)

    return Case(
        f"stft-{id}",
        "STFT",
        inputs,
        expected,
        {} if onesided is None else {"onesided": onesided},
        tolerance="approximate",
        constant=[1, 3],
        fixed=[(0, 2), (2, 0)],
    )


def noise(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


HANN = np.hanning(16).astype(np.float32)

SUITE = Suite(
    [
        stft("plain", noise(2, 100, 1), 8, HANN),
        stft("two-sided", noise(1, 64, 1), 5, HANN, 16, 0),
        stft("no-window", noise(1, 50), 7, None, 9),
        stft("complex", noise(2, 40, 2), 4, HANN, None, 0),
        stft("one-frame", noise(1, 16, 1), 3, HANN),
        stft("long", noise(1, 1000, 1), 128, np.hanning(256).astype(np.float32)),
    ]
)


@pytest.mark.parametrize(("case", "mode"), SUITE.parameters())
def test_signal(case: Case, mode: Mode) -> None:
    SUITE.check(case, mode)


def test_short_signal_is_refused() -> None:
    with pytest.raises(rten_aot.ShapeError, match="shorter than a frame of 16"):
        run_case(stft("short", noise(1, 15, 1), 1, HANN))


def test_onesided_spectrum_of_complex_signal_is_refused() -> None:
    with pytest.raises(rten_aot.UnsupportedOpError, match='attribute "onesided"'):
        run_case(stft("complex", noise(1, 20, 2), 1, HANN, None, 1))
