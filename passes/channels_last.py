"""ChannelsLast: activations of convolutional networks are kept channels-last inside the model.

A value of rank 3 or more has two forms: as the model has it (N, C, spatial …) and channels-last
(N, spatial …, C). Every operator is emitted in the form its operands have; the other form is made
where an operator needs it, and only then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.sym import Analyzer

from rten_aot.dialect.functions import bindings, building, result_of
from rten_aot.dialect.origins import nodes_of, with_nodes
from rten_aot.dialect.registry import Layout, OpDef, attrs_of, call, op_def
from rten_aot.passes.base import relax_functions


@dataclass(eq=False)
class Forms:
    """A value in the forms that exist of it."""

    plain: relax.Expr | None = None
    last: relax.Expr | None = None
    made_last: bool = False
    """Whether the channels-last form is the one it was computed in."""

    def __post_init__(self) -> None:
        self.made_last = self.plain is None


class ChannelsLast:
    """Moves transposes past everything that works in either form, and cancels them.

    ``conv(x, w)`` --> ``transpose(conv(transpose(x), w, layout="NHWC"))``
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._builder = relax.BlockBuilder()
        self._forms: dict[relax.Var, Forms] = {}
        self._values: dict[relax.Var, relax.Expr] = {}
        self._analyzer = Analyzer()
        self._nodes: tuple[int, ...] = ()
        """Nodes of the call at hand."""

    def run(self, mod: tvm.IRModule) -> tvm.IRModule:
        """The rewritten module, which has Relax functions only."""
        for name, function in relax_functions(mod):
            self._function(name.name_hint, function)
        return self._builder.get()

    def _function(self, name: str, function: relax.Function) -> None:
        self._forms = {p: Forms(plain=p) for p in function.params}
        self._values = dict(bindings(function))
        with building(self._builder, name, function.params):
            with self._builder.dataflow():
                for var, value in bindings(function):
                    self._nodes = nodes_of(value)
                    self._forms[var] = self._convert(value)
                self._nodes = ()
                fields = [self._field(f) for f in result_of(function)]
                output = self._builder.emit_output(tvm.ir.Tuple(fields))
            self._builder.emit_func_output(output)

    # -- the two forms -------------------------------------------------------------------------

    def _forms_of(self, expr: relax.Expr) -> Forms:
        return self._forms[expr] if isinstance(expr, tvm.ir.Var) else Forms(plain=expr)

    def _plain(self, expr: relax.Expr) -> relax.Expr:
        """The value in the model's own order of axes."""
        if isinstance(expr, tvm.ir.Tuple):
            return tvm.ir.Tuple([self._field(f) for f in expr.fields])
        if not isinstance(expr, tvm.ir.Var) or expr not in self._forms:
            return expr
        forms = self._forms[expr]
        if forms.plain is None:
            shape = _shape(forms.last)
            order = [0, len(shape) - 1, *range(1, len(shape) - 1)]
            forms.plain = self._permuted(forms.last, order)
            if not self._is_view(shape, order):
                self._note(f"transpose to channels-first: {_text(shape)}")
        return forms.plain

    def _field(self, expr: relax.Expr) -> relax.Expr:
        """As ``_plain``; where no call is at hand, a transpose comes from the value's nodes."""
        nodes = self._nodes
        self._nodes = nodes or nodes_of(self._values.get(expr))
        plain = self._plain(expr)
        self._nodes = nodes
        return plain

    def _last(self, expr: relax.Expr) -> relax.Expr:
        """The value channels-last."""
        forms = self._forms_of(expr)
        if forms.last is None:
            shape = _shape(forms.plain)
            order = [0, *range(2, len(shape)), 1]
            forms.last = self._permuted(forms.plain, order)
            if not isinstance(expr, tvm.ir.GenericConst) and not self._is_view(shape, order):
                self._note(f"transpose to channels-last: {_text(shape)}")
        return forms.last

    def _permuted(self, expr: relax.Expr, order: list[int]) -> relax.Expr:
        if isinstance(expr, tvm.ir.GenericConst):
            return relax.const(np.ascontiguousarray(expr.value.numpy().transpose(order)))
        shape = _shape(expr)
        if self._is_view(shape, order):
            return self._emit(relax.op.reshape(expr, relax.ShapeExpr([shape[a] for a in order])))
        return self._emit(call("transpose", expr, axes=order))

    def _is_view(self, shape: Sequence[tirx.Expr], order: Sequence[int]) -> bool:
        """Whether the permutation only moves axes of size 1."""
        moved = [a for a in order if not _is_one(shape[a])]
        # A size of 0 in a reshape means something else to Relax.
        return moved == sorted(moved) and not any(_is_zero(d) for d in shape)

    def _emit(self, expr: relax.Expr) -> relax.Var:
        return self._builder.emit(with_nodes(expr, self._nodes))

    # -- operators -----------------------------------------------------------------------------

    def _convert(self, value: relax.Expr) -> Forms:
        if isinstance(value, tvm.ir.Var):
            return self._forms[value]
        if isinstance(value, relax.TupleGetItem):
            source = self._plain(value.tuple_value)
            return Forms(plain=self._emit(relax.TupleGetItem(source, value.index)))
        if isinstance(value, tvm.ir.Call):
            definition = op_def(value)
            last = None
            if definition is not None:
                last = self._channels_last(value, definition)
            elif getattr(value.op, "name", "") == "relax.reshape":
                last = self._reshape(value)
            if last is not None:
                return last
            args = [self._plain(a) for a in value.args]
            return Forms(plain=self._emit(tvm.ir.Call(value.op, args, value.attrs, value.ty_args)))
        return Forms(plain=self._plain(value))

    def _channels_last(self, value: relax.Call, definition: OpDef) -> Forms | None:
        """The operator's result if it can be computed channels-last, and should be."""
        if definition.name == "rten.transpose":
            return self._transpose(value)
        match definition.layout:
            case Layout.SPATIAL:
                return self._spatial(value, definition)
            case Layout.ELEMENTWISE:
                return self._elementwise(value, definition)
            case Layout.AXES:
                return self._axes(value, definition)
            case _:
                return None

    def _spatial(self, value: relax.Call, definition: OpDef) -> Forms | None:
        attrs = attrs_of(value)
        if len(_shape(value.args[0])) != 4:
            return None
        args = [self._last(value.args[0]), *(self._plain(a) for a in value.args[1:])]
        return self._result(definition, args, attrs | {"layout": "NHWC"})

    def _elementwise(self, value: relax.Call, definition: OpDef) -> Forms | None:
        rank = max(len(_shape(a)) for a in value.args)
        if rank < 3 or not any(self._prefers_last(a, rank) for a in value.args):
            return None
        args = [self._broadcast_operand(a, rank) for a in value.args]
        return self._result(definition, args, attrs_of(value))

    def _broadcast_operand(self, expr: relax.Expr, rank: int) -> relax.Expr:
        shape = _shape(expr)
        if len(shape) == rank:
            return self._last(expr)
        if all(_is_one(d) for d in shape):
            return self._plain(expr)
        one = tirx.const(1, "int64")
        full = relax.ShapeExpr([*[one] * (rank - len(shape)), *shape])
        plain = self._plain(expr)
        if isinstance(plain, tvm.ir.GenericConst):
            extended = [int(d.value) for d in full.values]
            wide: relax.Expr = relax.const(plain.value.numpy().reshape(extended))
            return self._permuted(wide, [0, *range(2, rank), 1])
        wide = self._emit(relax.op.reshape(plain, full))
        return self._permuted(wide, [0, *range(2, rank), 1])

    def _axes(self, value: relax.Call, definition: OpDef) -> Forms | None:
        operands = list(value.args)
        rank = len(_shape(operands[0]))
        is_peer = [isinstance(a.ty, relax.TensorType) and len(_shape(a)) == rank for a in operands]
        peers = [a for a, peer in zip(operands, is_peer, strict=True) if peer]
        if rank < 3 or not any(self._prefers_last(a, rank) for a in peers):
            return None
        attrs = attrs_of(value)
        if "axis" in attrs:
            attrs["axis"] = _moved(attrs["axis"], rank)
        if "axes" in attrs:
            attrs["axes"] = [_moved(a, rank) for a in attrs["axes"]]
        args = [
            self._last(a) if peer else self._plain(a)
            for a, peer in zip(operands, is_peer, strict=True)
        ]
        return self._result(definition, args, attrs)

    def _transpose(self, value: relax.Call) -> Forms | None:
        """A transpose between the two forms costs nothing."""
        order = attrs_of(value)["axes"]
        rank = len(order)
        forms = self._forms_of(value.args[0])
        if rank >= 3 and order == [0, rank - 1, *range(1, rank - 1)]:
            return Forms(last=self._plain(value.args[0]))
        if rank >= 3 and order == [0, *range(2, rank), 1] and forms.last is not None:
            return Forms(plain=forms.last)
        if forms.plain is None:
            composed = [_moved(a, rank) for a in order]
            return Forms(plain=self._permuted(forms.last, composed))
        return None

    def _reshape(self, value: relax.Call) -> Forms | None:
        """A reshape that adds or removes axes of size 1 behind the channels."""
        forms = self._forms_of(value.args[0])
        if forms.last is None:
            return None
        source, target = _shape(value.args[0]), list(value.args[1].values)
        if any(_is_zero(d) for d in target):
            return None
        if all(_is_one(d) for d in source[2:]):
            return Forms(plain=self._emit(relax.op.reshape(forms.last, relax.ShapeExpr(target))))
        kept = [d for d in source[2:] if not _is_one(d)]
        wanted = [d for d in target[2:] if not _is_one(d)]
        if len(target) < 3 or not self._all_same([*source[:2], *kept], [*target[:2], *wanted]):
            return None
        order = [target[0], *target[2:], target[1]]
        return Forms(last=self._emit(relax.op.reshape(forms.last, relax.ShapeExpr(order))))

    def _all_same(self, a: Sequence[tirx.Expr], b: Sequence[tirx.Expr]) -> bool:
        return len(a) == len(b) and all(
            self._analyzer.can_prove_equal(x, y) for x, y in zip(a, b, strict=True)
        )

    def _result(
        self, definition: OpDef, args: list[relax.Expr], attrs: dict[str, object]
    ) -> Forms | None:
        name = definition.name.removeprefix("rten.")
        return Forms(last=self._emit(call(name, *args, **attrs)))  # type: ignore[arg-type]

    def _prefers_last(self, expr: relax.Expr, rank: int) -> bool:
        return self._forms_of(expr).made_last and len(_shape(expr)) == rank


def channels_last(mod: tvm.IRModule, note: Callable[[str], None]) -> tvm.IRModule:
    """The module with convolutions and what surrounds them channels-last."""
    return ChannelsLast(note).run(mod)


def _shape(expr: relax.Expr) -> list[tirx.Expr]:
    ty = expr.ty
    return list(ty.shape.values) if isinstance(ty, relax.TensorType) else []


def _is_one(size: tirx.Expr) -> bool:
    return isinstance(size, tirx.IntImm) and int(size.value) == 1


def _is_zero(size: tirx.Expr) -> bool:
    return isinstance(size, tirx.IntImm) and int(size.value) == 0


def _moved(axis: int, rank: int) -> int:
    """Where an axis lies channels-last."""
    return 0 if axis == 0 else rank - 1 if axis == 1 else axis - 1


def _text(shape: Sequence[tirx.Expr]) -> str:
    return "x".join(str(d.value if isinstance(d, tirx.IntImm) else d) for d in shape)
