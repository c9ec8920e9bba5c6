"""The walk over a model's nodes: from graphs to Relax functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tvm
from tvm import relax, tirx

from rten_aot.dialect.functions import building, result_types
from rten_aot.errors import CompileError, InternalError, ModelFormatError, UnsupportedOpError
from rten_aot.format.graph import Constant, Dim, Graph, Model, OpNode, Value
from rten_aot.importer.context import Check, Contents, GraphState, OpContext
from rten_aot.importer.elementwise import check_type
from rten_aot.importer.registry import OpSpec, check_supported, load_all
from rten_aot.importer.sequences import TensorSequence
from rten_aot.importer.signature import Signature, TensorSpec, unique_names

_OLD_SET = (
    "an ONNX model of an old operator set must be brought to 13 or later, by "
    "onnx.version_converter, before it is converted"
)


@dataclass(frozen=True)
class ImportedFunction:
    """A Relax function with the conditions on its sizes that are to be tested at run time.

    Its last results are not the graph's: their elements are the values of the ``measured`` sizes.
    """

    function: relax.Function
    checks: tuple[Check, ...]
    measured: tuple[tuple[tirx.Var, ...], ...] = ()

    @property
    def result_types(self) -> list[relax.TensorType]:
        """The types of the graph's results."""
        types = result_types(self.function)
        return types[: len(types) - len(self.measured)]


@dataclass(frozen=True)
class ImportedModel:
    """The functions of a model, ``main`` and branches of If, and what users see of it.

    ``nodes`` gives name and operator of the node that an operator's attribute ``node`` stands for.
    """

    functions: Mapping[str, ImportedFunction]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    nodes: tuple[tuple[str, str], ...]
    size_names: Mapping[str, str]
    """Dimension names by the names of the size variables that stand for them."""
    size_texts: Mapping[str, str]
    """What messages call size variables, by their names."""

    def module(self) -> tvm.IRModule:
        """The functions as one Relax module."""
        return tvm.IRModule(
            {tvm.ir.GlobalVar(name): f.function for name, f in self.functions.items()}
        )


def import_model(
    model: Model,
    *,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    dims: Mapping[str, int] | None = None,
) -> ImportedModel:
    """Convert a model.

    Raises:
        UnsupportedOpError: an operator, attribute value or data type is not supported.
        ShapeError: shapes contradict each other.
    """
    check_supported(model.graph)
    signature = Signature(model.graph, shapes, dims)
    translator = Translator(signature.size_texts)
    state = GraphState(relax.BlockBuilder())
    state.declare(signature.sizes)
    values: dict[int, relax.Expr] = dict(zip(model.graph.inputs, signature.params, strict=True))
    main = translator.function("main", signature.params, model.graph, values, None, state)
    names = unique_names((model.graph.nodes[i].name for i in model.graph.outputs), "output")
    outputs = tuple(
        TensorSpec(name, str(ty.dtype), tuple(signature.dim(d) for d in ty.shape.values))
        for name, ty in zip(names, main.result_types, strict=True)
    )
    return ImportedModel(
        translator.functions,
        tuple(signature.inputs),
        outputs,
        tuple(translator.nodes),
        signature.size_names,
        translator.size_texts,
    )


@dataclass
class Scope:
    """A graph whose nodes are being translated, as the graphs inside it see it."""

    graph: Graph
    values: dict[int, relax.Expr]
    state: GraphState
    parent: Scope | CaptureScope | None
    unsupported: dict[int, UnsupportedOpError] = field(default_factory=dict)
    """What to raise if one of these values is used."""
    by_name: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.by_name = {}
        for index, node in enumerate(self.graph.nodes):
            if not isinstance(node, OpNode):
                self.by_name.setdefault(node.name, index)

    def lookup(self, name: str) -> relax.Expr | None:
        """The value that a graph inside this one captures under ``name``."""
        index = self.by_name.get(name)
        if index is not None:
            value = self.value(index)
            if value is not None:
                return value
        return None if self.parent is None else self.parent.lookup(name)

    def value(self, index: int) -> relax.Expr | None:
        """The expression for a Value or Constant node; constants are made on first use."""
        if index in self.unsupported:
            raise self.unsupported[index]
        if index not in self.values:
            node = self.graph.nodes[index]
            if not isinstance(node, Constant):
                return None
            self.values[index] = relax.const(node.data, str(node.data.dtype))
        return self.values[index]


