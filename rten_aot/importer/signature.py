"""The inputs of a model: names, types and the symbolic sizes that they share."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tvm import relax, tirx

from rten_aot.errors import ShapeError
from rten_aot.format.graph import Dim, Graph, Value
from rten_aot.importer.context import can_exist


@dataclass(frozen=True)
class TensorSpec:
    """A graph input or output as users see it: ints, dimension names and None for unnamed sizes."""

    name: str
    dtype: str
    shape: tuple[Dim, ...]


def unique_names(names: Iterable[str], prefix: str) -> list[str]:
    """Names under which inputs or outputs are known.

    An empty name becomes ``<prefix>_<i>``; repeats get ``_2``, ``_3`` … appended.
    """
    result: list[str] = []
    taken: set[str] = set()
    for i, given in enumerate(names):
        name = base = given or f"{prefix}_{i}"
        count = 1
        while name in taken:
            count += 1
            name = f"{base}_{count}"
        taken.add(name)
        result.append(name)
    return result


class Signature:
    """The inputs of a graph with the shapes and sizes that the user fixed applied.

    Raises:
        ShapeError: ``shapes`` or ``dims`` name what the model has not, differ in rank or contradict
            each other.
    """

    def __init__(
        self,
        graph: Graph,
        shapes: Mapping[str, Sequence[Dim]] | None,
        dims: Mapping[str, int] | None,
    ) -> None:
        values = [graph.nodes[i] for i in graph.inputs]
        self.names = unique_names((v.name for v in values), "input")
        self._sizes: dict[str, tirx.Var] = {}
        self._places: dict[str, str] = {}
        declared = dict(zip(self.names, values, strict=True))
        shapes = dict(shapes or {})
        _reject_unknown("input", shapes, self.names)
        final: dict[str, tuple[Dim, ...]] = {}
        for name, value in declared.items():
            assert isinstance(value, Value)
            final[name] = _shape(name, value.shape, shapes.get(name))
        fixed = _fixed_dims(declared, shapes, dims or {}, final)
        self.inputs: list[TensorSpec] = []
        self.params: list[relax.Var] = []
        for index, (name, value) in enumerate(declared.items()):
            assert isinstance(value, Value)
            shape = tuple(fixed.get(d, d) if isinstance(d, str) else d for d in final[name])
            if not can_exist([d for d in shape if isinstance(d, int)]):
                raise ShapeError(f'no memory can hold input "{name}" of shape {list(shape)}')
            dtype = value.dtype or "float32"
            self.inputs.append(TensorSpec(name, dtype, shape))
            for axis in range(len(shape)):
                self._places[f"?{index}_{axis}"] = f"{name}.shape[{axis}]"
            sizes = [self._size(d, f"{index}_{axis}") for axis, d in enumerate(shape)]
            self.params.append(relax.Var(_identifier(name), relax.TensorType(sizes, dtype)))

    @property
    def sizes(self) -> list[tirx.Var]:
        """The size variables in the inputs' shapes."""
        return list(self._sizes.values())

    @property
    def size_names(self) -> dict[str, str]:
        """Names of dimensions by the names of the variables that stand for them."""
        return {v.name: n for n, v in self._sizes.items() if not n.startswith("?")}

    @property
    def size_texts(self) -> dict[str, str]:
        """What messages call sizes, by the names of the variables that stand for them.

        A size without a name is called by its input and axis: ``x.shape[1]``.
        """
        return {v.name: self._places[n] if n.startswith("?") else n for n, v in self._sizes.items()}

    def dim(self, size: tirx.Expr) -> Dim:
        """What users see of a size: a number, a dimension's name or None."""
        if isinstance(size, tirx.IntImm):
            return int(size.value)
        return next(
            (n for n, v in self._sizes.items() if v.same_as(size) and not n.startswith("?")), None
        )

    def _size(self, dim: Dim, place: str) -> tirx.Expr:
        if isinstance(dim, int):
            return tirx.const(dim, "int64")
        key = f"?{place}" if dim is None else dim
        if key not in self._sizes:
            # Two names may give one identifier; the place makes it unique.
            name = f"{_identifier(dim)}_{place}" if dim else f"free_{place}"
            self._sizes[key] = tirx.Var(name, "int64")
        return self._sizes[key]


def _shape(
    name: str, declared: tuple[Dim, ...] | None, given: Sequence[Dim] | None
) -> tuple[Dim, ...]:
    if given is None:
        if declared is None:
            raise ShapeError(
                f'input "{name}" has no shape in the file', hint=f"give one: --shape {name}=1,3,…"
            )
        return declared
    if declared is not None and len(given) != len(declared):
        raise ShapeError(
            f'shape {list(given)} for input "{name}" has rank {len(given)}; '
            f"the model's is {list(declared)}, rank {len(declared)}"
        )
    for dim in given:
        if isinstance(dim, int) and dim < 0:
            raise ShapeError(f'shape {list(given)} for input "{name}" has a negative size')
    return tuple(given)


def _fixed_dims(
    declared: Mapping[str, object],
    shapes: Mapping[str, Sequence[Dim]],
    dims: Mapping[str, int],
    final: Mapping[str, tuple[Dim, ...]],
) -> dict[str, int]:
    """The values of dimension names, from ``dims`` and from the shapes that replace names."""
    fixed: dict[str, int] = {}

    def fix(dim: str, size: int, source: str) -> None:
        if fixed.setdefault(dim, size) != size:
            raise ShapeError(
                f'dimension "{dim}" is given two values, {fixed[dim]} and {size} (by {source})'
            )

    names = {d for shape in final.values() for d in shape if isinstance(d, str)}
    for input_name, given in shapes.items():
        value = declared[input_name]
        assert isinstance(value, Value)
        for old, new in zip(value.shape or (), given, strict=False):
            if isinstance(old, str):
                names.add(old)
                if isinstance(new, int):
                    fix(old, new, f'the shape of "{input_name}"')
    _reject_unknown("dimension", dims, sorted(names))
    for dim, size in dims.items():
        if size < 0:
            raise ShapeError(f'dimension "{dim}" cannot be {size}')
        fix(dim, size, "its own value")
    return fixed


def _reject_unknown(what: str, given: Iterable[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            listed = ", ".join(f'"{k}"' for k in known) or "none"
            hint = f'did you mean "{close[0]}"?' if close else None
            raise ShapeError(f'the model has no {what} "{name}"; it has: {listed}', hint=hint)


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name) or "_"
