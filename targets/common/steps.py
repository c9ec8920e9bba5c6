"""Divides a kernel into steps (loop nests): which results are stored, which are computed in place.

Steps whose stages share their outermost axes run in one loop over them, so that what one step
stores is still in the cache when the next one reads it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import Stmt

from rten_aot.targets.common.context import Context
from rten_aot.targets.common.elementwise import spatial_nest, step_values
from rten_aot.targets.common.epilogue import Epilogue
from rten_aot.targets.common.expr import Buffer, constant_int, loads, same
from rten_aot.targets.common.loops import seq
from rten_aot.targets.common.nests import At, cost, is_big, nested
from rten_aot.targets.common.reduction import reduction_nest
from rten_aot.targets.common.stages import Axis, Stage

Made = TypeVar("Made")
"""What a rule of its own makes of a stage: loops, or whatever a target has in their place."""

_REPEATED_COST = 12
"""From this cost on a result that several steps need is stored rather than computed again."""
_WINDOW_COST = 8
"""The same for a result that one step needs several times."""


@dataclass(frozen=True, eq=False)
class Step:
    """One loop nest: a reduction with its epilogue, or spatial stages of the same shape."""

    stages: tuple[Stage, ...]
    storages: tuple[Buffer, ...]
    epilogue: Epilogue | None

    def emit(self, ctx: Context, prefix: Sequence[Expr], *, parallel: bool) -> Stmt:
        """The loops over all axes but the first ones, whose indices ``prefix`` gives."""
        if self.epilogue is not None:
            return reduction_nest(ctx, self.stages[0], self.epilogue, prefix, parallel=parallel)
        return spatial_nest(ctx, self.stages, self.storages, prefix, parallel=parallel)


def plan(ctx: Context, anchor: Callable[[Stage], Made | None]) -> list[Step | Made]:
    """The steps in order; afterwards everything they store counts as in memory.

    ``anchor`` gives the loops of a stage that a rule of its own computes, or None.
    """
    return _Planner(ctx, anchor).run()


class _Planner(Generic[Made]):
    def __init__(self, ctx: Context, anchor: Callable[[Stage], Made | None]) -> None:
        self._ctx = ctx
        self._kernel = ctx.kernel
        self._outputs = set(ctx.kernel.outputs)
        self._anchor = anchor

    def run(self) -> list[Step | Made]:
        steps: list[Step | Made] = []
        for stage in self._kernel.stages:
            if stage.buffer in self._ctx.done or stage.is_part:
                continue
            if stage.reducer is not None:
                steps.append(self._reduction(stage))
            elif stage.buffer in self._outputs:
                steps.append(self._spatial(self._companions(stage)))
            elif self._is_stored(stage):
                steps.append(self._spatial([stage]))
        return steps

    def _reduction(self, stage: Stage) -> Step | Made:
        loops = self._anchor(stage)
        if loops is not None:
            return loops
        epilogue = self._ctx.epilogue(stage)
        self._ctx.finish(epilogue)
        return Step((stage,), (), epilogue)

    def _spatial(self, stages: Sequence[Stage]) -> Step:
        storages = []
        for stage in stages:
            storage = self._in_place(stage)
            if storage is None:
                storage = self._ctx.storage(stage)
            self._ctx.store(stage, storage)
            storages.append(storage)
        return Step(tuple(stages), tuple(storages), None)

    def _companions(self, first: Stage) -> list[Stage]:
        """``first`` and the later outputs that the same loops can compute."""
        group = [first]
        for stage in self._kernel.stages[self._kernel.stages.index(first) + 1 :]:
            if (
                stage.reducer is None
                and stage.buffer in self._outputs
                and stage.buffer not in self._ctx.done
                and _same_shape(stage, first)
                and self._ctx.values.ready(stage.buffer)
                and all(self._reads_in_step(stage, member) for member in group)
            ):
                group.append(stage)
        return group

    def _reads_in_step(self, reader: Stage, member: Stage) -> bool:
        """Whether ``reader`` loads no element of ``member`` but that at its own indices."""
        axes = [a.var for a in reader.spatial]
        return all(
            len(load.indices) == len(axes)
            and all(i.same_as(a) for i, a in zip(load.indices, axes, strict=True))
            for load in loads(reader.value)
            if load.source.same_as(member.buffer)
        )

    # --- what is stored ------------------------------------------------------------------------

    def _is_stored(self, stage: Stage) -> bool:
        """Whether a spatial intermediate is computed once, into memory."""
        if not self._ctx.values.ready(stage.buffer):
            return False
        value = self._ctx.values.value(stage, [a.var for a in stage.spatial])
        price = cost([value])
        if price < _WINDOW_COST:
            return False
        users = self._users(stage)
        if len(users) > 1 and price >= _REPEATED_COST:
            return True
        return any(_uses_each(stage, user) for user in users)

    def _users(self, stage: Stage) -> list[Stage]:
        """The stages with loops of their own that would compute ``stage`` in place."""
        found: dict[Stage, None] = {}
        for consumer in self._kernel.consumers(stage.buffer):
            if consumer.reducer is not None or consumer.buffer in self._outputs:
                found.setdefault(consumer)
            else:
                for user in self._users(consumer):
                    found.setdefault(user)
        return list(found)

    def _in_place(self, stage: Stage) -> Buffer | None:
        """An output that may hold the stage's result until its own takes the place."""
        consumers = self._kernel.consumers(stage.buffer)
        if stage.buffer in self._outputs or not consumers:
            return None
        last = consumers[-1]
        if (
            last.buffer in self._outputs
            and last.reducer is None
            and last.dtype == stage.dtype
            and _same_shape(last, stage)
            and self._reads_in_step(last, stage)
            and all(c.reducer is not None for c in consumers[:-1])
        ):
            return last.buffer
        return None


