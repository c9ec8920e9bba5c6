from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import rten_aot
from rten_aot.runtime.errors import InputError, ModelRunError
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
    "ReduceL2": lambda x, **kw: np.sqrt(np.sum(x.astype("float64") ** 2, **kw)),
    "ReduceMax": np.max,
    "ReduceMean": np.mean,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceSum": np.sum,
    "ReduceSumSquare": lambda x, **kw: np.sum(x * x, **kw),
}
INTEGERS = ("int32", "int8", "uint8")
IDENTITIES = {
    "ReduceL2": 0.0,
    "ReduceMax": -INF,
    "ReduceMean": NAN,
    "ReduceMin": INF,
    "ReduceProd": 1.0,
    "ReduceSum": 0.0,
    "ReduceSumSquare": 0.0,
}


def integer_identity(op: str, dtype: str) -> int:
    info = np.iinfo(dtype)
    return {"ReduceMax": info.min, "ReduceMin": info.max, "ReduceProd": 1}.get(op, 0)


def reduced(op: str, x: Array, over: tuple[int, ...], dtype: Any, *, keep_dims: bool) -> Array:
    """NumPy's reduction of ``x``, in int64 and float64, as a result of the type ``dtype``."""
    wide = x if x.dtype.kind == "f" else x.astype("int64")
    result = np.asarray(REDUCTIONS[op](wide, axis=over, keepdims=keep_dims))
    if dtype == np.float32:
        return result
    # Means and roots are truncated; what does not fit the type wraps.
    return result.astype("int64").astype(dtype)


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
        return reduced(op, v, over, dtype, keep_dims=keep_dims)

    attrs: dict[str, Any] = {"keepdims": int(keep_dims)}
    if axes is not None:
        attrs["axes"] = list(axes)
    options.setdefault("modes", ("static", "dynamic"))
    return Case(f"{op.lower()}-{label}", op, [x], expected or default, attrs, **options)


def by_input(
    op: str, label: str, x: Array, axes: list[int], *, keep_dims: bool = False, late: bool = False
) -> Case:
    """A case whose axes are an input: in the file, or ``late``, with the data."""
    over = tuple({a % x.ndim for a in axes}) if axes else tuple(range(x.ndim))
    dtype = x.dtype
    return Case(
        f"{op.lower()}-{'late' if late else 'input'}-{label}-{keep_dims}",
        op,
        [x, np.array(axes, "int64")],
        lambda v, _: reduced(op, v, over, dtype, keep_dims=keep_dims),
        {"keepdims": int(keep_dims)},
        constant=() if late else (1,),
        # Without keepdims the rank of the result follows from the number of axes.
        fixed=() if keep_dims else [(1, 0)],
        tolerance="approximate" if dtype == np.float32 else "exact",
        modes=("static", "dynamic"),
    )


