"""NonMaxSuppression against a plain reading of the specification."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.cases import Array, Case, Mode, Suite

RNG = np.random.default_rng(2)


def corners(box: Array, *, centered: bool) -> tuple[float, float, float, float]:
    if centered:
        x, y, width, height = box
        return y - height / 2, x - width / 2, y + height / 2, x + width / 2
    return min(box[0], box[2]), min(box[1], box[3]), max(box[0], box[2]), max(box[1], box[3])


def overlap(one: Sequence[float], other: Sequence[float]) -> float:
    height = min(one[2], other[2]) - max(one[0], other[0])
    width = min(one[3], other[3]) - max(one[1], other[1])
    common = max(height, 0) * max(width, 0)
    areas = [(b[2] - b[0]) * (b[3] - b[1]) for b in (one, other)]
    return common / (sum(areas) - common) if common > 0 else 0.0


def reference(
    boxes: Array,
    scores: Array,
    most: Array | None = None,
    limit: Array | None = None,
    least: Array | None = None,
    *,
    centered: bool,
) -> Array:
    count = 0 if most is None else int(most.flat[0])
    allowed = 0.0 if limit is None else float(limit.flat[0])
    rows = []
    for batch, label in np.ndindex(*scores.shape[:2]):
        ranked = scores[batch, label]
        chosen: list[int] = []
        for i in np.argsort(-ranked, kind="stable"):
            if len(chosen) >= count or (least is not None and not ranked[i] > least.flat[0]):
                break
            box = corners(boxes[batch, i], centered=centered)
            others = [corners(boxes[batch, k], centered=centered) for k in chosen]
            if all(overlap(box, other) <= allowed for other in others):
                chosen.append(int(i))
        rows += [[batch, label, i] for i in chosen]
    return np.array(rows, np.int32).reshape(-1, 3)


def case(
    name: str,
    shape: tuple[int, int, int],
    most: Any = (10,),
    limit: float | None = 0.3,
    least: float | None = 0.4,
    *,
    centered: bool = False,
) -> Case:
    batches, _, count = shape
    boxes = RNG.random((batches, count, 4)).astype(np.float32)
    # Few different scores, so that many are equal.
    scores = (RNG.integers(0, 20, shape) / 20).astype(np.float32)
    inputs = [
        boxes,
        scores,
        None if most is None else np.array(most, np.int64),
        None if limit is None else np.float32([limit]),
        None if least is None else np.float32([least]),
    ]
    return Case(
        name,
        "NonMaxSuppression",
        inputs,
        functools.partial(reference, centered=centered),
        {"center_point_box": int(centered)},
        fixed=[(0, 2), (2, 0), (3, 0), (4, 0)],
    )


def fixed_boxes(name: str, boxes: Any, scores: Any, *limits: float, centered: bool = False) -> Case:
    """One batch and one class of boxes that are given; limits of count, overlap and score."""
    types = (np.int64, np.float32, np.float32)
    given = [np.array([v], t) for v, t in zip(limits, types, strict=False)]
    return Case(
        name,
        "NonMaxSuppression",
        [np.float32([boxes]), np.float32([[scores]]), *given],
        functools.partial(reference, centered=centered),
        {"center_point_box": int(centered)},
        fixed=[(0, 2), (2, 0), (3, 0), (4, 0)],
    )


# Corners in any order.
SIX = [[1, 1, 0, 0], [0, 1.1, 1, 0.1], [1, -0.1, 0, 0.9], [0, 10, 1, 11], [1, 10.1, 0, 11.1],
       [1, 101, 0, 100]]  # fmt: skip
RANKS = [0.9, 0.75, 0.6, 0.95, 0.5, 0.3]

SUITE = Suite(
    [
        fixed_boxes("corners-swapped", SIX, RANKS, 9, 0.5),
        fixed_boxes("score-equals-threshold", SIX, RANKS, 9, 0.5, 0.6),
        fixed_boxes("negative-scores", SIX, [-v for v in RANKS], 9, 0.5),
        fixed_boxes("negative-threshold", SIX, [-v for v in RANKS], 9, 0.5, -0.7),
        fixed_boxes("overlap-1", SIX, RANKS, 9, 1.0),
        fixed_boxes("overlap-0", SIX, RANKS, 9, 0.0),
        fixed_boxes("one-box-ten-times", [[0, 0, 1, 1]] * 10, [0.9] * 10, 3, 0.5, 0.0),
        fixed_boxes("touching", [[0, 0, 1, 1], [1, 0, 2, 1], [0, 1, 1, 2]], [0.9, 0.8, 0.7], 9, 0),
        fixed_boxes(
            "without-area",
            [[0, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 2], [0, 0, 2, 2]],
            [0.9, 0.8, 0.7, 0.6],
            9,
            0.5,
        ),
        fixed_boxes(
            "overlap-equals-threshold",
            [[0, 0, 1, 2], [0, 1, 1, 3], [0, 0, 1, 4]],
            [0.9, 0.8, 0.7],
            9,
            0.5,
        ),
        case("corners", (1, 1, 6)),
        case("centered", (1, 1, 6), centered=True),
        case("many", (2, 3, 40)),
        case("many-centered", (2, 3, 40), centered=True),
        case("no-score-limit", (2, 3, 40), least=None),
        case("no-overlap-limit", (2, 2, 40), limit=None),
        case("all-limits-missing", (2, 2, 40), None, None, None),
        case("none-wanted", (2, 2, 40), (0,)),
        case("fewer-than-none", (2, 2, 40), (-2,)),
        case("number", (2, 2, 40), 3),
        case("all-wanted", (2, 2, 40), 2**31 - 1, 0.9),
        case("no-boxes", (1, 2, 0)),
        case("one-box", (3, 1, 1)),
        case("high-limit", (1, 2, 30), least=2.0),
        case("large", (1, 4, 700), 1000),
    ]
)


@pytest.mark.parametrize(("case", "mode"), SUITE.parameters())
def test_non_max_suppression(case: Case, mode: Mode) -> None:
    SUITE.check(case, mode)
