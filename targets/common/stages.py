"""Takes a fused PrimFunc apart into its TE stages.

A stage is one ``te.compute``: it writes every element of one buffer, each as an expression of the
stage's axes (a *spatial* stage) or as a reduction over further axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tvm import s_tir, tirx
from tvm.ir import Expr

from rten_aot.targets.common.expr import (
    Buffer,
    Rewriter,
    canonical,
    children,
    constant_int,
    free_vars,
    i64,
    identity,
    loads,
    same,
    substitute,
    walk,
)
from rten_aot.targets.common.loops import size_vars


@dataclass(frozen=True)
class Axis:
    """One axis of a stage; it counts from 0."""

    var: tirx.Var
    extent: Expr


@dataclass(frozen=True, eq=False)
class Reducer:
    """How a reduction stage combines.

    ``result`` is the new accumulator, written in ``lhs`` (the old one) and ``rhs`` (the next term);
    ``term`` is the term in the stage's axes.
    """

    lhs: tirx.Var
    rhs: tirx.Var
    result: Expr
    term: Expr
    init: Expr

    def combine(self, acc: Expr, term: Expr) -> Expr:
        """The accumulator after one more term (or another accumulator)."""
        return substitute(self.result, {self.lhs: acc, self.rhs: term})

    @property
    def is_sum(self) -> bool:
        """Whether the reduction is a plain sum."""
        return isinstance(self.result, tirx.Add)


@dataclass(frozen=True, eq=False)
class Stage:
    """One ``te.compute``."""

    name: str
    buffer: Buffer
    spatial: tuple[Axis, ...]
    """One axis for each dimension of ``buffer``, in order."""
    reduce: tuple[Axis, ...]
    value: Expr
    """What a spatial stage stores; for a reduction stage the term of the reduction."""
    reducer: Reducer | None
    annotations: Mapping[str, object] = field(default_factory=dict)

    @property
    def reads(self) -> list[Buffer]:
        """The buffers it loads from, each once."""
        return list(dict.fromkeys(load.source for load in loads(self.value)))

    @property
    def dtype(self) -> str:
        """Element type of the buffer."""
        return str(self.buffer.ty.dtype)

    def int_annotation(self, name: str, default: int | None = None) -> int:
        """An integer annotation; ``KeyError`` if it is absent and has no default."""
        if name not in self.annotations:
            if default is None:
                raise KeyError(name)
            return default
        return int(str(self.annotations[name]))

    @property
    def anchor(self) -> str | None:
        """The value of the annotation ``rten.anchor``."""
        value = self.annotations.get("rten.anchor")
        return None if value is None else str(value)

    @property
    def is_part(self) -> bool:
        """Whether the anchor that reads it computes it (annotation ``rten.part``)."""
        return bool(self.int_annotation("rten.part", 0))


@dataclass(frozen=True, eq=False)
class Kernel:
    """A function made of stages only."""

    func: tirx.PrimFunc
    params: tuple[tirx.Var, ...]
    """All parameters in order: buffers, and scalars (symbolic sizes)."""
    stages: tuple[Stage, ...]
    """In execution order."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_producers", {s.buffer: s for s in self.stages})

    def producer(self, buffer: Buffer) -> Stage | None:
        """The stage that writes ``buffer``; None for an input."""
        producers: dict[Buffer, Stage] = self._producers  # type: ignore[attr-defined]
        return producers.get(buffer)

    def consumers(self, buffer: Buffer) -> list[Stage]:
        """The stages that read ``buffer``, in order."""
        return [s for s in self.stages if buffer in s.reads]

    @property
    def buffers(self) -> list[Buffer]:
        """The parameters that are buffers."""
        return [p for p in self.params if isinstance(p.ty, tirx.BufferType)]

    @property
    def inputs(self) -> list[Buffer]:
        """Buffer parameters that no stage writes."""
        return [b for b in self.buffers if self.producer(b) is None]

    @property
    def outputs(self) -> list[Buffer]:
        """Buffer parameters that a stage writes."""
        return [b for b in self.buffers if self.producer(b) is not None]

    @property
    def sizes(self) -> list[tirx.Var]:
        """The symbolic sizes that occur in shapes of parameters and stages."""
        return list(dict.fromkeys(size_vars([*self.buffers, *(s.buffer for s in self.stages)])))


def parse(func: tirx.PrimFunc) -> Kernel | None:
    """The stages of ``func``; None if any part of it is not in TE form (an opaque kernel)."""
    root = func.body
    if not isinstance(root, s_tir.SBlockRealize):
        return None
    body = root.block.body
    nests: Sequence[tirx.Stmt] = body.seq if isinstance(body, tirx.SeqStmt) else [body]
    if root.block.iter_vars:  # a single 0-d stage is its own root
        nests = [root]
    stages = []
    for nest in nests:
        stage = _parse_nest(nest)
        if stage is None:
            return None
        stages.append(stage)
    written = [s.buffer for s in stages]
    if len(set(written)) != len(written) or not stages:
        return None
    return Kernel(func, tuple(func.params), tuple(stages))


