"""What passes are made of: a walk that rebuilds straight-line Relax functions."""

from __future__ import annotations

from collections import Counter

import tvm
from tvm import relax

from rten_aot.dialect.functions import bindings, building, result_of
from rten_aot.dialect.origins import nodes_of, with_nodes


class Rewriter:
    """Rebuilds every Relax function of a module; other functions are kept.

    Functions are one dataflow block each, as the importer makes them. Subclasses override
    ``rewrite``; ``self.uses`` counts how often the function at hand uses each of its variables and
    ``self.bound`` gives the new expression that each new variable is bound to. What replaces a call
    comes from the same nodes of the model (and from those that it has already).
    """

    def __init__(self) -> None:
        self.builder = relax.BlockBuilder()
        self.uses: Counter[relax.Var] = Counter()
        self.bound: dict[relax.Var, relax.Expr] = {}
        self._env: dict[relax.Var, relax.Expr] = {}
        self._origin: dict[relax.Var, relax.Var] = {}
        self._nodes: tuple[int, ...] = ()
        self.function_name = ""

    def rewrite(self, var: relax.Var, value: relax.Expr) -> relax.Expr:
        """What to bind in place of ``value`` (operands are new already): a call, a variable …."""
        return value

    def begin(self, function: relax.Function) -> None:
        """Called before each function."""

    def result(self, value: relax.Expr) -> relax.Expr:
        """What to return in place of ``value``, an element of the function's result."""
        return value

    def run(self, mod: tvm.IRModule) -> tvm.IRModule:
        """The rebuilt module."""
        self.builder = relax.BlockBuilder(
            tvm.IRModule({v: f for v, f in mod.functions.items() if not is_relax(f)})
        )
        for var, function in relax_functions(mod):
            self._function(var.name_hint, function)
        return self.builder.get()

    def emit(self, expr: relax.Expr) -> relax.Var:
        """Bind an expression to a new variable."""
        expr = with_nodes(expr, self._nodes)
        var = self.builder.emit(expr)
        self.bound[var] = expr
        return var

    def used_once(self, var: relax.Var) -> bool:
        """Whether the old variable that ``var`` stands for has one use only."""
        return var in self._origin and self.uses[self._origin[var]] == 1

    def _function(self, name: str, function: relax.Function) -> None:
        self.function_name = name
        self._env = {}
        self._origin = {}
        self.bound = {}
        self.uses = count_uses(function)
        self.begin(function)
        with building(self.builder, name, function.params):
            with self.builder.dataflow():
                for var, value in bindings(function):
                    self._nodes = nodes_of(value)
                    new = self.rewrite(var, self._substitute(value))
                    is_leaf = isinstance(new, (tvm.ir.Var, tvm.ir.GenericConst, tvm.ir.Tuple))
                    self._env[var] = new if is_leaf else self.emit(new)
                    if not is_leaf:
                        self._origin[self._env[var]] = var
                self._nodes = ()
                fields = [self.result(self._lookup(f)) for f in result_of(function)]
                output = self.builder.emit_output(tvm.ir.Tuple(fields))
            self.builder.emit_func_output(output)

    def _lookup(self, expr: relax.Expr) -> relax.Expr:
        return self._env.get(expr, expr) if isinstance(expr, tvm.ir.Var) else expr

    def _substitute(self, value: relax.Expr) -> relax.Expr:
        if isinstance(value, tvm.ir.Call):
            args = [self._operand(a) for a in value.args]
            return tvm.ir.Call(value.op, args, value.attrs, value.ty_args, value.span)
        if isinstance(value, relax.TupleGetItem):
            source = self._lookup(value.tuple_value)
            if isinstance(source, tvm.ir.Tuple):
                return source.fields[value.index]
            return relax.TupleGetItem(source, value.index)
        return self._operand(value)

    def _operand(self, expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, tvm.ir.Tuple):
            return tvm.ir.Tuple([self._operand(f) for f in expr.fields])
        return self._lookup(expr)


def is_relax(function: object) -> bool:
    """Whether a module's function is a Relax function."""
    return isinstance(function, relax.Function)


def relax_functions(mod: tvm.IRModule) -> list[tuple[tvm.ir.GlobalVar, relax.Function]]:
    """The Relax functions of a module that are no fused groups, by name."""
    found = [(v, f) for v, f in mod.functions.items() if is_relax(f)]
    return sorted(found, key=lambda item: item[0].name_hint)


def count_uses(function: relax.Function) -> Counter[relax.Var]:
    """How often each variable is used as an operand or in the result."""
    uses: Counter[relax.Var] = Counter()

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, tvm.ir.Var):
            uses[expr] += 1
        elif isinstance(expr, tvm.ir.Tuple):
            for f in expr.fields:
                visit(f)
        elif isinstance(expr, tvm.ir.Call):
            for a in expr.args:
                visit(a)
        elif isinstance(expr, relax.TupleGetItem):
            visit(expr.tuple_value)

    for _, value in bindings(function):
        visit(value)
    visit(function.body.body)
    return uses
