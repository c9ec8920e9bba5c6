"""ONNX NonMaxSuppression: the boxes of each class are chosen first, then listed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import te, tirx
from tvm.tirx import Buffer, Expr, IfThenElse, Stmt

from rten_aot.dialect.direct import direct
from rten_aot.dialect.loops import (
    Cell,
    flat_load,
    flat_store,
    int64,
    loop,
    nothing,
    parallel,
    seq,
)
from rten_aot.dialect.registry import Pattern, define


@define("nms_select", pattern=Pattern.OPAQUE)
def nms_select(
    boxes: te.Tensor,
    scores: te.Tensor,
    *limits: te.Tensor,
    given: list[str],
    centered: bool,
) -> list[te.Tensor]:
    """The boxes that are chosen, by batch, class and falling score, and how many they are.

    ``limits`` are tensors of one element, which ``given`` names: "count", "overlap" and "score".
    Results: the number of chosen boxes in all as int64[1], and before each class in order; their
    int32 places, with room for all boxes of each class; work memory.
    """
    batches, classes, boxes_count = scores.shape
    groups = batches * classes

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        total, starts, chosen, places = outs
        by_name = dict(zip(given, ins[2:], strict=True))
        count: Expr = int64(0)
        if "count" in by_name:
            count = tirx.Cast("int64", flat_load(by_name["count"], 0))
        overlap: Expr = tirx.const(0.0, "float32")
        if "overlap" in by_name:
            overlap = flat_load(by_name["overlap"], 0)
        least = flat_load(by_name["score"], 0) if "score" in by_name else None

        def one_group(g: Expr) -> Stmt:
            group = _Group(ins[0], ins[1], places, chosen, g, boxes_count, classes, centered)
            return group.choose(starts, tirx.min(count, boxes_count), overlap, least)

        running, here = Cell("running"), Cell("here")

        def add(g: Expr) -> Stmt:
            return seq(
                here.set(flat_load(starts, g)),
                flat_store(starts, g, running.get()),
                running.set(running.get() + here.get()),
            )

        return seq(
            parallel(groups, groups * boxes_count * int64(64), one_group),
            running.declare,
            here.declare,
            running.set(int64(0)),
            loop(groups, add),
            flat_store(total, 0, running.get()),
        )

    shapes = [[int64(1)], [groups], [groups, boxes_count], [groups, boxes_count]]
    dtypes = ["int64", "int64", "int32", "int32"]
    result = direct(shapes, [boxes, scores, *limits], body, dtypes, "nms_select")
    assert isinstance(result, list)
    return result


@define("nms_list", pattern=Pattern.OPAQUE)
def nms_list(
    starts: te.Tensor, chosen: te.Tensor, classes: list[Expr], count: list[Expr]
) -> te.Tensor:
    """Rows of batch, class and place of the ``count`` chosen boxes."""
    groups, room = chosen.shape

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        end = Cell("end")

        def one_group(g: Expr) -> Stmt:
            first = flat_load(ins[0], g)
            after = flat_load(ins[0], tirx.min(g + int64(1), groups - int64(1)))

            def row(i: Expr) -> Stmt:
                at = (first + i) * int64(3)
                numbers = (tirx.floordiv(g, classes[0]), tirx.floormod(g, classes[0]))
                stores = [
                    flat_store(outs[0], at + k, tirx.Cast("int32", n))
                    for k, n in enumerate(numbers)
                ]
                return seq(*stores, flat_store(outs[0], at + 2, flat_load(ins[1], g * room + i)))

            last = tirx.EQ(g, groups - int64(1))
            return seq(end.set(tirx.Select(last, count[0], after)), loop(end.get() - first, row))

        return seq(end.declare, loop(groups, one_group))

    result = direct([[count[0], int64(3)]], [starts, chosen], body, ["int32"], "nms_list")
    assert isinstance(result, te.Tensor)
    return result


@dataclass(frozen=True)
class _Box:
    """Corners in order, and the area."""

    corners: tuple[Expr, Expr, Expr, Expr]

    @property
    def area(self) -> Expr:
        y1, x1, y2, x2 = self.corners
        return (y2 - y1) * (x2 - x1)


@dataclass(frozen=True)
class _Group:
    """The boxes of one batch, as one class sees them."""

    boxes: Buffer
    scores: Buffer
    places: Buffer
    """Candidates that are left, in order of their places."""
    chosen: Buffer
    group: Expr
    count: Expr
    classes: Expr
    centered: bool

    def choose(self, starts: Buffer, most: Expr, overlap: Expr, least: Expr | None) -> Stmt:
        """Take the best candidate and drop those that overlap it, until none is left."""
        left, kept, found = Cell("left"), Cell("kept"), Cell("found")
        best, best_score = Cell("best"), Cell("best_score", "float32")
        winner = [Cell(f"winner{k}", "float32") for k in range(4)]
        base = self.group * self.count

        def score_of(place: Expr) -> Expr:
            return flat_load(self.scores, base + place)

        def offer(place: Expr) -> Stmt:
            """Keep a candidate, and remember the best one; of equals the first."""
            better = tirx.Or(best.get() < int64(0), score_of(place) > best_score.get())
            return seq(
                flat_store(self.places, base + kept.get(), tirx.Cast("int32", place)),
                kept.set(kept.get() + int64(1)),
                IfThenElse(better, seq(best.set(place), best_score.set(score_of(place))), None),
            )

        def enter(place: Expr) -> Stmt:
            score = score_of(place)
            # NaN is above no threshold and below none.
            bound = tirx.const(float("-inf"), "float32") if least is None else least
            enough = score >= bound if least is None else score > bound
            return IfThenElse(enough, offer(place), None)

        def review(i: Expr) -> Stmt:
            place = tirx.Cast("int64", flat_load(self.places, base + i))
            corners = (winner[0].get(), winner[1].get(), winner[2].get(), winner[3].get())
            clear = self._clear(self._box(place), _Box(corners), overlap)
            other = tirx.NE(place, taken.get())
            return IfThenElse(other, IfThenElse(clear, offer(place), None), None)

        taken = Cell("taken")
        start_over = seq(
            left.set(kept.get()), kept.set(int64(0)), taken.set(best.get()), best.set(int64(-1))
        )

        def take() -> Stmt:
            box = self._box(taken.get())
            return seq(
                start_over,
                *[cell.set(c) for cell, c in zip(winner, box.corners, strict=True)],
                flat_store(self.chosen, base + found.get(), tirx.Cast("int32", taken.get())),
                found.set(found.get() + int64(1)),
                loop(left.get(), review),
            )

        more = tirx.And(best.get() >= int64(0), found.get() < most)
        cells = [left, kept, found, best, best_score, taken, *winner]
        return seq(
            *[cell.declare for cell in cells],
            kept.set(int64(0)),
            found.set(int64(0)),
            best.set(int64(-1)),
            IfThenElse(most > int64(0), loop(self.count, enter), nothing()),
            tirx.While(more, take()),
            flat_store(starts, self.group, found.get()),
        )

    def _box(self, place: Expr) -> _Box:
        batch = tirx.floordiv(self.group, self.classes)
        at = (batch * self.count + place) * int64(4)
        a, b, c, d = (flat_load(self.boxes, at + k) for k in range(4))
        if self.centered:
            half_width, half_height = (v * tirx.const(0.5, "float32") for v in (c, d))
            return _Box((b - half_height, a - half_width, b + half_height, a + half_width))
        return _Box((_least(a, c), _least(b, d), _most(a, c), _most(b, d)))

    @staticmethod
    def _clear(one: _Box, other: _Box, overlap: Expr) -> Expr:
        """Whether two boxes overlap no more than is allowed."""
        low = [_most(p, q) for p, q in zip(one.corners[:2], other.corners[:2], strict=True)]
        high = [_least(p, q) for p, q in zip(one.corners[2:], other.corners[2:], strict=True)]
        zero = tirx.const(0.0, "float32")
        common = _most(high[0] - low[0], zero) * _most(high[1] - low[1], zero)
        union = one.area + other.area - common
        covered = tirx.And(common > zero, common / union > overlap)
        return tirx.Not(covered)


def _least(a: Expr, b: Expr) -> Expr:
    return tirx.Select(a < b, a, b)


def _most(a: Expr, b: Expr) -> Expr:
    return tirx.Select(a > b, a, b)
