from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import rten_aot
from rten_aot.runtime.errors import InputError
from tests.support.cases import Array, Case, Mode, Suite, run_case

NAN, INF = np.nan, np.inf
INT_MIN, INT_MAX = -(2**31), 2**31 - 1

Function = Callable[..., Any]


def rng(*shape: int, dtype: str = "float32") -> Array:
    generator = np.random.default_rng(sum(shape))
    if dtype == "float32":
        return generator.normal(size=shape).astype("float32")
    info = np.iinfo(dtype)
    return generator.integers(info.min, info.max, shape, dtype, endpoint=True)


REDUCTIONS: dict[str, Function] = {
    "ReduceL2": lambda x, **kw: np.sqrt(np.sum(x * x, **kw)),
    "ReduceMax": np.max,
    "ReduceMean": np.mean,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceSum": np.sum,
    "ReduceSumSquare": lambda x, **kw: np.sum(x * x, **kw),
}
IDENTITIES = {
    "ReduceL2": 0.0,
    "ReduceMax": -INF,
    "ReduceMean": NAN,
    "ReduceMin": INF,
    "ReduceProd": 1.0,
    "ReduceSum": 0.0,
    "ReduceSumSquare": 0.0,
}


def reduction(
    label: str,
    op: str,
    x: Array,
    axes: Sequence[int] | None,
    *,
    keep_dims: bool = True,
    expected: Function | list[Array] | None = None,
    **options: Any,
) -> Case:
    """A case whose axes are an attribute; duplicates and negative ones are resolved for NumPy."""
    over = tuple({a % x.ndim for a in axes}) if axes else tuple(range(x.ndim))
    dtype = x.dtype

    def default(v: Array) -> Array:
        wide = v if v.dtype.kind == "f" else v.astype("int64")
        result = np.asarray(REDUCTIONS[op](wide, axis=over, keepdims=keep_dims))
        return result if dtype == np.float32 else result.astype(dtype)

    attrs: dict[str, Any] = {"keepdims": int(keep_dims)}
    if axes is not None:
        attrs["axes"] = list(axes)
    options.setdefault("modes", ("static", "dynamic"))
    return Case(f"{op.lower()}-{label}", op, [x], expected or default, attrs, **options)


def by_input(op: str, label: str, x: Array, axes: list[int], over: tuple[int, ...]) -> Case:
    """A case whose axes are an input."""
    return Case(
        f"{op.lower()}-input-{label}",
        op,
        [x, np.array(axes, "int64")],
        lambda v, _: REDUCTIONS[op](v, axis=over, keepdims=False),
        {"keepdims": 0},
        constant=(1,),
        tolerance="approximate",
    )


def position(op: str, label: str, x: Array, axis: int, *, keep_dims: bool = True) -> Case:
    function = np.argmax if op == "ArgMax" else np.argmin
    return Case(
        f"{op.lower()}-{label}",
        op,
        [x],
        lambda v: function(v, axis, keepdims=keep_dims).astype("int32"),
        {"axis": axis, "keepdims": int(keep_dims)},
    )


TIES = np.array([[1, 3, 3, 1], [NAN, 2, NAN, 5], [0, NAN, -1, 7], [INF, INF, 0, -INF]], "float32")

