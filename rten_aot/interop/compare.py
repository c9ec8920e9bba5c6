"""How far two arrays are apart that should be the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

TOLERANCE = 1e-4
"""The error allowed by default, as a part of the array's greatest value."""

# Arrays of smaller values are what is left when greater ones cancel.
_LEAST_SCALE = 1e-2


@dataclass(frozen=True)
class Comparison:
    """The outcome; ``relative`` is the worst error as a part of the greatest value expected.

    ``note`` tells why the arrays differ if it is not by their numbers. ``place`` is where the error
    is worst.
    """

    equal: bool
    absolute: float = 0.0
    relative: float = 0.0
    note: str = ""
    place: tuple[int, ...] = ()


def compare(got: Array, want: Array, tolerance: float = TOLERANCE) -> Comparison:
    """Compare an array with what is expected.

    Integers must be equal. Floats may differ by ``tolerance`` times the greatest finite value
    expected; NaN and infinities must be in the same places.
    """
    if got.dtype != want.dtype:
        return Comparison(False, math.inf, math.inf, f"type {got.dtype}, not {want.dtype}")
    if got.shape != want.shape:
        note = f"shape {list(got.shape)}, not {list(want.shape)}"
        return Comparison(False, math.inf, math.inf, note)
    if not want.size:
        return Comparison(True)
    if want.dtype.kind != "f":
        apart = np.abs(got.astype(np.int64) - want.astype(np.int64))
        scale = max(int(np.abs(want.astype(np.int64)).max()), 1)
        return _worst(apart, float(scale), 0.0)
    odd = _odd_place(got, want)
    if odd is not None:
        note = f"{got[odd]} at {list(odd)}, not {want[odd]}"
        return Comparison(False, math.inf, math.inf, note, odd)
    finite = np.isfinite(want)
    apart = np.zeros(want.shape)
    np.subtract(got, want, out=apart, where=finite, dtype=np.float64)
    largest = float(np.abs(np.where(finite, want, 0)).max())
    return _worst(np.abs(apart), max(largest, _LEAST_SCALE), tolerance)


def _odd_place(got: Array, want: Array) -> tuple[int, ...] | None:
    """Where one array has NaN or an infinity and the other has not the same."""
    same = (got == want) | (np.isnan(got) & np.isnan(want)) | (np.isfinite(got) & np.isfinite(want))
    return None if same.all() else _place(np.argmin(same), want)


def _worst(apart: Array, scale: float, tolerance: float) -> Comparison:
    flat = np.argmax(apart)
    absolute = float(apart.reshape(-1)[flat])
    equal = absolute <= tolerance * scale
    return Comparison(equal, absolute, absolute / scale, "", _place(flat, apart))


def _place(flat: np.intp, array: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(flat, array.shape))
