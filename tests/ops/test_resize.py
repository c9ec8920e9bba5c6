from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rten_aot
from tests.support.cases import Array, Case, Mode, Suite, run_case


def rng(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def coordinates(mode: str, source: int, result: int, scale: float) -> Array:
    i = np.arange(result)
    match mode:
        case "half_pixel":
            return (i + 0.5) / scale - 0.5
        case "asymmetric":
            return i / scale
        case "pytorch_half_pixel":
            return (i + 0.5) / scale - 0.5 if result > 1 else np.zeros(1)
        case _:
            return i * (source - 1) / max(result - 1, 1)


def rounded(values: Array, mode: str) -> Array:
    match mode:
        case "floor":
            return np.floor(values)
        case "ceil":
            return np.ceil(values)
        case "round_prefer_floor":
            return np.ceil(values - 0.5)
        case _:
            return np.floor(values + 0.5)


def resample(
    x: Array, axis: int, result: int, scale: float, mode: str, coords: str, nearest: str
) -> Array:
    source = x.shape[axis]
    if result == source and scale == 1:
        return x
    where = coordinates(coords, source, result, scale)
    if mode == "nearest":
        # Positions that are whole in exact arithmetic must not fall to one side by float64's error.
        place = rounded(where.round(9), nearest)
        return x.take(np.clip(place, 0, source - 1).astype(int), axis)
    where = np.clip(where, 0, source - 1)
    low = np.floor(where).astype(int)
    shape = [-1 if d == axis else 1 for d in range(x.ndim)]
    weight = (where - low).reshape(shape)
    high = np.minimum(low + 1, source - 1)
    return np.asarray(x.take(low, axis) * (1 - weight) + x.take(high, axis) * weight)


def resize(
    label: str,
    x: Array,
    *,
    scales: Sequence[float] | None = None,
    sizes: Sequence[int] | None = None,
    mode: str = "nearest",
    coords: str = "half_pixel",
    nearest: str = "round_prefer_floor",
) -> Case:
    attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coords}
    if mode == "nearest":
        attrs["nearest_mode"] = nearest
    inputs: list[Array | None] = [x, None]
    if scales is not None:
        inputs.append(np.array(scales, "float32"))
    else:
        inputs += [None, np.array(sizes, "int64")]

    def expected(v: Array, *_: Any) -> Array:
        factors = (
            [float(f) for f in np.array(scales, "float32")]
            if scales is not None
            else [m / max(n, 1) for m, n in zip(sizes or [], v.shape, strict=True)]
        )
        for axis, factor in enumerate(factors):
            grown = int(np.floor(np.float32(v.shape[axis]) * np.float32(factor)))
            result = grown if sizes is None else sizes[axis]
            v = resample(v, axis, result, factor, mode, coords, nearest)
        return v

    return Case(
        label,
        "Resize",
        inputs,
        expected,
        attrs,
        constant=(2, 3),
        # Weights come from float32 coordinates.
        tolerance="close" if mode == "nearest" else "approximate",
        modes=("static", "dynamic"),
    )


def late(case: Case) -> Case:
    """The same with scales or sizes that come with the data."""
    place = 2 if case.inputs[2] is not None else 3
    return replace(case, id=f"{case.id}-late", constant=(), fixed=[(place, 0)])


COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
NEAREST = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
GRID = np.arange(9, dtype="float32").reshape(1, 1, 3, 3)

