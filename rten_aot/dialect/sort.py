"""Selection of the largest or smallest elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import te, tirx
from tvm.tirx import Buffer, Expr, IfThenElse, Stmt

from rten_aot.dialect.direct import direct
from rten_aot.dialect.loops import Cell, flat_load, flat_store, int64, loop, parallel, product, seq
from rten_aot.dialect.registry import Pattern, define


@define("top_k", pattern=Pattern.OPAQUE)
def top_k(x: te.Tensor, k: list[Expr], *, axis: int, largest: bool) -> list[te.Tensor]:
    """The ``k`` first elements along ``axis`` after sorting, and their int32 indices.

    Equal elements keep their order; NaN counts as greater than all numbers. ``k`` must not exceed
    the size of the axis.
    """
    outer, inner = product(x.shape[:axis]), product(x.shape[axis + 1 :])
    size = x.shape[axis]
    shape = [*x.shape[:axis], k[0], *x.shape[axis + 1 :]]

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        def one_row(row: Expr) -> Stmt:
            o, s = tirx.floordiv(row, inner), tirx.floormod(row, inner)
            heap = _Heap(outs[0], outs[1], o * k[0] * inner + s, inner, largest)
            return seq(
                *heap.declare,
                heap.fill(ins[0], o * size * inner + s, k[0], size),
                heap.sort(k[0]),
            )

        rows = parallel(outer * inner, outer * inner * size, one_row)
        return IfThenElse(k[0] > int64(0), rows, None)

    return direct([shape, shape], [x], body, [str(x.dtype), "int32"], "top_k")


@dataclass(frozen=True)
class _Element:
    value: Expr
    index: Expr


class _Heap:
    """A heap kept in the output itself, its root the element that sorts last."""

    def __init__(
        self, values: Buffer, indices: Buffer, base: Expr, stride: Expr, largest: bool
    ) -> None:
        self._values = values
        self._indices = indices
        self._base = base
        self._stride = stride
        self._largest = largest
        self._position = Cell("position")
        self._child = Cell("child")
        self._value = Cell("value", str(values.dtype))
        self._index = Cell("index", "int32")
        cells = (self._position, self._child, self._value, self._index)
        self.declare = [cell.declare for cell in cells]

    def fill(self, x: Buffer, first: Expr, k: Expr, size: Expr) -> Stmt:
        """Keep the best ``k`` of the ``size`` elements at ``first``."""

        def element(i: Expr) -> _Element:
            return _Element(flat_load(x, first + i * self._stride), tirx.Cast("int32", i))

        def challenge(i: Expr) -> Stmt:
            new = element(i + k)
            # An equal element that comes later never displaces one that is in.
            replace = seq(self._take(new), self._sift_down(int64(0), k))
            return IfThenElse(self._before(new.value, self._at(int64(0)).value), replace, None)

        half = tirx.floordiv(k, int64(2))

        def order(i: Expr) -> Stmt:
            root = half - int64(1) - i
            return seq(self._take(self._at(root)), self._sift_down(root, k))

        return seq(
            loop(k, lambda i: self._put(i, element(i))),
            loop(half, order),
            loop(size - k, challenge),
        )

    def sort(self, k: Expr) -> Stmt:
        """Turn the heap of ``k`` elements into a sorted row."""

        def step(i: Expr) -> Stmt:
            last = k - int64(1) - i
            return seq(
                self._take(self._at(last)),
                self._put(last, self._at(int64(0))),
                self._sift_down(int64(0), last),
            )

        return loop(k - int64(1), step)

    def _at(self, position: Expr) -> _Element:
        offset = self._base + position * self._stride
        return _Element(flat_load(self._values, offset), flat_load(self._indices, offset))

    def _put(self, position: Expr, element: _Element) -> Stmt:
        offset = self._base + position * self._stride
        return seq(
            flat_store(self._values, offset, element.value),
            flat_store(self._indices, offset, element.index),
        )

    def _take(self, element: _Element) -> Stmt:
        return seq(self._value.set(element.value), self._index.set(element.index))

    def _before(self, a: Expr, b: Expr) -> Expr:
        """Whether ``a`` sorts strictly before ``b`` by value."""
        if not self._largest:
            a, b = b, a
        if str(self._values.dtype) != "float32":
            return a > b
        return tirx.Or(a > b, tirx.And(tirx.isnan(a), tirx.Not(tirx.isnan(b))))

    def _after(self, a: _Element, b: _Element) -> Expr:
        """Whether ``a`` sorts after ``b``; of equals, the one with the higher index does."""
        # Not "neither before the other": TVM takes the opposite of > for <=, which NaN is not.
        equal = tirx.EQ(a.value, b.value)
        if str(self._values.dtype) == "float32":
            equal = tirx.Or(equal, tirx.And(tirx.isnan(a.value), tirx.isnan(b.value)))
        return tirx.Or(self._before(b.value, a.value), tirx.And(equal, a.index > b.index))

    def _sift_down(self, root: Expr, size: Expr) -> Stmt:
        """Place the element in hand below ``root``, in a heap of ``size`` elements."""
        position, child = self._position, self._child
        held = _Element(self._value.get(), self._index.get())
        right = child.get() + int64(1)
        pick = IfThenElse(
            right < size,
            IfThenElse(self._after(self._at(right), self._at(child.get())), child.set(right), None),
            None,
        )
        first_child = child.set(position.get() * int64(2) + int64(1))
        rise = seq(
            self._put(position.get(), self._at(child.get())),
            position.set(child.get()),
            first_child,
        )
        # A child past the end stops the descent.
        settle = IfThenElse(self._after(self._at(child.get()), held), rise, child.set(size))
        return seq(
            position.set(root),
            first_child,
            tirx.While(child.get() < size, seq(pick, settle)),
            self._put(position.get(), held),
        )