CASES = [
    *[
        reduction(label, op, x, axes, keep_dims=keep, tolerance="approximate")
        for op in REDUCTIONS
        for label, x, axes, keep in (
            ("last", rng(3, 5, 33), [2], True),
            ("last-drop", rng(3, 5, 33), [-1], False),
            ("first", rng(7, 17), [0], True),
            ("middle", rng(2, 9, 31), [1], False),
            ("outer", rng(2, 3, 4, 5), [0, 2], True),
            ("spatial", rng(2, 19, 7, 7), [2, 3], False),
            ("all", rng(3, 4, 5), None, True),
            ("all-drop", rng(3, 4, 5), None, False),
            ("twice", rng(3, 4), [1, -1], True),
            ("scalar", np.array(-2.5, "float32"), None, False),
            ("kept-empty", rng(0, 3), [1], True),
        )
    ],
    *[
        reduction(
            label,
            op,
            np.zeros(shape, "float32"),
            [1],
            expected=[np.full((shape[0], 1, *shape[2:]), IDENTITIES[op], "float32")],
        )
        for op in REDUCTIONS
        for label, shape in (("nothing", (3, 0)), ("nothing-inside", (2, 0, 5)))
    ],
    *[
        reduction(f"{dtype}", op, rng(3, 40, dtype=dtype), [1])
        for op in ("ReduceMax", "ReduceMin")
        for dtype in ("int32", "int8", "uint8")
    ],
    *[
        reduction(f"int-{label}", op, rng(5, 40, dtype="int32"), axes)
        for op in ("ReduceSum", "ReduceProd", "ReduceSumSquare", "ReduceMax", "ReduceMin")
        for label, axes in (("rows", [1]), ("columns", [0]), ("all", None))
    ],
    *[
        reduction("nan", op, np.array([[2, NAN, 1], [NAN, 1, 3], [-INF, INF, 0]], "float32"), [1])
        for op in ("ReduceMax", "ReduceMin")
    ],
    *[
        reduction("nan-columns", op, np.array([[2, NAN, 1], [NAN, 1, 3]], "float32"), [0])
        for op in ("ReduceMax", "ReduceMin")
    ],
    reduction("long", "ReduceSum", rng(2, 100_000), [1], tolerance="approximate"),
    reduction("one", "ReduceMean", rng(1, 1, 1), [0, 2], tolerance="close"),
    by_input("ReduceSum", "one", rng(3, 4, 5), [1], (1,)),
    by_input("ReduceSum", "negative", rng(3, 4, 5), [-1, 0], (0, 2)),
    by_input("ReduceSum", "none", rng(3, 4, 5), [], (0, 1, 2)),
    by_input("ReduceMean", "two", rng(3, 4, 5), [1, 2], (1, 2)),
    by_input("ReduceMax", "one", rng(3, 4, 5), [0], (0,)),
    reduction("folded", "ReduceProd", np.array([3, 5, 7], "int32"), [0], modes=("folded",)),
    reduction("folded-nothing", "ReduceMax", np.zeros((0, 2), "float32"), [0], modes=("folded",),
              expected=[np.full((1, 2), -INF, "float32")]),
    *[
        case
        for op in ("ArgMax", "ArgMin")
        for case in (
            position(op, "last", rng(3, 33), 1),
            position(op, "first", rng(9, 17), 0, keep_dims=False),
            position(op, "middle", rng(2, 40, 3), -2),
            position(op, "vector", rng(100), 0, keep_dims=False),
            position(op, "int", rng(3, 33, dtype="int32") // 2**28, 1),
            position(op, "ties-and-nan", TIES, 1),
            position(op, "nothing-outside", np.zeros((0, 3), "float32"), 1),
        )
    ],
    *[
        Case(
            f"cumsum-{label}-{axis}",
            "CumSum",
            [x, np.array(axis, "int32")],
            lambda v, a: np.cumsum(v, int(a)).astype(v.dtype) if v.dtype.kind == "f"
            else np.cumsum(v, int(a), dtype="int32"),
            constant=(1,),
            tolerance="approximate",
            modes=("static", "dynamic", "folded"),
        )
        for label, x in (("float", rng(3, 4, 33)), ("int", rng(3, 4, 5, dtype="int32")))
        for axis in (0, 1, -1)
    ],
    Case("cumsum-empty", "CumSum", [np.zeros((2, 0), "float32"), np.array(1)], lambda v, _: v,
         constant=(1,)),
]  # fmt: skip
SUITE = Suite(CASES)


@pytest.mark.parametrize(("case", "mode"), SUITE.parameters())
def test_reduce(case: Case, mode: Mode) -> None:
    SUITE.check(case, mode)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_the_extreme_of_nothing_is_an_error(op: str) -> None:
    case = Case("none", op, [np.zeros((2, 0), "float32")], [], {"axis": 1})
    message = f'"none" \\({op}\\): axis 1 is empty'
    with pytest.raises(rten_aot.ShapeError, match=message):
        run_case(case, "folded")
    with pytest.raises(InputError, match=message):
        run_case(case, "dynamic")


def test_an_axis_that_does_not_exist_is_refused() -> None:
    case = Case("axes", "ReduceSum", [np.zeros((2, 3), "float32")], [], {"axes": [2]})
    with pytest.raises(rten_aot.ShapeError, match='attribute "axes": value 2 is out of range'):
        run_case(case)


def test_axes_must_be_known() -> None:
    case = Case("late", "ReduceSum", [np.zeros((2, 3), "float32"), np.array([1])], [])
    with pytest.raises(rten_aot.UnsupportedOpError, match="axes must be known at compile time"):
        run_case(case)
