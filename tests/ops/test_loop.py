"""Loop: carried values, scan outputs, conditions and trip counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rten_aot
from rten_aot.errors import ShapeError, UnsupportedOpError
from rten_aot.format.graph import Graph
from tests.ops.test_control_flow import Array, GraphMaker, branch, compiled

X = np.float32([1, -2, 3])


def growing(*, scan: bool = True) -> Graph:
    """The value plus x times the number of the iteration; its negative is collected."""
    body = GraphMaker()
    number, condition = body.input("i", (), "int32"), body.input("go_on", (), "int32")
    value = body.input("value", ("n",))
    scaled = body.op("Mul", body.capture("x"), body.op("Cast", number, to="Float"))
    result = body.op("Add", value, scaled)
    same = body.op("Identity", condition)
    return body.graph(same, result, *([body.op("Neg", result)] if scan else []))


def expected(x: Array, trips: int) -> tuple[Array, Array]:
    value, scans = x, [np.zeros((0, len(x)), np.float32)]
    for i in range(trips):
        value = value + x * np.float32(i)
        scans.append(-value[None])
    return value, np.concatenate(scans)


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_a_known_number_of_iterations(trips: int, tmp_path: Path) -> None:
    g = GraphMaker()
    x = g.input("x", ("m",))
    limit, go_on = g.constant("trips", np.int32(trips)), g.constant("yes", np.int32(1))
    value = g.op("Loop", limit, go_on, x, body=growing(), outputs=2)
    model = compiled(g.graph(value, value + 1), tmp_path)
    for data in (X, X[:1], X[:0]):
        for got, want in zip(model(data), expected(data, trips), strict=True):
            np.testing.assert_array_equal(got, want)


def test_a_condition_that_is_known_ends_the_loop(tmp_path: Path) -> None:
    """Doubles while the number of the iteration is below 3."""
    body = GraphMaker()
    number, _ = body.input("i", (), "int32"), body.input("go_on", (), "int32")
    value = body.input("value", ("n",))
    more = body.op("Less", number, body.constant("three", np.int32(3)))
    g = GraphMaker()
    x = g.input("x", ("m",))
    go_on = g.constant("yes", np.int32(1))
    graph = body.graph(more, body.op("Add", value, value))
    limit = g.constant("many", np.int32(100))
    result = g.op("Loop", limit, go_on, x, body=graph)
    never = g.op("Loop", limit, g.constant("no", np.int32(0)), x, body=graph)
    doubled, same = compiled(g.graph(result, never), tmp_path)(X)
    np.testing.assert_array_equal(doubled, X * 16)
    np.testing.assert_array_equal(same, X)


def test_sequences_grow_in_a_loop(tmp_path: Path) -> None:
    body = GraphMaker()
    number, go_on = body.input("i", (), "int32"), body.input("go_on", (), "int32")
    parts = body.input("parts", ())
    scaled = body.op("Mul", body.capture("x"), body.op("Cast", number, to="Float"))
    graph = body.graph(go_on, body.op("SequenceInsert", parts, scaled))
    g = GraphMaker()
    g.input("x", ("m",))
    limit, yes = g.constant("trips", np.int32(3)), g.constant("yes", np.int32(1))
    parts = g.op("Loop", limit, yes, g.op("SequenceEmpty"), body=graph)
    joined = g.op("ConcatFromSequence", parts, axis=0, new_axis=True)
    (result,) = compiled(g.graph(joined), tmp_path)(X)
    np.testing.assert_array_equal(result, np.stack([X * 0, X, X * 2]))


def test_loops_inside_loops(tmp_path: Path) -> None:
    inner = GraphMaker()
    _, go_on = inner.input("j", (), "int32"), inner.input("go_on", (), "int32")
    value = inner.input("value", ("n",))
    inner_graph = inner.graph(go_on, inner.op("Add", value, inner.capture("x")))
    outer = GraphMaker()
    number, go_on = outer.input("i", (), "int32"), outer.input("go_on", (), "int32")
    value = outer.input("value", ("n",))
    result = outer.op("Loop", number, go_on, value, body=inner_graph)
    g = GraphMaker()
    x = g.input("x", ("m",))
    limit, yes = g.constant("trips", np.int32(4)), g.constant("yes", np.int32(1))
    total = g.op("Loop", limit, yes, x, body=outer.graph(go_on, result))
    (got,) = compiled(g.graph(total), tmp_path)(X)
    np.testing.assert_array_equal(got, X * 7)


def test_a_body_of_another_arity_is_refused(tmp_path: Path) -> None:
    g = GraphMaker()
    x = g.input("x", ("m",))
    limit, yes = g.constant("trips", np.int32(4)), g.constant("yes", np.int32(1))
    result = g.op("Loop", limit, yes, x, x, body=growing(), name="loop", outputs=2)
    with pytest.raises(ShapeError, match=r'in node "loop" \(Loop\): 2 values are carried'):
        compiled(g.graph(result), tmp_path)


# -- numbers of iterations that are known at run time only -----------------------------------------


def test_a_number_of_iterations_that_is_an_input(tmp_path: Path) -> None:
    g = GraphMaker()
    x, trips, go_on = (
        g.input("x", ("m",)),
        g.input("trips", (1,), "int32"),
        g.input("c", (), "int32"),
    )
    value = g.op("Loop", trips, go_on, x, body=growing(), outputs=2)
    outputs = (value, g.op("Neg", value + 1), g.op("Shape", value + 1))
    model = compiled(g.graph(*outputs), tmp_path)
    for count in (0, 1, 5, -3, 1000):
        for data in (X, X[:1], X[:0]):
            got, negated, shape = model(data, [count], 1)
            value_wanted, scans = expected(data, max(count, 0))
            np.testing.assert_array_equal(got, value_wanted)
            np.testing.assert_array_equal(negated, -scans)
            np.testing.assert_array_equal(shape, scans.shape)
    got, negated, _ = model(X, [5], 0)
    np.testing.assert_array_equal(got, X)
    assert negated.shape == (0, 3)


def test_values_that_a_body_hands_on_untouched(tmp_path: Path) -> None:
    """Two values that change places; scans of one of them, of the number, of what is captured."""
    body = GraphMaker()
    number, go_on = body.input("i", (), "int32"), body.input("go_on", (), "int32")
    a, b = body.input("a", (None,)), body.input("b", (None,))
    graph = body.graph(go_on, b, a, a, number, body.capture("x"), body.capture("k"))
    g = GraphMaker()
    x, trips = g.input("x", ("m",)), g.input("trips", (), "int32")
    g.constant("k", np.float32([7, 8]))
    first = g.op(
        "Loop", trips, g.constant("yes", np.int32(1)), x, g.op("Neg", x), body=graph, outputs=6
    )
    model = compiled(g.graph(*range(first, first + 6), x), tmp_path)
    for count in (0, 1, 2, 3):
        sign = -1 if count % 2 else 1
        signs = np.float32([(-1) ** i for i in range(count)])
        wanted = [sign * X, -sign * X, signs[:, None] * X, np.arange(count), np.tile(X, (count, 1)),
                  np.tile([7, 8], (count, 1)), X]  # fmt: skip
        for got, want in zip(model(X, count), wanted, strict=True):
            np.testing.assert_array_equal(got, want)


def test_the_size_of_a_scan_whose_elements_nothing_uses(tmp_path: Path) -> None:
    g = GraphMaker()
    x, trips = g.input("x", ("m",)), g.input("trips", (), "int32")
    value = g.op("Loop", trips, g.constant("yes", np.int32(1)), x, body=growing(), outputs=2)
    filled = g.op("ConstantOfShape", g.op("Shape", value + 1), value=1.0)
    model = compiled(g.graph(filled), tmp_path)
    for count in (0, 3):
        np.testing.assert_array_equal(model(X, count)[0], np.ones((count, 3)))


def test_the_size_of_a_scan_that_only_an_iteration_could_tell(tmp_path: Path) -> None:
    body = GraphMaker()
    body.input("i", (), "int32")
    go_on, value = body.input("go_on", (), "int32"), body.input("value", ("n",))
    places = body.op("NonZero", value)
    either = with_if_of_two_sizes(body, value)
    graph = body.graph(go_on, value, places, either)
    g = GraphMaker()
    x, yes = g.input("x", ("m",)), g.constant("yes", np.int32(1))
    never = g.op("Loop", g.constant("none", np.int32(0)), yes, x, body=graph, outputs=3)
    once = g.op("Loop", g.constant("one", np.int32(1)), yes, x, body=graph, outputs=3)
    outputs = [never, never + 1, never + 2, once + 1, once + 2]
    same, *results = compiled(g.graph(*outputs), tmp_path)(X)
    np.testing.assert_array_equal(same, X)
    assert [y.shape for y in results] == [(0, 1, 0), (0, 0), (1, 1, 3), (1, 6)]


def with_if_of_two_sizes(g: GraphMaker, x: int) -> int:
    """The value twice if its sum is above 1, else its negative."""
    total = g.op("ReduceSum", x, keep_dims=False, axes=None)
    condition = g.op("Greater", total, g.constant("limit", np.float32(1)))
    name = g.nodes[x].name
    then = branch(lambda b: b.op("Concat", b.capture(name), b.capture(name), axis=0))
    otherwise = branch(lambda b: b.op("Neg", b.capture(name)))
    return g.op("If", condition, then_branch=then, else_branch=otherwise)


def halving(*, scan: bool) -> Graph:
    """Swaps two values, halves the first, and goes on while its sum is above 1."""
    body = GraphMaker()
    body.input("i", (), "int32")
    body.input("go_on", (), "int32")
    a, b = body.input("a", ("n",)), body.input("b", ("n",))
    half = body.op("Mul", a, body.constant("half", np.float32(0.5)))
    total = body.op("ReduceSum", half, keep_dims=False, axes=None)
    more = body.op("Greater", total, body.constant("one", np.float32(1)))
    return body.graph(more, b, half, *([total, b] if scan else []))


def halved(a: Array, b: Array, limit: int) -> tuple[Array, Array, list[Array], list[Array]]:
    sums: list[Array] = []
    seen: list[Array] = []
    for _ in range(limit):
        seen.append(b)
        a, b = b, a * np.float32(0.5)
        sums.append(b.sum())
        if not b.sum() > 1:
            break
    return a, b, sums, seen


def test_a_condition_that_the_body_computes(tmp_path: Path) -> None:
    g = GraphMaker()
    a, b = g.input("a", (4,)), g.input("b", (4,))
    trips, go_on = g.input("trips", (), "int32"), g.constant("yes", np.int32(1))
    first = g.op("Loop", trips, go_on, a, b, body=halving(scan=True), outputs=4)
    forever = g.op("Loop", None, go_on, a, b, body=halving(scan=False), outputs=2)
    outputs = [*range(first, first + 4), forever, forever + 1, a]
    model = compiled(g.graph(*outputs), tmp_path)
    for scale in (1, 10, 1000):
        x, y = (np.arange(4, dtype=np.float32) * scale, np.ones(4, np.float32) * scale)
        for limit in (2, 100):
            results = model(x, y, limit)
            wanted = halved(x, y, limit)
            for got, want in zip(results[:4], wanted, strict=True):
                np.testing.assert_allclose(got, np.array(want))
            for got, want in zip(results[4:6], halved(x, y, 10**6)[:2], strict=True):
                np.testing.assert_allclose(got, want)
            np.testing.assert_array_equal(results[6], x)


def test_loops_whose_number_of_iterations_is_computed_inside_loops(tmp_path: Path) -> None:
    """The sum of i * x over j < i < trips, and what is not zero in it."""
    inner = GraphMaker()
    inner.input("j", (), "int32")
    go_on, value = inner.input("go_on", (), "int32"), inner.input("value", ("n",))
    inner_graph = inner.graph(go_on, inner.op("Add", value, inner.capture("scaled_0")))
    outer = GraphMaker()
    number = outer.input("i", (), "int32")
    go_on, value = outer.input("go_on", (), "int32"), outer.input("value", ("n",))
    outer.op("Mul", outer.capture("x"), outer.op("Cast", number, to="Float"), name="scaled")
    result = outer.op("Loop", number, go_on, value, body=inner_graph)
    places = outer.op("NonZero", result)
    count = outer.op("ReduceSum", places, keep_dims=False, axes=None)
    g = GraphMaker()
    x, trips = g.input("x", ("m",)), g.input("trips", (), "int32")
    yes = g.constant("yes", np.int32(1))
    total = g.op("Loop", trips, yes, x, body=outer.graph(go_on, result, count), outputs=2)
    model = compiled(g.graph(total, total + 1), tmp_path)
    x = np.float32([0, 1, -2, 3])
    for limit in (0, 1, 4):
        got, counts = model(x, limit)
        np.testing.assert_array_equal(got, x * (1 + sum(i * i for i in range(limit))))
        np.testing.assert_array_equal(counts, np.full(limit, 6))


def test_a_body_that_fails_leaves_the_model_usable(tmp_path: Path) -> None:
    body = GraphMaker()
    number, go_on = body.input("i", (), "int32"), body.input("go_on", (), "int32")
    value = body.input("value", ())
    picked = body.op("Gather", body.capture("x"), number, axis=0, name="pick")
    graph = body.graph(go_on, body.op("Add", value, picked))
    g = GraphMaker()
    g.input("x", ("m",))
    trips, start = g.input("trips", (), "int32"), g.constant("zero", np.float32(0))
    total = g.op("Loop", trips, g.constant("yes", np.int32(1)), start, body=graph)
    model = compiled(g.graph(total), tmp_path)
    for _ in range(2):
        with pytest.raises(rten_aot.ModelRunError, match=r'in node "pick" \(Gather\): index 3'):
            model(X, 2**31 - 1)
        np.testing.assert_array_equal(model(X, 3)[0], X.sum())


def test_what_a_loop_at_run_time_cannot_do(tmp_path: Path) -> None:
    def refused(build: object, message: str) -> None:
        g = GraphMaker()
        x, trips = g.input("x", ("m",)), g.input("trips", (), "int32")
        body = GraphMaker()
        body.input("i", (), "int32")
        body.input("go_on", (), "int32")
        value = body.input("value", ("n",))
        graph, limit = build(body, value, trips)  # type: ignore[operator]
        yes = g.constant("yes", np.int32(1))
        results = g.op("Loop", limit, yes, x, body=graph, name="loop", outputs=2)
        with pytest.raises(UnsupportedOpError, match=rf'in node "loop" \(Loop\): {message}'):
            compiled(g.graph(results), tmp_path)

    refused(
        lambda b, v, t: (b.graph(1, b.op("Concat", v, v, axis=0)), t),
        r"carried value 0 changes from float32 \[m\] to float32 ",
    )
    refused(
        lambda b, v, t: (b.graph(1, v, b.op("NonZero", v)), t),
        "scan outputs whose size depends on the iteration",
    )

    def positive(b: GraphMaker, value: int) -> int:
        largest = b.op("ReduceMax", value, keep_dims=False, axes=None)
        return b.op("Greater", largest, b.constant("zero", np.float32(0)))

    refused(
        lambda b, v, t: (b.graph(positive(b, v), v, v), None),
        "scan outputs need a number of iterations",
    )