def cumsum(label: str, x: Array, axis: int, *, late: bool = False, shape: Any = ()) -> Case:
    return Case(
        f"cumsum-{label}-{axis}{'-late' if late else ''}",
        "CumSum",
        [x, np.full(shape, axis, "int32")],
        lambda v, a: np.cumsum(v, int(a.flat[0]), dtype=v.dtype),
        constant=() if late else (1,),
        tolerance="approximate" if x.dtype == np.float32 else "exact",
        modes=("static", "dynamic") if late else ("static", "dynamic", "folded"),
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
        reduction(
            f"{dtype}-nothing-{shape}",
            op,
            np.zeros(shape, dtype),
            [1],
            expected=[np.full((2, 1, *shape[2:]), integer_identity(op, dtype), dtype)],
        )
        for op in REDUCTIONS
        for dtype in INTEGERS
        for shape in ((2, 0), (2, 0, 3), (2, 0, 40))
    ],
    *[
        reduction(f"{dtype}-{label}", op, rng(5, 40, dtype=dtype), axes)
        for op in REDUCTIONS
        for dtype in INTEGERS
        for label, axes in (("rows", [1]), ("columns", [0]), ("all", None))
    ],
    *[
        reduction(f"nan-{label}", op, np.array(values, "float32"), [-1], tolerance="close")
        for op in REDUCTIONS
        for label, values in (
            ("first", [NAN, 1]),
            ("middle", [2, NAN, 1]),
            ("last", [[1, 2, NAN]] * 9),
            ("infinite", [[INF, -INF], [1, INF], [-INF, 1]]),
        )
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
    by_input("ReduceSum", "one", rng(3, 4, 5), [1]),
    by_input("ReduceSum", "negative", rng(3, 4, 5), [-1, 0]),
    by_input("ReduceSum", "none", rng(3, 4, 5), []),
    by_input("ReduceMean", "two", rng(3, 4, 5), [1, 2]),
    by_input("ReduceMax", "one", rng(3, 4, 5), [0]),
    *[
        by_input(op, label, x, axes, keep_dims=keep, late=True)
        for op in REDUCTIONS
        for label, x, axes in (
            ("outer", rng(3, 5, 33), [-1, 0]),
            ("uint8", rng(5, 40, dtype="uint8"), [1]),
        )
        for keep in (False, True)
    ],
    *[
        by_input("ReduceSum", label, x, axes, keep_dims=keep, late=True)
        for label, x, axes in (
            ("last", rng(3, 5, 33), [2]),
            ("all", rng(3, 4, 5), [1, 0, 2]),
            ("vector", rng(40), [-1]),
            ("int32", rng(5, 40, dtype="int32"), [0]),
        )
        for keep in (False, True)
    ],
    by_input("ReduceSum", "twice", rng(3, 4), [1, -1], keep_dims=True, late=True),
    by_input("ReduceSum", "none", rng(3, 4), [], keep_dims=True, late=True),
    by_input("ReduceMax", "nan", np.array([[2, NAN, 1], [NAN, 1, 3]], "float32"), [1], late=True),
    by_input("ReduceMax", "kept-empty", rng(0, 3), [1], keep_dims=True, late=True),
    *[
        Case(
            f"{op.lower()}-late-nothing",
            op,
            [np.zeros((2, 0, 3), "float32"), np.array([1])],
            [np.full((2, 1, 3), IDENTITIES[op], "float32")],
            modes=("static", "dynamic"),
        )
        for op in REDUCTIONS
    ],
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
        position(op, f"{dtype}-{label}", x.astype(dtype), 1)
        for op in ("ArgMax", "ArgMin")
        for dtype in INTEGERS
        for label, x in (("plain", rng(3, 33, dtype="uint8")), ("ties", np.full((3, 40), 7)))
    ],
    *[
        position(op, f"{label}-infinite", np.full((2, 20), value, "float32"), axis)
        for op in ("ArgMax", "ArgMin")
        for label, value in (("plus", INF), ("minus", -INF))
        for axis in (0, 1)
        if axis == (value > 0)
    ],
    *[
        cumsum(label, x, axis, late=late)
        for label, x in (
            ("float", rng(3, 4, 33)),
            ("int", rng(3, 4, 5, dtype="int32")),
            ("int8", rng(2, 3, 40, dtype="int8")),
            ("empty", np.zeros((2, 0, 3), "float32")),
        )
        for axis in (0, 1, -1)
        for late in (False, True)
    ],
    cumsum("vector", rng(40), -1, late=True, shape=(1,)),
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


@pytest.mark.parametrize(
    ("op", "axes", "attrs", "message"),
    [
        ("ReduceSum", [2], {}, "index 2 is out of range"),
        ("ReduceSum", [0, -3], {}, "index -3 is out of range"),
        ("ReduceSum", [1, -1], {"keepdims": 0}, "axes name one axis twice"),
        ("CumSum", [2], {}, "index 2 is out of range"),
    ],
)
def test_axes_that_come_with_the_data_may_be_wrong(
    op: str, axes: list[int], attrs: dict[str, Any], message: str
) -> None:
    case = Case("late", op, [rng(2, 3), np.array(axes)], [], attrs)
    with pytest.raises(ModelRunError, match=rf'in node "late" \({op}\): {message}'):
        run_case(case)


def test_the_number_of_axes_decides_on_the_rank() -> None:
    case = Case("late", "ReduceSum", [rng(2, 3), np.array([1])], [], {"keepdims": 0})
    message = "the number of elements of axes must be known at compile time"
    with pytest.raises(rten_aot.UnsupportedOpError, match=message):
        run_case(case, "dynamic")
    case = Case("late", "ReduceSum", [rng(2, 3), np.array([1, 0, 1])], [], {"keepdims": 0})
    with pytest.raises(rten_aot.ShapeError, match="3 axes are named of a tensor of rank 2"):
        run_case(case)
