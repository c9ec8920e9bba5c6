"""Sequences of tensors, whose length is known at compile time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rten_aot
from rten_aot.errors import CompileError, ShapeError, UnsupportedOpError
from tests.ops.test_control_flow import GraphMaker, branch, compiled

X = np.arange(24, dtype=np.float32).reshape(2, 4, 3)


def test_build_change_and_join(tmp_path: Path) -> None:
    g = GraphMaker()
    x = g.input("x", ("n", 4, 3))
    first, last = g.constant("first", np.int32(0)), g.constant("last", np.int32(-1))
    pair = g.op("SequenceConstruct", x, g.op("Neg", x))
    longer = g.op("SequenceInsert", pair, g.op("Abs", x))
    front = g.op("SequenceInsert", longer, g.op("SequenceAt", longer, last), first)
    end = g.constant("end", np.int32(4))
    again = g.op("Identity", g.op("SequenceInsert", front, x, end))
    shorter = g.op("SequenceErase", g.op("SequenceErase", again, last), first)
    outputs = [
        g.op("ConcatFromSequence", again, axis=1, new_axis=False),
        g.op("ConcatFromSequence", shorter, axis=-1, new_axis=True),
        g.op("SequenceLength", again),
        g.op("SequenceAt", g.op("SequenceErase", shorter), last),
    ]
    model = compiled(g.graph(*outputs), tmp_path)
    together, stacked, length, element = model(X)
    np.testing.assert_array_equal(together, np.concatenate([X, X, -X, X, X], 1))
    np.testing.assert_array_equal(stacked, np.stack([X, -X, X], -1))
    assert length.shape == ()
    assert length == 5
    np.testing.assert_array_equal(element, -X)


def test_split(tmp_path: Path) -> None:
    g = GraphMaker()
    x, counts = g.input("x", ("n", 4, 3)), g.input("counts", (3,), "int32")
    size, sizes = g.constant("size", np.int32(3)), g.constant("sizes", np.int32([1, 0, 3]))
    at = g.constant("at", np.int32(1))
    splits = [
        g.op("SplitToSequence", x, axis=1, keep_dims=True),
        g.op("SplitToSequence", x, axis=-2, keep_dims=False),
        g.op("SplitToSequence", x, size, axis=1, keep_dims=False),
        g.op("SplitToSequence", x, sizes, axis=1, keep_dims=True),
        g.op("SplitToSequence", x, counts, axis=0, keep_dims=True),
    ]
    lengths = [g.op("SequenceLength", s) for s in splits]
    pieces = [g.op("SequenceAt", s, at) for s in splits]
    model = compiled(g.graph(*lengths, *pieces), tmp_path)
    results = model(X, [1, 1, 0])
    assert [int(n) for n in results[:5]] == [4, 4, 2, 3, 3]
    expected = [X[:, 1:2], X[:, 1], X[:, 3:], X[:, 1:1], X[1:]]
    for got, want in zip(results[5:], expected, strict=True):
        np.testing.assert_array_equal(got, want)
    with pytest.raises(rten_aot.ModelRunError, match=r"\(SplitToSequence\)"):
        model(X, [1, 2, 0])
    with pytest.raises(rten_aot.ModelRunError, match=r"\(SplitToSequence\)"):
        model(X, [3, -1, 0])
    np.testing.assert_array_equal(model(X, [0, 2, 0])[-1], X)


def test_a_position_that_the_model_computes(tmp_path: Path) -> None:
    g = GraphMaker()
    x, position = g.input("x", ("n", 4, 3)), g.input("position", (), "int32")
    parts = g.op("SplitToSequence", x, axis=1, keep_dims=False)
    model = compiled(g.graph(g.op("SequenceAt", parts, position, name="at")), tmp_path)
    for place in (0, 3, -1, -4):
        np.testing.assert_array_equal(model(X, place)[0], X[:, place])
    with pytest.raises(rten_aot.ModelRunError, match=r'in node "at" \(SequenceAt\): index 4'):
        model(X, 4)
    np.testing.assert_array_equal(model(X, 0)[0], X[:, 0])


def test_what_is_refused(tmp_path: Path) -> None:
    def refused(build: object, error: type[CompileError], message: str) -> None:
        g = GraphMaker()
        g.input("x", ("n", 2))
        g.input("position", (), "int32")
        with pytest.raises(error, match=message):
            compiled(g.graph(build(g)), tmp_path)  # type: ignore[operator]

    refused(
        lambda g: g.op("Relu", g.op("SequenceConstruct", 0), name="relu"),
        UnsupportedOpError,
        r'in node "relu" \(Relu\): takes no sequence',
    )
    refused(
        lambda g: g.op("SequenceConstruct", 0, name="made"),
        UnsupportedOpError,
        r'in node "made" \(SequenceConstruct\): result "made_0" is a sequence',
    )
    refused(
        lambda g: g.op("SplitToSequence", 0, axis=0, keep_dims=True, name="split"),
        UnsupportedOpError,
        r'in node "split" \(SplitToSequence\): the size of the axis must be known',
    )
    refused(
        lambda g: g.op("SequenceErase", g.op("SequenceConstruct", 0), 1, name="erase"),
        UnsupportedOpError,
        r'in node "erase" \(SequenceErase\): the position must be known',
    )
    refused(
        lambda g: g.op("SequenceAt", g.op("SequenceEmpty"), g.constant("c", np.int32(0))),
        ShapeError,
        "position 0 is out of range for a sequence of 0",
    )
    refused(
        lambda g: g.op("SequenceAt", g.op("SequenceConstruct", 0, 1), g.constant("c", np.int32(0))),
        ShapeError,
        "different types: float32, int32",
    )


def test_a_branch_cannot_capture_a_sequence(tmp_path: Path) -> None:
    g = GraphMaker()
    x, flag = g.input("x", (2,)), g.input("flag", (), "int32")
    g.op("SequenceConstruct", x, name="pair")
    then = branch(
        lambda b: b.op("SequenceAt", b.capture("pair_0"), b.constant("zero", np.int32(0)))
    )
    otherwise = branch(lambda b: b.capture("x"))
    chosen = g.op("If", flag, then_branch=then, else_branch=otherwise, name="choice")
    with pytest.raises(UnsupportedOpError, match=r'"choice".*"pair_0" is a sequence of tensors'):
        compiled(g.graph(chosen), tmp_path)
