"""Einsum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rten_aot
from tests.support.cases import Case, Mode, Suite, run_case

Array = np.ndarray[Any, Any]


def einsum(equation: str, *shapes: tuple[int, ...], dtype: str = "float32", id: str = "") -> Case:
    rng = np.random.default_rng(len(equation))
    xs = [rng.integers(-9, 9, shape).astype(dtype) for shape in shapes]
    if dtype == "float32":
        xs = [x / np.float32(8) for x in xs]
    plain = equation.replace(" ", "")

    def expected(*xs: Array) -> Array:
        return np.asarray(np.einsum(plain, *xs))

    return Case(
        f"einsum-{id or plain}-{'-'.join(map(str, shapes))}-{dtype}".replace(" ", ""),
        "Einsum",
        xs,
        expected,
        {"equation": equation},
        tolerance="approximate" if dtype == "float32" else "exact",
        modes=["static", "dynamic", "constant", "folded"],
    )


SUITE = Suite(
    [
        einsum("ij,jk->ik", (3, 4), (4, 5)),
        einsum("ij,jk", (3, 4), (4, 5)),
        einsum("ij , kj -> ik", (3, 4), (5, 4)),
        einsum("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
        einsum("bhqd,bhkd->bhqk", (2, 3, 4, 8), (2, 3, 5, 8)),
        einsum("bhwc,hkc->bhwk", (2, 3, 4, 5), (3, 6, 5)),
        einsum("ij->ji", (3, 4)),
        einsum("ij->", (3, 4)),
        einsum("ij->i", (3, 4)),
        einsum("ba->a", (2, 1)),
        einsum("ii->i", (4, 4)),
        einsum("ii", (4, 4)),
        einsum("iji->j", (3, 2, 3)),
        einsum("ii,j,i->", (3, 3), (4,), (3,)),
        einsum("i,i->", (7,), (7,)),
        einsum("i,j->ij", (3,), (4,)),
        einsum("i,i->i", (33,), (33,)),
        einsum("i,i->i", (1,), (1,)),
        einsum("ij,ij->i", (1, 3), (2, 1)),
        einsum("ij,i->ij", (3, 4), (3,)),
        einsum("aA,Ab->bA", (2, 3), (3, 4)),
        einsum("ij,j->i", (2, 3), (1,)),
        einsum("ij,j->i", (2, 1), (3,)),
        einsum("ij,j->i", (2, 1), (1,)),
        einsum("ij,j->i", (2, 1), (0,)),
        einsum("ij,jk->ik", (2, 0), (0, 3)),
        einsum("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
        einsum("...ij,...jk->...ik", (6, 2, 3, 4), (4, 5)),
        einsum("...i,...i->...", (2, 1, 5), (3, 5)),
        einsum("i...->...", (3, 2, 4)),
        einsum("...ij", (2, 3, 4)),
        einsum("b...,b->...b", (3, 2, 4), (3,)),
        einsum("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
        einsum("i,ij,j->", (3,), (3, 4), (4,)),
        einsum(",->", (), ()),
        einsum("ijij->ij", (2, 3, 2, 3)),
        einsum("...ii->...i", (4, 3, 3)),
        einsum("...ii->...", (4, 3, 3)),
        einsum("ba", (2, 3)),
        einsum("bA", (2, 3)),
        einsum("b,a", (2,), (3,)),
        einsum("...a,...a", (2, 3), (2, 3)),
        einsum("a...,b...->ab...", (2, 4), (3, 4)),
        einsum("...,...->...", (2, 1), (1, 3)),
        einsum("...,->...", (2, 3), ()),
        einsum("ii,ij->j", (3, 3), (3, 2)),
        einsum("i,i,i->", (4,), (4,), (4,)),
        einsum("abc,cd,def->abef", (2, 1, 3), (3, 4), (4, 2, 2)),
        einsum("a,a->a", (1,), (5,)),
        einsum("ij->j", (0, 3)),
        einsum("i->", (0,)),
        einsum("iij->j", (2, 2, 3), dtype="int32"),
        einsum("...ij,jk", (2, 3, 4), (4, 2), dtype="int32"),
        einsum("ij,jk->ik", (3, 4), (4, 5), dtype="int32"),
        einsum("ij->j", (3, 4), dtype="int32"),
    ]
)


WRAPPING = Case(
    "wraps",
    "Einsum",
    [np.int32([[2**30, 5], [7, 2**31 - 1]]), np.int32([4, 3])],
    lambda a, b: (a.astype(np.int64) @ b).astype(np.int32),
    {"equation": "ij,j->i"},
)


@pytest.mark.parametrize("mode", ["static", "dynamic", "constant", "folded"])
def test_integers_wrap(mode: Mode) -> None:
    np.testing.assert_array_equal(run_case(WRAPPING, mode)[0], WRAPPING.want()[0])


@pytest.mark.parametrize(("case", "mode"), SUITE.parameters())
def test_einsum(case: Case, mode: Mode) -> None:
    SUITE.check(case, mode)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->il", [(2, 3), (3, 4)]),
        ("ij->ii", [(2, 2)]),
        ("ij,jk", [(2, 3)]),
        ("ijk", [(2, 3)]),
        ("i1->i", [(2, 3)]),
        ("i->j->k", [(2,)]),
        ("i....->i", [(2, 3)]),
    ],
)
def test_wrong_equations_are_refused(equation: str, shapes: list[tuple[int, ...]]) -> None:
    xs = [np.zeros(shape, np.float32) for shape in shapes]
    case = Case("wrong", "Einsum", xs, [], {"equation": equation})
    with pytest.raises(rten_aot.UnsupportedOpError, match='attribute "equation"'):
        run_case(case)


def test_sizes_that_contradict_each_other_are_refused() -> None:
    xs = [np.zeros((2, 3), np.float32), np.zeros((4, 5), np.float32)]
    with pytest.raises(rten_aot.ShapeError, match="sizes 3 and 4 cannot be broadcast"):
        run_case(Case("wrong", "Einsum", xs, [], {"equation": "ij,jk->ik"}))