@dataclass(frozen=True)
class CaptureScope:
    """What a branch that became a function of its own sees of its surroundings."""

    values: Mapping[str, relax.Expr]

    def lookup(self, name: str) -> relax.Expr | None:
        """The value captured under ``name``."""
        return self.values.get(name)


class Translator:
    """Collects the functions and the node table of one model."""

    def __init__(self, size_texts: dict[str, str]) -> None:
        self.functions: dict[str, ImportedFunction] = {}
        self.size_texts = size_texts
        """What messages call size variables, by their names."""
        self.nodes: list[tuple[str, str]] = []
        self._specs = load_all()

    def function(
        self,
        name: str,
        params: Sequence[relax.Var],
        graph: Graph,
        values: dict[int, relax.Expr],
        parent: Scope | CaptureScope | None,
        state: GraphState,
    ) -> ImportedFunction:
        """Add the function of a graph whose inputs and captures have their ``values`` already."""
        builder = state.builder
        with building(builder, name, params):
            with builder.dataflow():
                outputs = self.inline(graph, values, parent, state)
                _refuse_sequences(graph, outputs)
                counts = [tensor for tensor, _ in state.measured]
                result = builder.emit_output(tvm.ir.Tuple([*outputs, *counts]))
            builder.emit_func_output(result)
        measured = tuple(sizes for _, sizes in state.measured)
        added = ImportedFunction(builder.get()[name], tuple(state.checks), measured)
        self.functions[name] = added
        return added

    def inline(
        self,
        graph: Graph,
        values: dict[int, relax.Expr],
        parent: Scope | CaptureScope | None,
        state: GraphState,
    ) -> list[relax.Expr]:
        """Translate a graph's nodes where the builder stands; returns the outputs."""
        scope = Scope(graph, values, state, parent)
        for index in graph.captures:
            name = graph.nodes[index].name
            value = parent.lookup(name) if parent else None
            if value is None:
                raise ModelFormatError(f'a branch uses "{name}", which no enclosing graph defines')
            values.setdefault(index, value)
        for node in graph.nodes:
            if isinstance(node, OpNode):
                self._operator(node, scope)
        outputs = []
        for index in graph.outputs:
            value = scope.value(index)
            if value is None:
                raise ModelFormatError(f'output "{graph.nodes[index].name}" is never computed')
            outputs.append(value)
        return outputs

    def _operator(self, node: OpNode, scope: Scope) -> None:
        spec = self._specs[node.op]
        _check_arity(spec, node)
        operands = [None if i is None else self._operand(node, i, scope) for i in node.inputs]
        if not spec.sequences and any(isinstance(x, TensorSequence) for x in operands):
            raise UnsupportedOpError(
                "takes no sequence of tensors here", node=node.name, op=node.op
            )
        self.nodes.append((node.name, node.op))
        context = OpContext(scope.state, node, len(self.nodes) - 1, self, scope)
        try:
            _check_types(context, spec, operands)
            result = spec.function(context, *operands)
            context.attrs.finish()
        except (CompileError, InternalError, MemoryError):
            raise
        except Exception as err:
            raise CompileError(
                f"cannot be converted: {_first_line(err)}", node=node.name, op=node.op
            ) from err
        results = result if isinstance(result, (tuple, list)) else (result,)
        for position, index in enumerate(node.outputs):
            if index is None:
                continue
            if position < len(results) and results[position] is not None:
                scope.values[index] = results[position]
            else:
                # Exporters name outputs, such as those for training, that nothing uses.
                scope.unsupported[index] = UnsupportedOpError(
                    f"output {position} is not supported", node=node.name, op=node.op
                )

    @staticmethod
    def _operand(node: OpNode, index: int, scope: Scope) -> relax.Expr:
        value = scope.value(index)
        if value is None:
            name = scope.graph.nodes[index].name
            raise ModelFormatError(
                f'input "{name}" is used before anything computes it', node=node.name, op=node.op
            )
        return value


