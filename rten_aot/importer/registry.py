"""The operators that the importer knows, found by loading the modules of ``importer.ops``."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rten_aot.errors import InternalError, UnsupportedOpError
from rten_aot.format.graph import Graph, OpNode

OpFunction: TypeAlias = Callable[..., Any]

FLOATS = ("float32",)
INTEGERS = ("int32", "int8", "uint8")
ALL_TYPES = (*FLOATS, *INTEGERS)
"""The element types of .rten models."""


@dataclass(frozen=True)
class OpSpec:
    """An operator's importing function and the number of inputs that its signature states."""

    name: str
    function: OpFunction
    required: int
    fixed: int
    """Inputs with a meaning of their own, optional ones included."""
    variadic: bool
    """Whether any number of further inputs may follow; none of them may be missing."""
    limits: str
    """What is not supported, in words for the support table; empty if nothing."""
    sequences: bool = False
    """Whether operands may be sequences of tensors."""
    types: Sequence[str] = ALL_TYPES
    """Element types that the first input may have."""
    integers: Sequence[int] = ()
    """Positions of inputs that must be int32: sizes, axes, indices."""
    data_dependent: bool = False
    """Whether the sizes of the result may depend on what the model computes."""

    @property
    def arity(self) -> str:
        """How many inputs there may be, in words."""
        if self.variadic:
            return f"{self.required} or more"
        if self.required == self.fixed:
            return str(self.fixed)
        return f"{self.required} to {self.fixed}"


_SPECS: dict[str, OpSpec] = {}


def op(
    name: str,
    *,
    types: Sequence[str] = ALL_TYPES,
    limits: str = "",
    sequences: bool = False,
    data_dependent: bool = False,
) -> Callable[[OpFunction], OpFunction]:
    """Register the decorated function as the importer of operator ``name``.

    The function takes an ``OpContext`` and one Relax expression for each input (None for an
    optional one that is missing; ``*xs`` for any number) and returns one expression or a tuple.
    Inputs that are annotated as ``Integers`` must be int32.
    """

    def register(function: OpFunction) -> OpFunction:
        if name in _SPECS:
            first = _SPECS[name].function.__module__
            raise InternalError(f"operator {name} is in {first} and in {function.__module__}")
        parameters = list(inspect.signature(function).parameters.values())[1:]
        variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        fixed = [p for p in parameters if p.kind is not p.VAR_POSITIONAL]
        required = sum(p.default is p.empty for p in fixed)
        integers = [i for i, p in enumerate(fixed) if str(p.annotation).startswith("Integers")]
        _SPECS[name] = OpSpec(
            name,
            function,
            required,
            len(fixed),
            variadic,
            limits,
            sequences,
            types,
            integers,
            data_dependent,
        )
        return function

    return register


def load_all() -> dict[str, OpSpec]:
    """All operators by name."""
    package = importlib.import_module("rten_aot.importer.ops")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return dict(sorted(_SPECS.items()))


def all_operators(graph: Graph) -> Iterator[OpNode]:
    """The operators of a graph and of the graphs inside it."""
    for node in graph.nodes:
        if isinstance(node, OpNode):
            yield node
            for value in node.attrs.values():
                if isinstance(value, Graph):
                    yield from all_operators(value)


def check_supported(graph: Graph) -> None:
    """Raise one ``UnsupportedOpError`` that lists every unknown operator, or do nothing."""
    known = load_all()
    missing: dict[str, list[str]] = defaultdict(list)
    for node in all_operators(graph):
        if node.op not in known:
            missing[node.op].append(node.name)
    if missing:
        lines = [
            f"  {name}: {len(nodes)} node{'s' if len(nodes) > 1 else ''}: "
            + ", ".join(f'"{n}"' for n in nodes)
            for name, nodes in sorted(missing.items())
        ]
        raise UnsupportedOpError("the model uses unsupported operators:\n" + "\n".join(lines))