CASES = [
    *[
        resize(f"nearest-{coords}-{nearest}-{label}", rng(2, 3, 5, 6), coords=coords,
               nearest=nearest, **target)
        for coords, nearest in itertools.product(COORDINATES, NEAREST)
        for label, target in (
            ("double", {"scales": [1, 1, 2, 2]}),
            ("half", {"sizes": [2, 3, 3, 2]}),
        )
    ],
    *[
        resize(f"linear-{coords}-{label}", rng(2, 5, 7, 6), mode="linear", coords=coords, **target)
        for coords in COORDINATES
        for label, target in (
            ("double", {"scales": [1, 1, 2, 2]}),
            ("uneven", {"scales": [1, 1, 1.5, 0.6]}),
            ("sizes", {"sizes": [2, 5, 11, 4]}),
            ("one", {"sizes": [2, 5, 1, 1]}),
            ("width-only", {"scales": [1, 1, 1, 3]}),
        )
    ],
    *[
        late(resize(f"nearest-{coords}-{nearest}-{label}", GRID, coords=coords, nearest=nearest,
                    **target))
        for coords, nearest in itertools.product(COORDINATES, NEAREST)
        for label, target in (
            ("double", {"scales": [1, 1, 2, 0.5]}),
            ("uneven", {"scales": [1, 1, 1.5, 0.6]}),
            ("sizes", {"sizes": [1, 1, 7, 5]}),
            ("one", {"sizes": [1, 1, 1, 2]}),
        )
    ],
    *[
        late(resize(f"linear-{coords}-{label}", GRID, mode="linear", coords=coords, **target))
        for coords in COORDINATES
        for label, target in (
            ("scale-not-size", {"scales": [1, 1, 1.5, 1.5]}),
            ("third", {"scales": [1, 1, 0.34, 3.3]}),
            ("same", {"scales": [1, 1, 1, 1]}),
            ("sizes", {"sizes": [1, 1, 4, 9]}),
            ("one", {"sizes": [1, 1, 1, 2]}),
        )
    ],
    late(resize("line", rng(2, 3, 7), mode="linear", scales=[1, 1, 2])),
    late(resize("matrix", rng(4, 5), mode="linear", sizes=[7, 3])),
    late(resize("volume", rng(1, 2, 3, 4, 5), mode="linear", scales=[1, 1, 2, 1.5, 1])),
    late(resize("channels", rng(1, 2, 4, 4), scales=[1, 2, 1, 2])),
    *[
        made
        for dtype in ("int32", "int8", "uint8")
        for plain in [
            resize(f"nearest-{dtype}", np.arange(12).reshape(1, 1, 3, 4).astype(dtype),
                   scales=[1, 1, 2, 1.5])
        ]
        for made in (plain, late(plain))
    ],
    resize("scale-not-size", GRID, mode="linear", scales=[1, 1, 1.5, 1.5]),
    resize("nothing", rng(1, 2, 3, 3), scales=[1, 1, 1, 1]),
    resize("line", rng(2, 3, 7), mode="linear", scales=[1, 1, 2]),
    resize("line-nearest", rng(2, 3, 7), sizes=[2, 3, 10]),
    resize("volume", rng(1, 2, 3, 4, 5), scales=[1, 1, 2, 1, 2], coords="asymmetric",
           nearest="floor"),
    resize("matrix", rng(4, 5), mode="linear", sizes=[7, 3]),
    resize("channels", rng(1, 2, 4, 4), scales=[1, 2, 1, 2], nearest="floor",
           coords="asymmetric"),
    resize("whole-position", rng(1, 7, 10, 7), sizes=[1, 7, 5, 19], coords="pytorch_half_pixel",
           nearest="ceil"),
    resize("channels-and-batch", rng(2, 4, 3, 3), scales=[2, 0.5, 1, 1]),
    resize("vector", rng(4), mode="linear", scales=[2.5]),
    late(resize("vector", rng(4), mode="linear", scales=[2.5])),
    *[
        made
        for mode in ("nearest", "linear")
        for label, x, target in (
            ("to-nothing", rng(1, 2, 3, 3), {"sizes": [1, 2, 0, 6]}),
            ("below-one", rng(1, 1, 3, 3), {"scales": [1, 1, 0.3, 0.3]}),
            ("no-rows", rng(1, 2, 0, 3), {"scales": [1, 1, 2, 2]}),
            ("no-rows-to-none", rng(1, 2, 0, 3), {"sizes": [1, 2, 0, 7]}),
            ("no-images", rng(0, 2, 3, 3), {"sizes": [0, 2, 6, 6]}),
            ("no-channels", rng(1, 0, 3, 3), {"sizes": [1, 0, 2, 7]}),
        )
        for plain in [resize(f"{mode}-{label}", x, mode=mode, **target)]
        for made in (plain, late(plain))
    ],
    replace(
        late(resize("sizes-of-unknown-length", rng(1, 2, 3, 3), sizes=[1, 2, 7, 2])),
        fixed=(),
    ),
    resize("many-channels", rng(1, 33, 9, 9), scales=[1, 1, 2, 2], coords="asymmetric",
           nearest="floor"),
]  # fmt: skip
SUITE = Suite(CASES)


@pytest.mark.parametrize(("case", "mode"), SUITE.parameters())
def test_resize(case: Case, mode: Mode) -> None:
    SUITE.check(case, mode)


def test_linear_by_scale() -> None:
    case = resize("grid", GRID, mode="linear", scales=[1, 1, 1.5, 1.5])
    for made in (case, late(case)):
        (result,) = run_case(made)
        np.testing.assert_allclose(result[0, 0, 0], [0, 0.5, 7 / 6, 11 / 6], rtol=1e-6)


def test_nearest_keeps_integers() -> None:
    x = np.arange(12, dtype="uint8").reshape(1, 1, 3, 4)
    (result,) = run_case(resize("u8", x, scales=[1, 1, 2, 2]))
    np.testing.assert_array_equal(result, x.repeat(2, 2).repeat(2, 3))


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("shape", [(1, 2, 0, 3), (1, 2, 3, 0)])
def test_what_has_no_elements_cannot_be_enlarged(
    shape: tuple[int, ...], mode: str, known: bool
) -> None:
    case = resize("bad", np.zeros(shape, "float32"), sizes=[1, 2, 4, 4], mode=mode)
    message = 'in node "bad(-late)?" \\(Resize\\): an axis without elements cannot be enlarged'
    with pytest.raises(rten_aot.ShapeError, match=message):
        run_case(case, "folded")
    with pytest.raises((rten_aot.InputError, rten_aot.ModelRunError), match=message):
        run_case(case if known else late(case), "dynamic")


def test_scales_must_be_positive() -> None:
    with pytest.raises(rten_aot.ShapeError, match="a scale is -1"):
        run_case(Case("bad", "Resize", [GRID, None, np.array([1, 1, -1, 1], "float32")], [],
                      constant=(2,)))  # fmt: skip