def _parse_nest(nest: tirx.Stmt) -> Stage | None:
    extents: dict[tirx.Var, Expr] = {}
    while isinstance(nest, tirx.For):
        if nest.kind != tirx.ForKind.SERIAL or constant_int(nest.min) != 0:
            return None
        extents[nest.loop_var] = nest.extent
        nest = nest.body
    if not isinstance(nest, s_tir.SBlockRealize):
        return None
    block = nest.block
    store = block.body
    if (
        not isinstance(store, tirx.BufferStore)
        or constant_int(nest.predicate) != 1
        or block.alloc_buffers
        or block.match_buffers
        or not _covers(block.iter_vars, nest.iter_values, extents)
    ):
        return None
    spatial, reduce, shift = _axes(block.iter_vars)
    if not store.indices:  # a 0-d buffer: its block has one axis of extent 1, which indexes nothing
        shift.update({a.var: i64(0) for a in spatial})
        spatial = ()
    if len(store.indices) != len(spatial) or not all(
        i.same_as(a.var) for i, a in zip(store.indices, spatial, strict=True)
    ):
        return None
    value = substitute(canonical(store.value), shift)
    reducer = None
    if reduce or block.init is not None:
        if not isinstance(block.init, tirx.BufferStore):
            return None
        reducer = _reducer(store.buffer, value, canonical(block.init.value))
        if reducer is None:
            return None
        value = reducer.term
    annotations = {str(k): v for k, v in block.annotations.items()}
    return Stage(block.name_hint, store.buffer, spatial, reduce, value, reducer, annotations)


def _covers(
    iter_vars: Sequence[tirx.IterVar], values: Sequence[Expr], extents: Mapping[tirx.Var, Expr]
) -> bool:
    """Whether the block's axes run over their whole domains, each on a loop of its own."""
    used: set[tirx.Var] = set()
    for axis, value in zip(iter_vars, values, strict=True):
        if isinstance(value, tirx.Var) and value in extents and value not in used:
            used.add(value)
            if same(extents[value], axis.dom.extent) and constant_int(axis.dom.min) == 0:
                continue
        elif constant_int(axis.dom.extent) == 1 and same(value, axis.dom.min):
            continue
        return False
    return True


def _axes(
    iter_vars: Sequence[tirx.IterVar],
) -> tuple[tuple[Axis, ...], tuple[Axis, ...], dict[tirx.Var, Expr]]:
    spatial: list[Axis] = []
    reduce: list[Axis] = []
    shift: dict[tirx.Var, Expr] = {}
    for axis in iter_vars:
        if constant_int(axis.dom.min) != 0:
            shift[axis.var] = axis.var + axis.dom.min
        kind = reduce if axis.iter_type == tirx.IterVar.CommReduce else spatial
        kind.append(Axis(axis.var, axis.dom.extent))
    return tuple(spatial), tuple(reduce), shift


def _reducer(buffer: Buffer, update: Expr, init: Expr) -> Reducer | None:
    dtype = str(buffer.ty.dtype)
    lhs, rhs = tirx.Var("lhs", dtype), tirx.Var("rhs", dtype)
    own = [load for load in loads(update) if load.source.same_as(buffer)]
    if not own:
        return None
    update = Rewriter(lambda e: lhs if any(e.same_as(load) for load in own) else None)(update)
    candidates = _free_of(update, lhs)
    # NaN tests of the term stand beside the term itself, and integers are widened before they are
    # combined: the term is the largest part of its type that all candidates contain.
    parts = [node for c in candidates for node in reversed(list(walk([c])))]
    for term in (part for part in parts if str(part.ty) == str(lhs.ty)):
        if all(any(same(term, node) for node in walk([c])) for c in candidates):
            result = Rewriter(lambda e, t=term: rhs if same(e, t) else None)(update)
            if not loads(result) and free_vars(result) <= {lhs, rhs}:
                return Reducer(lhs, rhs, result, term, init)
    return None


def _free_of(expr: Expr, var: tirx.Var) -> list[Expr]:
    """The largest sub-expressions without ``var``, constants left out."""
    holds: dict[int, bool] = {}
    for node in walk([expr]):
        holds[identity(node)] = node.same_as(var) or any(holds[identity(c)] for c in children(node))
    found: list[Expr] = []
    for node in walk([expr]):
        if holds[identity(node)]:
            for child in children(node):
                if not holds[identity(child)] and not isinstance(
                    child, (tirx.IntImm, tirx.FloatImm)
                ):
                    found.append(child)
    return found
