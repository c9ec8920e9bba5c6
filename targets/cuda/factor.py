"""How a block of threads brings a factor of a matrix product to shared memory, tile by tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from tvm import tirx
from tvm.ir import Expr, TensorLoad

from rten_aot.targets.common.access import access
from rten_aot.targets.common.expr import constant_int, walk
from rten_aot.targets.common.nests import product, split_index
from rten_aot.targets.common.stages import Axis
from rten_aot.targets.cuda.lanes import LANES, VECTORS, is_wide, plain_load, wide_load
from rten_aot.targets.cuda.text import Writer
from rten_aot.targets.cuda.words import c_type

Way: TypeAlias = Literal["terms", "places", "single"]
"""A thread loads four elements along the terms of the sums, four along the rows or columns, or one
at a time, neighbouring threads along the rows or columns."""


def name_axes(writer: Writer, axes: Sequence[Axis], number: str) -> None:
    """Append the indices along the axes of the point with this number, the last axis fastest."""
    if not axes:
        return
    loops = writer.loops
    flat = loops.var("flat", product(loops, axes))
    writer.name(flat, number)
    found = split_index(loops, flat, axes)
    for axis, text in zip(axes, writer.values([found[a.var] for a in axes]), strict=True):
        name = writer.fresh("i")
        writer.add(f"const {writer.index} {name} = {text};")
        writer.name(axis.var, name)


class Factor:
    """One factor: ``value`` in terms of ``outer`` axes, its ``places`` and the ``terms``.

    ``extent`` places and ``depth`` terms make a tile; it is in ``shared[buffer][term][place]``.
    """

    def __init__(
        self,
        writer: Writer,
        name: str,
        value: Expr,
        outer: Sequence[Axis],
        places: Sequence[Axis],
        terms: Sequence[Axis],
    ) -> None:
        self._writer = writer
        self._name = name
        self._value = value
        self._outer = outer
        self._places = places
        self._terms = terms
        self.way = self._choose()

    def _choose(self) -> Way:
        found = plain_load(self._value)
        if found is None or str(found[1].source.ty.dtype) not in ("float32", "int32"):
            return "single"
        load = found[1]
        for axes, way in ((self._terms, "terms"), (self._places, "places")):
            rest = self._places if way == "terms" else self._terms
            order = [*self._outer, *rest, *axes]
            if not axes or not is_wide(
                access(load.source, list(load.indices), order, self._writer.loops), order
            ):
                continue
            if axes[-1].var in {v for v in walk(found[:1]) if isinstance(v, tirx.Var)}:
                continue
            if _is_whole(load, axes[-1]):
                return "terms" if way == "terms" else "places"
        return "single"

    def declare(self, extent: int, depth: int, threads: int, padding: int) -> None:
        """Append what lies before the loop over terms: shared memory, where a thread is.

        ``padding`` is what rows of shared memory are longer than the tile.
        """
        self._extent, self._depth = extent, depth
        w, name = self._writer, self._name
        self._width = 1 if self.way == "single" else LANES
        lanes_of_terms = depth // LANES if self.way == "terms" else 1
        lanes_of_places = 1 if self.way == "terms" else extent // self._width
        if self.way == "terms":
            self._step = threads // lanes_of_terms
            self._passes = max(1, extent // self._step)
            w.add(
                f"const int {name}_k = tid % {lanes_of_terms} * {LANES};",
                f"const int {name}_x = tid / {lanes_of_terms};",
            )
        else:
            self._step = threads // lanes_of_places
            self._passes = max(1, depth // self._step)
            w.add(
                f"const int {name}_x = tid % {lanes_of_places} * {self._width};",
                f"const int {name}_k = tid / {lanes_of_places};",
            )
        ctype = c_type(str(self._value.ty.dtype))
        w.add(
            f"__shared__ __align__(16) {ctype} {name}s[2][{depth}][{extent + padding}];",
            f"{ctype} {name}r[{self._passes * self._width}];",
        )
        (limit,) = w.values([product(w.loops, self._places)])
        self._at: list[dict[tirx.Var, str]] = []
        for index in range(self._passes if self.way == "terms" else 1):
            place = f"{name}_p{index}"
            shift = f" + {index * self._step}" if index else ""
            w.add(
                f"const {w.index} {place} = {name}0 + {name}_x{shift};",
                f"const bool {place}_in = {place} < {limit};",
            )
            name_axes(w, self._places, place)
            self._at.append({a.var: w.variable(a.var) for a in self._places})

    def load(self, first: str, end: str) -> None:
        """Append the loads of the tile whose first term is number ``first``, into registers."""
        w, name = self._writer, self._name
        if self.way == "terms":
            w.add("{")
            self._decode_terms(f"{first} + {name}_k", end)
            for index in range(self._passes):
                self._load(index, index)
            w.add("}")
            return
        for index in range(self._passes):
            w.add("{")
            shift = f" + {index * self._step}" if index else ""
            self._decode_terms(f"{first} + {name}_k{shift}", end)
            self._load(index, 0)
            w.add("}")

    def _decode_terms(self, number: str, end: str) -> None:
        w = self._writer
        term = w.fresh("k")
        w.add(f"const {w.index} {term} = {number};", f"const bool {term}_in = {term} < {end};")
        self._in = f"{term}_in"
        name_axes(w, self._terms, term)

    def _load(self, index: int, place: int) -> None:
        """One access of a thread, at the place that was decoded first."""
        w, name = self._writer, self._name
        for var, text in self._at[place].items():
            w.name(var, text)
        guard = f"{name}_p{place}_in && {self._in}"
        inside = tirx.Var("inside", "bool")
        w.name(inside, f"({guard})")
        if self.way == "single":
            zero = tirx.const(0, str(self._value.ty.dtype))
            (text,) = w.values([tirx.if_then_else(inside, self._value, zero)])
            w.add(f"{name}r[{index}] = {text};")
            return
        found = plain_load(self._value)
        assert found is not None
        condition, load = found
        vector = wide_load(w, load, tirx.And(inside, condition))
        for lane, letter in enumerate("xyzw"):
            w.add(f"{name}r[{index * LANES + lane}] = {vector}.{letter};")

    def store(self, half: str) -> None:
        """Append the stores of the registers to one half of the shared memory."""
        w, name = self._writer, self._name
        for index in range(self._passes):
            shift = f" + {index * self._step}" if index else ""
            if self.way == "terms":
                for lane in range(LANES):
                    w.add(
                        f"{name}s[{half}][{name}_k + {lane}][{name}_x{shift}] = "
                        f"{name}r[{index * LANES + lane}];"
                    )
            elif self.way == "places":
                parts = ", ".join(f"{name}r[{index * LANES + lane}]" for lane in range(LANES))
                vector = VECTORS[str(self._value.ty.dtype)]
                w.add(
                    f"*({vector} *)&{name}s[{half}][{name}_k{shift}][{name}_x] = "
                    f"make_{vector}({parts});"
                )
            else:
                w.add(f"{name}s[{half}][{name}_k{shift}][{name}_x] = {name}r[{index}];")


def _is_whole(load: TensorLoad, axis: Axis) -> bool:
    """Whether four elements from a multiple of four on along the axis exist in the buffer."""
    extent = constant_int(axis.extent)
    if extent is None:
        return False
    if extent % LANES == 0:
        return True
    row = constant_int(load.source.ty.shape[-1])
    index = load.indices[-1]
    alone = isinstance(index, tirx.Var) and index.same_as(axis.var)
    return alone and row is not None and row % LANES == 0 and row >= extent
