"""What follows a reduction or anchor element by element, computed on its result in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tvm
from tvm import tirx
from tvm.ir import Expr, TensorLoad
from tvm.tirx import Stmt

from rten_aot.targets.common.expr import Buffer, constant_int, i64, loads, same, substitute
from rten_aot.targets.common.loops import Loops
from rten_aot.targets.common.sharing import share
from rten_aot.targets.common.stages import Kernel, Stage
from rten_aot.targets.common.values import Values


class Epilogue:
    """The stages that depend on one element of ``anchor`` each, and where their results go.

    ``stored`` are the stages whose results leave the epilogue: outputs of the function and what
    later stages read. ``absorbed`` are all stages that need no loops of their own any more.
    """

    def __init__(
        self,
        kernel: Kernel,
        anchor: Stage,
        values: Values,
        loops: Loops,
        storage: Callable[[Stage], Buffer],
    ) -> None:
        """``storage`` allocates the buffer of a stored stage when it is first needed."""
        self._values = values
        self._loops = loops
        self._points = [tirx.Var(f"p{d}", "int64") for d in range(len(anchor.spatial))]
        self._places: dict[Buffer, list[Expr]] = {anchor.buffer: list(self._points)}
        self.anchor = anchor
        self.absorbed: list[Stage] = [anchor]
        self._absorb(kernel)
        outputs = kernel.outputs
        self.stored = [
            s
            for s in self.absorbed
            if s.buffer in outputs
            or any(c not in self.absorbed for c in kernel.consumers(s.buffer))
        ]
        self._allocate = storage
        self._allocated: dict[Buffer, Buffer] = {}

    def emit(self, acc: Expr, indices: Sequence[Expr | int]) -> list[Stmt]:
        """Statements that store all that depends on element ``indices`` of the anchor.

        ``acc`` is that element's final value. They may stand in a vectorised loop that a ``Loops``
        object makes.
        """
        values, places = self.results(acc, indices)
        binds, values = share(values)
        stores = [
            tirx.BufferStore(buffer, value, list(place))
            for value, (buffer, place) in zip(values, places, strict=True)
        ]
        return [*binds, *stores]

    def results(
        self, acc: Expr, indices: Sequence[Expr | int]
    ) -> tuple[list[Expr], list[tuple[Buffer, list[Expr]]]]:
        """What ``emit`` stores (nothing shared yet), and where: each buffer with its indices."""
        where = dict(zip(self._points, [i64(i) for i in indices], strict=True))
        known: dict[Buffer, Expr] = {self.anchor.buffer: acc}
        places: dict[Buffer, list[Expr]] = {}
        for stage in self.absorbed:
            place = [self._loops.simplify(substitute(i, where)) for i in self._places[stage.buffer]]
            places[stage.buffer] = place
            if stage is not self.anchor:
                axes = dict(zip([a.var for a in stage.spatial], place, strict=True))
                known[stage.buffer] = self._values.expr(stage.value, axes, known)
        return (
            [known[s.buffer] for s in self.stored],
            [(self._storage(s), places[s.buffer]) for s in self.stored],
        )

    def finish(self) -> None:
        """Tell ``values`` that the stored results can be loaded: the anchor's loops are made."""
        for stage in self.stored:
            self._values.put_in_memory(stage.buffer, self._storage(stage))

    def places(self) -> list[tuple[Buffer, Stage]]:
        """The buffers that ``emit`` stores to, each with the stage whose result it takes."""
        return [(self._storage(s), s) for s in self.stored]

    def _storage(self, stage: Stage) -> Buffer:
        if stage.buffer not in self._allocated:
            self._allocated[stage.buffer] = self._allocate(stage)
        return self._allocated[stage.buffer]

    def _absorb(self, kernel: Kernel) -> None:
        depends: set[Buffer] = {self.anchor.buffer}
        after = kernel.stages[kernel.stages.index(self.anchor) + 1 :]
        for stage in after:
            if not any(b in depends for b in stage.reads):
                continue
            depends.add(stage.buffer)
            place = self._place(kernel, stage, depends)
            if place is not None:
                self._places[stage.buffer] = place
                self.absorbed.append(stage)

    def _place(self, kernel: Kernel, stage: Stage, depends: set[Buffer]) -> list[Expr] | None:
        """Which element of ``stage`` an element of the anchor gives; None if not exactly one."""
        if stage.reducer is not None:
            return None
        place: list[Expr] | None = None
        for load in loads(stage.value):
            source = load.source
            if source not in depends:
                if not self._values.ready(source):
                    return None
                continue
            if source not in self._places:
                return None
            found = self._solve(stage, load)
            if found is None:
                return None
            if place is not None and not all(same(a, b) for a, b in zip(place, found, strict=True)):
                return None
            place = found
        return place

    def _solve(self, stage: Stage, load: TensorLoad) -> list[Expr] | None:
        targets = self._places[load.source]
        return _by_permutation(stage, load, targets) or self._by_inversion(stage, load, targets)

    def _by_inversion(
        self, stage: Stage, load: TensorLoad, targets: Sequence[Expr]
    ) -> list[Expr] | None:
        """Reshapes: an index map that TVM can invert, static sizes."""
        axes = [a.var for a in stage.spatial]
        ranges = [tvm.ir.Range(i64(0), a.extent) for a in stage.spatial]
        shape = list(load.source.ty.shape)
        if any(constant_int(e) is None for e in [*shape, *(a.extent for a in stage.spatial)]):
            return None
        if _product(shape) != _product([a.extent for a in stage.spatial]):
            return None
        try:
            inverse = tirx.IndexMap(axes, list(load.indices), None).inverse(
                [tvm.ir.Range(r.min, r.extent) for r in ranges]
            )
        except tvm.error.InternalError:  # not invertible
            return None
        mapping = dict(zip(inverse.initial_indices, targets, strict=True))
        return [self._loops.simplify(substitute(i, mapping)) for i in inverse.final_indices]


def _by_permutation(stage: Stage, load: TensorLoad, targets: Sequence[Expr]) -> list[Expr] | None:
    """Loads whose indices are distinct axes, up to axes of extent 1."""
    extents = {a.var: a.extent for a in stage.spatial}
    found: dict[tirx.Var, Expr] = {}
    for index, target, extent in zip(load.indices, targets, load.source.ty.shape, strict=True):
        if isinstance(index, tirx.Var) and index in extents and index not in found:
            if not same(extents[index], extent):
                return None
            found[index] = target
        elif constant_int(extent) != 1:
            return None
    place: list[Expr] = []
    for axis in stage.spatial:
        if axis.var in found:
            place.append(found[axis.var])
        elif constant_int(axis.extent) == 1:
            place.append(i64(0))
        else:
            return None
    return place


def _product(extents: Sequence[Expr]) -> int:
    result = 1
    for extent in extents:
        result *= constant_int(extent) or 0
    return result