def _check_types(ctx: OpContext, spec: OpSpec, operands: Sequence[relax.Expr | None]) -> None:
    for position, x in enumerate(operands):
        if x is None or isinstance(x, TensorSequence):
            continue
        if position in spec.integers:
            check_type(ctx, x, ("int32",))
        elif position == 0:
            check_type(ctx, x, spec.types)


def _check_arity(spec: OpSpec, node: OpNode) -> None:
    """Refuse inputs that are missing or too many."""
    missing = [
        position
        for position, index in enumerate(node.inputs)
        if index is None and not spec.required <= position < spec.fixed
    ]
    count, hint = len(node.inputs), None
    if count < spec.required or (count > spec.fixed and not spec.variadic):
        message = f"has {count} input{'' if count == 1 else 's'}; supported: {spec.arity}"
        if count < spec.required:  # what later were inputs, old operator sets have as attributes
            hint = _OLD_SET
    elif missing:
        message = f"input {missing[0]} is missing"
    else:
        return
    raise UnsupportedOpError(message, node=node.name, op=node.op, hint=hint)


def _refuse_sequences(graph: Graph, outputs: Sequence[relax.Expr]) -> None:
    for index, value in zip(graph.outputs, outputs, strict=True):
        if isinstance(value, TensorSequence):
            maker = next(n for n in graph.nodes if isinstance(n, OpNode) and index in n.outputs)
            raise UnsupportedOpError(
                f'result "{graph.nodes[index].name}" is a sequence of tensors, which cannot leave '
                "the model or a branch",
                node=maker.name,
                op=maker.op,
            )


def captured(graph: Graph) -> list[str]:
    """Names of the values that a graph, or a graph inside it, takes from outside."""
    names = [graph.nodes[i].name for i in graph.captures]
    own = {n.name for n in graph.nodes if isinstance(n, (Value, Constant))}
    for node in graph.nodes:
        if isinstance(node, OpNode):
            for inner in node.attrs.values():
                if isinstance(inner, Graph):
                    names += [n for n in captured(inner) if n not in own]
    return list(dict.fromkeys(names))


def fresh_sizes(types: Sequence[relax.TensorType]) -> dict[tirx.Var, tirx.Var]:
    """A new variable for each one in the types, by the old one."""
    found: dict[tirx.Var, tirx.Var] = {}
    for ty in types:
        for var in relax.analysis.tir_vars_in_type(ty):
            found.setdefault(var, tirx.Var(var.name, "int64"))
    return found


def with_sizes(ty: relax.TensorType, sizes: Mapping[tirx.Var, tirx.Expr]) -> relax.TensorType:
    """The type with its size variables replaced."""
    return relax.TensorType([replace(d, sizes) for d in ty.shape.values], str(ty.dtype))


def replace(size: tirx.Expr, sizes: Mapping[tirx.Var, tirx.Expr]) -> tirx.Expr:
    """The expression with its size variables replaced."""
    analyzer = tvm.sym.Analyzer()
    for var, value in sizes.items():
        analyzer.bind(var, value)
    return analyzer.simplify(size)


def replace_contents(content: Contents, sizes: Mapping[tirx.Var, tirx.Expr]) -> Contents:
    """Known contents with their size variables replaced."""
    result: Contents = content.copy()
    for position, value in enumerate(content.flat):
        if isinstance(value, tvm.ir.Expr):
            result.flat[position] = replace(value, sizes)
    return result


def _first_line(err: Exception) -> str:
    lines = [line.strip() for line in str(err).splitlines() if line.strip()]
    useful = [ln for ln in lines if not re.match(r"(File |Traceback|\[|\d+: )", ln)]
    return (useful or lines or [type(err).__name__])[0][:300]