def _same_shape(a: Stage, b: Stage) -> bool:
    return len(a.spatial) == len(b.spatial) and all(
        same(x.extent, y.extent) for x, y in zip(a.spatial, b.spatial, strict=True)
    )


def _uses_each(stage: Stage, user: Stage) -> bool:
    """Whether ``user`` surely reads elements of ``stage`` several times each."""
    size = [constant_int(a.extent) for a in stage.spatial]
    points = [constant_int(a.extent) for a in (*user.spatial, *user.reduce)]
    # Unknown sizes occur in both, as a rule.
    known = math.prod(s for s in size if s is not None)
    runs = math.prod(p for p in points if p is not None)
    return runs >= 2 * max(known, 1) and size.count(None) >= points.count(None)


def emit(ctx: Context, steps: Sequence[Step | Stmt]) -> Stmt:
    """Loops for the steps."""
    nests = [s for s in steps if isinstance(s, Step)]
    if len(nests) == len(steps) and len(nests) > 1:
        rows = common_rows(ctx, nests)
        if rows:
            ctx.note(f"{len(nests)} nests in one loop over {len(rows)} common axes")
            return _row_loop(ctx, nests, rows)
    return seq([s.emit(ctx, (), parallel=True) if isinstance(s, Step) else s for s in steps])


def _row_loop(ctx: Context, steps: Sequence[Step], rows: Sequence[Axis]) -> Stmt:
    def body(at: At) -> Stmt:
        prefix = [at[a.var] for a in rows]
        return seq([s.emit(ctx, prefix, parallel=False) for s in steps])

    work = sum(
        math.prod(
            constant_int(a.extent) or 64
            for stage in step.stages
            for a in (*stage.spatial[len(rows) :], *stage.reduce)
        )
        * 4
        for step in steps
    )
    return nested(
        ctx.loops, rows, body, parallel=is_big(ctx.machine, ctx.loops, rows, work), work=work
    )


def common_rows(ctx: Context, steps: Sequence[Step], least: int = 4) -> list[Axis]:
    """The outermost axes that all steps share; none if they have fewer than ``least`` points.

    No step reads what another one stores for different values of them.
    """
    intermediate = {
        b
        for step in steps
        for b in (
            step.storages
            if step.epilogue is None
            else [place[0] for place in step.epilogue.places()]
        )
    }
    first = steps[0].stages[0].spatial
    count = min(len(s.stages[0].spatial) for s in steps)
    for step in steps:
        count = min(count, _leading(ctx, step, first, intermediate))
    rows = list(first[:count])
    extents = [constant_int(a.extent) for a in rows]
    if all(e is not None for e in extents) and math.prod(e or 0 for e in extents) < least:
        return []
    return [Axis(ctx.loops.var(a.var.name, a.extent), a.extent) for a in rows]


def _leading(ctx: Context, step: Step, first: Sequence[Axis], intermediate: set[Buffer]) -> int:
    """How many outermost axes of the step are those of ``first`` in everything it exchanges."""
    stage = step.stages[0]
    axes = [a.var for a in stage.spatial]
    if step.epilogue is None:
        values = step_values(ctx, step.stages, axes)
    else:
        values = [ctx.values.value(stage, axes, [a.var for a in stage.reduce])]
    places: list[Sequence[Expr]] = []
    if step.epilogue is not None:
        results, stores = step.epilogue.results(tirx.Var("acc", stage.dtype), axes)
        values += results
        places = [place for _, place in stores]
    places += [list(x.indices) for x in loads(*values) if x.source in intermediate]
    count = 0
    for position, (axis, model) in enumerate(zip(stage.spatial, first, strict=False)):
        if not same(axis.extent, model.extent):
            break
        if not all(position < len(place) and place[position].same_as(axis.var) for place in places):
            break
        count += 1
    return count
