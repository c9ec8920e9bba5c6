"""Sizes that come in as data: the same operators with operands that are known at run time only."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rten_aot
from tests.ops.test_control_flow import Array, GraphMaker, compiled

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
RNG = np.random.default_rng(4)


def number(value: int) -> Array:
    return np.array(value, np.int32)


def vector(*values: int) -> Array:
    return np.array(values, np.int32)


@dataclass
class Everything:
    """One model with all the operators, each with operands of its own."""

    maker: GraphMaker = field(default_factory=GraphMaker)
    feeds: dict[str, Array] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)

    def add(
        self, name: str, op: str, *operands: Array | None, outputs: int = 1, **attrs: Any
    ) -> None:
        places: list[Any] = []
        for k, x in enumerate(operands):
            places.append(None)
            if x is None:
                continue
            label = f"{name}.{k}"
            dtype = x.dtype.name
            sized = k == 0 and op not in ("Range", "ConstantOfShape")
            dims = [f"{label}.{axis}" if sized else n for axis, n in enumerate(x.shape)]
            places[-1] = self.maker.input(label, dims, dtype)
            self.feeds[label] = x
        first = self.maker.op(op, *places, name=name, outputs=outputs, **attrs)
        for k in range(outputs):
            self.outputs[f"{name}:{k}"] = first + k


X = RNG.standard_normal((2, 3, 4)).astype(np.float32)
PAIR = np.float32([0, 1])


def everything() -> Everything:
    e = Everything()
    e.add("reshape", "Reshape", X, vector(4, -1), allow_zero=False)
    e.add("reshape_zero", "Reshape", X, vector(2, 12), allow_zero=True)
    e.add("expand", "Expand", X[:, :1], vector(2, 5, 1))
    e.add("tile", "Tile", X, vector(1, 2, 1))
    e.add("slice", "Slice", X, vector(1, 0), vector(3, 2), vector(2, 1), vector(1, 1))
    e.add("slice_all", "Slice", X, vector(0, 0, 0), vector(9, 9, 9))
    e.add("split", "Split", X, vector(1, 2), outputs=2, axis=1)
    e.add("pad", "Pad", X, vector(0, 1, 0, 0, 2, 1), mode="Constant")
    e.add("reflect", "Pad", X, vector(0, 1, 0, 0, 2, 1), mode="Reflect")
    e.add("pad_axes", "Pad", X, vector(1, 2, 0, 1), None, vector(2, 0), mode="Constant")
    e.add("edge_axes", "Pad", X, vector(1, 2, 0, 1), None, vector(2, 0), mode="Edge")
    e.add("unsqueeze", "Unsqueeze", X, vector(0, -1))
    e.add("squeeze", "Squeeze", X[:, :1], vector(1))
    e.add("full", "ConstantOfShape", vector(2, 3), value=2)
    e.add("range", "Range", number(0), number(5), number(2))
    floats = [np.array(v, np.float32) for v in (0, 1, 0.25)]
    e.add("range_float", "Range", *floats)
    e.add("one_hot", "OneHot", vector(0, 2, -1), number(3), PAIR, axis=-1)
    e.add("top_k", "TopK", X, vector(2), outputs=2, axis=-1, largest=True)
    resize = {"coord_mode": "HalfPixel", "nearest_mode": "Floor"}
    e.add("scaled", "Resize", X, None, np.float32([1, 1, 2]), mode="Linear", **resize)
    e.add("scaled_all", "Resize", X, None, np.float32([1, 1, 2]), mode="Nearest", **resize)
    e.add("sized", "Resize", X, None, None, vector(2, 3, 8), mode="Linear", **resize)
    e.add("trilu", "Trilu", X, number(0), upper=True)
    return e


class Model:
    """The compiled model; runs with some operands replaced."""

    def __init__(self, folder: Path) -> None:
        self.spec = everything()
        graph = self.spec.maker.graph(*self.spec.outputs.values())
        self.model = compiled(graph, folder)

    def __call__(self, name: str, *operands: Any) -> list[Array]:
        feeds = dict(self.spec.feeds)
        given = [x for x in operands if x is not None]
        labels = [label for label in feeds if label.rpartition(".")[0] == name]
        for label, x in zip(labels, given, strict=True):
            feeds[label] = np.asarray(x, feeds[label].dtype)
        results = self.model.run(feeds)
        found = dict(zip(self.spec.outputs, results.values(), strict=True))
        return [y for key, y in found.items() if key.rpartition(":")[0] == name]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(tmp_path_factory.mktemp("sizes"))


def check(got: Array, want: Array) -> None:
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got, want, 1e-6, 1e-6)


def sliced(x: Array, starts: Any, ends: Any, axes: Any, steps: Any) -> Array:
    index = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        stop = None if step < 0 and end < -x.shape[axis] else end
        index[axis] = slice(start, stop, step)
    return x[tuple(index)]


SIZES = st.integers(0, 5)
SHAPES = st.tuples(SIZES, SIZES, SIZES)
POSITIONS = st.one_of(st.integers(-7, 7), st.sampled_from([INT_MIN, INT_MAX, -100, 100]))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_slice(model: Model, data: st.DataObject) -> None:
    x = np.arange(np.prod(shape := data.draw(SHAPES)), dtype=np.float32).reshape(shape)
    axes = data.draw(st.sampled_from([(0, 1), (2, 1), (-1, 0), (1, -1)]))
    two = st.tuples(POSITIONS, POSITIONS)
    steps = data.draw(st.tuples(*[st.sampled_from([1, 2, 3, 9, -1, -2, -9, INT_MAX])] * 2))
    starts, ends = data.draw(two), data.draw(two)
    check(
        model("slice", x, starts, ends, axes, steps)[0],
        sliced(x, starts, ends, axes, steps),
    )
    three = st.tuples(POSITIONS, POSITIONS, POSITIONS)
    starts, ends = data.draw(three), data.draw(three)
    check(
        model("slice_all", x, starts, ends)[0],
        sliced(x, starts, ends, range(3), (1, 1, 1)),
    )


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_shapes(model: Model, data: st.DataObject) -> None:
    x = RNG.standard_normal(data.draw(SHAPES)).astype(np.float32)
    repeats = data.draw(st.tuples(*[st.integers(0, 3)] * 3))
    check(model("tile", x, repeats)[0], np.tile(x, repeats))
    pads = data.draw(st.tuples(*[st.integers(0, 3)] * 6))
    widths = list(zip(pads[:3], pads[3:], strict=True))
    check(model("pad", x, pads)[0], np.pad(x, widths))
    if x.size:
        check(model("reflect", x, pads)[0], np.pad(x, widths, "reflect"))
    first = data.draw(st.integers(0, x.shape[1]))
    parts = model("split", x, (first, x.shape[1] - first))
    for got, want in zip(parts, (x[:, :first], x[:, first:]), strict=True):
        check(got, want)
    count = data.draw(st.integers(0, x.shape[2]))
    values, places = model("top_k", x, (count,))
    order = np.argsort(-x, axis=-1, kind="stable")[..., :count]
    np.testing.assert_array_equal(places, order)
    check(values, np.take_along_axis(x, order, -1))
    shape = data.draw(st.tuples(SIZES, SIZES))
    check(model("full", shape)[0], np.full(shape, 2))
    target = data.draw(SHAPES)
    one = x[:1, :1, :1]
    if one.size:
        check(model("expand", one, target)[0], np.broadcast_to(one, target))


@settings(max_examples=40, deadline=None)
@given(*[st.integers(-30, 30)] * 2, st.integers(-9, 9).filter(bool), st.floats(-3, 3, width=32))
def test_range(model: Model, start: int, limit: int, delta: int, fraction: float) -> None:
    check(model("range", start, limit, delta)[0], np.arange(start, limit, delta))
    if abs(fraction) > 0.01:
        wide = np.float64(np.float32(fraction))
        count = max(int(np.ceil((limit - start) / wide)), 0)
        check(model("range_float", start, limit, fraction)[0], start + np.arange(count) * wide)


@pytest.mark.parametrize(
    ("shape", "wanted", "result"),
    [
        ((2, 3, 4), (-1, 2), (12, 2)),
        ((2, 3, 4), (0, -1), (2, 12)),
        ((2, 0, 4), (0, -1), (2, 0)),
        ((0, 3, 4), (0, -1), (0, 12)),
        ((0, 3, 4), (-1, 5), (0, 5)),
        ((1, 1, 1), (1, 1), (1, 1)),
        ((30, 40, 50), (-1, 6), (10000, 6)),
    ],
)
def test_reshape(
    model: Model, shape: tuple[int, ...], wanted: tuple[int, ...], result: tuple[int, ...]
) -> None:
    x = RNG.standard_normal(shape).astype(np.float32)
    check(model("reshape", x, wanted)[0], x.reshape(result))


def test_zeros_are_sizes_if_allowed(model: Model) -> None:
    check(model("reshape_zero", X[:0], (0, 7))[0], np.zeros((0, 7)))
    check(model("reshape_zero", X, (3, 8))[0], X.reshape(3, 8))


def test_axes(model: Model) -> None:
    check(model("unsqueeze", X, (1, 0))[0], X[None, None])
    check(model("unsqueeze", X, (-2, 2))[0], X[:, :, None, None])
    check(model("squeeze", X[:1], (-3,))[0], X[0])
    check(model("squeeze", X[..., :1], (2,))[0], X[..., 0])


def test_pads_of_some_axes(model: Model) -> None:
    for pads, axes in (((1, 2, 0, 1), (2, 0)), ((0, -1, 3, 2), (-1, -2)), ((-1, 0, 0, 1), (0, 1))):
        widths = [(0, 0)] * 3
        kept = X
        for k, axis in enumerate(axes):
            before, after = pads[k], pads[k + 2]
            kept = kept.take(range(max(-before, 0), kept.shape[axis] + min(after, 0)), axis)
            widths[axis] = (max(before, 0), max(after, 0))
        check(model("pad_axes", X, pads, axes)[0], np.pad(kept, widths))
        check(model("edge_axes", X, pads, axes)[0], np.pad(kept, widths, "edge"))


def test_one_hot(model: Model) -> None:
    indices = vector(0, 3, -1, 9)
    expected = np.zeros((4, 5))
    expected[[0, 1, 2], [0, 3, 4]] = 1
    check(model("one_hot", indices, 5, PAIR)[0], expected)
    check(model("one_hot", indices, 0, PAIR)[0], np.zeros((4, 0)))


def test_resize(model: Model) -> None:
    def row(x: Array, size: int, scale: float) -> Array:
        at = (np.arange(size) + 0.5) / scale - 0.5
        return np.interp(at, np.arange(len(x)), x)

    for scale in (0.5, 1.0, 1.5, 3.0):
        size = int(4 * scale)
        want = np.apply_along_axis(lambda r, n=size, s=scale: row(r, n, s), 2, X)
        check(model("scaled", X, (1, 1, scale))[0], want)
        check(model("sized", X, (2, 3, size))[0], want)
    places = np.floor((np.arange(6) + 0.5) / 2 - 0.5).clip(0).astype(int)
    check(model("scaled_all", X, (1, 2, 1))[0], X[:, places])


@pytest.mark.parametrize("steps", [(5, 0, -2), (5, 0, 1), (0, 5, -1), (3, 3, 1), (10, 0, -10)])
def test_ranges_down_and_of_nothing(model: Model, steps: tuple[int, int, int]) -> None:
    for name in ("range", "range_float"):
        check(model(name, *steps)[0], np.arange(*steps))
    far = INT_MIN, INT_MAX, 2**30
    check(model("range", *far)[0], np.arange(*far))


def test_diagonals(model: Model) -> None:
    for k in (-2, 0, 3, 100):
        check(model("trilu", X, k)[0], np.triu(X, k))


def test_large(model: Model) -> None:
    check(model("full", (3000, 1000))[0], np.full((3000, 1000), 2))
    check(model("range", 0, 3_000_000, 2)[0], np.arange(0, 3_000_000, 2))
    check(model("expand", X[:1, :1, :1], (100, 200, 300))[0], np.full((100, 200, 300), X[0, 0, 0]))


@pytest.mark.parametrize(
    ("name", "operands", "op"),
    [
        ("reshape", (X, (5, -1)), "Reshape"),
        ("reshape", (X, (-1, -1)), "Reshape"),
        ("reshape", (X, (-2, 12)), "Reshape"),
        ("reshape", (X, (4, 7)), "Reshape"),
        ("reshape", (X, (INT_MAX, INT_MAX)), "Reshape"),
        ("reshape", (X[:0], (3, 5)), "Reshape"),
        ("reshape_zero", (X, (0, -1)), "Reshape"),
        ("expand", (X[:, :1], (3, 5, 1)), "Expand"),
        ("expand", (X[:, :1], (2, -1, 4)), "Expand"),
        ("tile", (X, (1, -1, 1)), "Tile"),
        ("slice", (X, (0, 0), (1, 1), (1, 3), (1, 1)), "Slice"),
        ("slice", (X, (0, 0), (1, 1), (1, -2), (1, 1)), "Slice"),
        ("slice", (X, (0, 0), (1, 1), (1, 2), (1, 0)), "Slice"),
        ("split", (X, (1, 1)), "Split"),
        ("split", (X, (-1, 4)), "Split"),
        ("pad", (X, (0, -2, 0, 0, -2, 0)), "Pad"),
        ("reflect", (X[:, :0], (0, 1, 0, 0, 0, 0)), "Pad"),
        ("pad_axes", (X, (1, 1, 1, 1), (0, 3)), "Pad"),
        ("pad_axes", (X, (1, 1, 1, 1), (1, -2)), "Pad"),
        ("pad_axes", (X, (-3, 0, 0, 0), (0, 1)), "Pad"),
        ("edge_axes", (X, (-2, 0, 1, 0), (0, 1)), "Pad"),
        ("unsqueeze", (X, (0, 5)), "Unsqueeze"),
        ("unsqueeze", (X, (0, -5)), "Unsqueeze"),
        ("squeeze", (X, (1,)), "Squeeze"),
        ("squeeze", (X[:, :1], (3,)), "Squeeze"),
        ("full", ((2, -1),), "ConstantOfShape"),
        ("range", (0, 5, 0), "Range"),
        ("range_float", (0, 1, 0), "Range"),
        ("range_float", (np.nan, 1, 1), "Range"),
        ("range_float", (0, np.inf, 1), "Range"),
        ("one_hot", (vector(0, 2, -1), -1, PAIR), "OneHot"),
        ("top_k", (X, (5,)), "TopK"),
        ("top_k", (X, (-1,)), "TopK"),
        ("scaled", (X, (1, 1, 0)), "Resize"),
        ("scaled", (X, (1, 1, np.nan)), "Resize"),
        ("scaled", (X, (1, 2, 1)), "Resize"),
        ("sized", (X, (2, 3, -1)), "Resize"),
        ("sized", (X, (2, 4, 8)), "Resize"),
    ],
)
def test_what_cannot_be_fails_and_leaves_the_model_usable(
    model: Model, name: str, operands: Any, op: str
) -> None:
    with pytest.raises(rten_aot.ModelRunError, match=rf'in node "{name}" \({op}\)'):
        model(name, *operands)
    check(model("tile", X, (1, 1, 1))[0], X)


def test_more_than_there_is_memory_for(model: Model) -> None:
    for shape in ((INT_MAX, INT_MAX), (INT_MAX, 2**20)):
        with pytest.raises(rten_aot.ModelRunError, match="memory"):
            model("full", shape)
    check(model("full", (1, 1))[0], np.full((1, 1), 2))
