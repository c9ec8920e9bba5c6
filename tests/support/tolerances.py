"""How far results may be from the reference; the one table."""

from __future__ import annotations

import os
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Class = Literal["exact", "close", "approximate"]

# Relative and absolute. close: a few roundings; approximate: sums of many terms, whose error grows
# with the terms rather than with the result.
_FLOAT32: dict[str, tuple[float, float]] = {
    "exact": (0.0, 0.0),
    "close": (4e-6, 1e-6),
    "approximate": (5e-5, 2e-5),
}


def assert_matches(got: npt.NDArray[Any], want: npt.NDArray[Any], kind: Class) -> None:
    """Fail unless shape and type agree, integers are equal and floats are near enough.

    The environment variable RTEN_AOT_ULP=n allows n units in the last place instead.
    """
    assert got.shape == want.shape, f"shape {got.shape}, expected {want.shape}"
    if (want.dtype.kind in "bi" and want.dtype.itemsize != 1) or want.dtype == np.bool_:
        want = want.astype(np.int32)
    elif want.dtype.kind == "f":
        with np.errstate(over="ignore"):  # what float32 does not hold is infinite
            want = want.astype(np.float32)
    assert got.dtype == want.dtype, f"type {got.dtype}, expected {want.dtype}"
    ulps = os.environ.get("RTEN_AOT_ULP")
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
    elif ulps is not None:
        np.testing.assert_array_max_ulp(got, want, float(ulps))
    else:
        relative, absolute = _FLOAT32[kind]
        np.testing.assert_allclose(got, want, rtol=relative, atol=absolute)
