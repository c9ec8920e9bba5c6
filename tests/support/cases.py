"""Operator tests as tables: the ONNX node, its inputs and what NumPy makes of them.

A ``Suite`` compiles all its cases at once for each mode, since compiling one by one takes long; a
case that spoils the batch is found by halving it. The way is that of a user: ONNX, rten-convert,
``rten_aot.compile``, ``load``, ``run``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from rten_convert.converter import Metadata, graph_from_onnx_graph, serialize_model

import rten_aot
from rten_aot.format.graph import Constant, Dim, DType, Graph, Node, OpNode, Value
from tests.support.rten_writer import write_model
from tests.support.tolerances import Class, assert_matches

Array: TypeAlias = npt.NDArray[Any]
Results: TypeAlias = "Array | Sequence[Array]"
Mode: TypeAlias = Literal["static", "dynamic", "constant", "folded"]
MODES: tuple[Mode, ...] = ("static", "dynamic", "constant", "folded")
THREADS = (1, 2)

Run: TypeAlias = "Callable[[Sequence[Case], Mode], list[list[list[Array]]]]"
"""Runs cases in one model; the results by case, number of threads, output."""


@dataclass(frozen=True, eq=False)
class Case:
    """One operator with its inputs (None: left out) and the results that are expected.

    ``expected`` is a function of the inputs or the results themselves. The function gets floats as
    float64 unless the tolerance is exact.

    Modes: "static" has the shapes in the file, "dynamic" a separate symbol for every size,
    "constant" stores all inputs but the first in the file, "folded" all of them. Inputs in
    ``constant`` are stored in every mode; sizes in ``fixed``, pairs of input and axis, are never
    symbols.

    ``attrs`` are those of ONNX; ``rten`` are those of the .rten schema, for what rten-convert
    refuses: such cases are written without it.
    """

    id: str
    op: str
    inputs: Sequence[Array | None]
    expected: Callable[..., Results] | Sequence[Array]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    rten: Mapping[str, Any] | None = None
    outputs: int = 1
    tolerance: Class = "exact"
    constant: Sequence[int] = ()
    fixed: Sequence[tuple[int, int]] = ()
    modes: Sequence[Mode] = ("static", "dynamic", "constant")

    def stored(self, mode: Mode) -> set[int]:
        """Positions of the inputs that are part of the file."""
        places = set(range(len(self.inputs)))
        match mode:
            case "folded":
                return places
            case "constant":
                return (places - {0}) | set(self.constant)
            case _:
                return set(self.constant)

    def distinct(self, mode: Mode) -> bool:
        """Whether the mode differs from the ones before it in ``MODES``."""
        if mode == "constant":
            return self.stored(mode) != self.stored("static")
        free = set(range(len(self.inputs))) - self.stored(mode)
        return mode != "dynamic" or any(
            x is not None and x.ndim for i, x in enumerate(self.inputs) if i in free
        )

    def want(self) -> list[Array]:
        """The expected results."""
        if not callable(self.expected):
            return list(self.expected)
        inputs = list(self.inputs)
        if self.tolerance != "exact":
            inputs = [
                x.astype(np.float64) if x is not None and x.dtype == np.float32 else x
                for x in inputs
            ]
        with np.errstate(all="ignore"):
            result = self.expected(*inputs)
        return [np.asarray(r) for r in result] if isinstance(result, (tuple, list)) else [
            np.asarray(result)
        ]  # fmt: skip

    def nodes(self, operands: Sequence[str], results: Sequence[str]) -> list[NodeProto]:
        """What computes the results in ONNX; an operand that is left out has an empty name."""
        return [helper.make_node(self.op, operands, results, name=self.id, **self.attrs)]


class Suite:
    """The cases of one family. ``parameters`` and ``check`` make one pytest test of each."""

    def __init__(self, cases: Sequence[Case]) -> None:
        names = [case.id for case in cases]
        assert len(set(names)) == len(names), sorted({n for n in names if names.count(n) > 1})
        self._cases = cases
        self._outcomes: dict[Mode, dict[str, list[list[Array]] | Exception]] = {}

    def parameters(self) -> list[Any]:
        """Cases and modes for ``pytest.mark.parametrize("case, mode", …)``."""
        return [
            pytest.param(case, mode, id=f"{case.id}-{mode}")
            for mode in MODES
            for case in self.cases(mode)
        ]

    def check(self, case: Case, mode: Mode) -> None:
        """Compare a case's results, for each number of threads, with the expected ones."""
        if mode not in self._outcomes:
            self._outcomes[mode] = outcomes(self.cases(mode), mode)
        outcome = self._outcomes[mode][case.id]
        if isinstance(outcome, Exception):
            raise outcome
        for results in outcome:
            for got, want in zip(results, case.want(), strict=True):
                assert_matches(got, want, case.tolerance)

    def cases(self, mode: Mode) -> list[Case]:
        """Those that the mode has."""
        return [case for case in self._cases if mode in case.modes and case.distinct(mode)]


def outcomes(
    cases: Sequence[Case], mode: Mode, run: Run | None = None
) -> dict[str, list[list[Array]] | Exception]:
    """Results by case, a list for each number of threads, or why there are none.

    ``run`` is what takes the place of ``run_cases``.
    """
    written = [case for case in cases if case.rten is not None]
    converted = [case for case in cases if case.rten is None]
    return _halving(written, mode, run or run_cases) | _halving(converted, mode, run or run_cases)


def _halving(
    cases: Sequence[Case], mode: Mode, run: Run
) -> dict[str, list[list[Array]] | Exception]:
    if not cases:
        return {}
    try:
        return dict(zip([case.id for case in cases], run(cases, mode), strict=True))
    except Exception as err:
        if len(cases) == 1:
            return {cases[0].id: err}
        half = len(cases) // 2
        return _halving(cases[:half], mode, run) | _halving(cases[half:], mode, run)


def run_case(case: Case, mode: Mode = "static", threads: int = 1) -> list[Array]:
    """The results of one case in a model of its own."""
    return run_cases([case], mode, threads=(threads,))[0][0]


def run_cases(
    cases: Sequence[Case], mode: Mode, threads: Sequence[int] = THREADS
) -> list[list[list[Array]]]:
    """Results of all cases in one model: by case, number of threads, output."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.rten"
        write_cases(cases, mode, model)
        library = rten_aot.compile(model, Path(folder) / "model.so", target="llvm -mcpu=native")
        runs = []
        for count in threads:
            loaded = rten_aot.load(library, num_threads=count)
            runs.append(loaded.run(feeds(cases, mode)))
    return [
        [[run[f"c{i}_y{k}"] for k in range(case.outputs)] for run in runs]
        for i, case in enumerate(cases)
    ]


def write_cases(cases: Sequence[Case], mode: Mode, path: Path) -> None:
    """Write the cases, which are all of one kind, as a .rten file."""
    write = convert if cases[0].rten is None else write_directly
    write(cases, mode, path)


def feeds(cases: Sequence[Case], mode: Mode) -> dict[str, Array]:
    """The inputs of a model of these cases, in its order."""
    return {
        f"c{i}_x{j}": x
        for i, case in enumerate(cases)
        for j, x in enumerate(case.inputs)
        if x is not None and j not in case.stored(mode)
    }


def _dims(case: Case, mode: Mode, i: int, j: int, x: Array) -> list[int | str]:
    return [
        f"c{i}_x{j}_{k}" if mode == "dynamic" and (j, k) not in case.fixed else size
        for k, size in enumerate(x.shape)
    ]


def convert(cases: Sequence[Case], mode: Mode, path: Path) -> None:
    """Write the cases as a .rten file by way of ONNX and rten-convert."""
    path.write_bytes(bytes(_converted(_onnx_graph(cases, mode))))


def _converted(graph: GraphProto) -> Any:
    return serialize_model(graph_from_onnx_graph(graph), Metadata(onnx_hash="0" * 64), None)


def _onnx_graph(cases: Sequence[Case], mode: Mode) -> GraphProto:
    nodes: list[NodeProto] = []
    inputs: list[ValueInfoProto] = []
    outputs: list[ValueInfoProto] = []
    stored: list[TensorProto] = []
    for i, case in enumerate(cases):
        names = []
        for j, x in enumerate(case.inputs):
            names.append("" if x is None else f"c{i}_x{j}")
            if x is None:
                continue
            if j in case.stored(mode):
                stored.append(numpy_helper.from_array(np.asarray(x), names[-1]))
                continue
            kind = helper.np_dtype_to_tensor_dtype(x.dtype)
            dims = _dims(case, mode, i, j, x)
            inputs.append(helper.make_tensor_value_info(names[-1], kind, dims))
        results = [f"c{i}_y{k}" for k in range(case.outputs)]
        nodes += case.nodes(names, results)
        outputs += [helper.make_empty_tensor_value_info(name) for name in results]
    return helper.make_graph(nodes, "cases", inputs, outputs, stored)


def write_directly(cases: Sequence[Case], mode: Mode, path: Path) -> None:
    """Write the cases as a .rten file in the schema's own words."""
    nodes: list[Node] = []
    inputs: list[int] = []
    outputs: list[int] = []

    def add(node: Node) -> int:
        nodes.append(node)
        return len(nodes) - 1

    for i, case in enumerate(cases):
        operands: list[int | None] = []
        for j, x in enumerate(case.inputs):
            name = f"c{i}_x{j}"
            if x is None:
                operands.append(None)
            elif j in case.stored(mode):
                operands.append(add(Constant(name, x.astype(rten_dtype(x)))))
            else:
                dims: tuple[Dim, ...] = tuple(_dims(case, mode, i, j, x))
                operands.append(add(Value(name, dims, rten_dtype(x))))
                inputs.append(len(nodes) - 1)
        results = [add(Value(f"c{i}_y{k}", None, None)) for k in range(case.outputs)]
        outputs += results
        add(OpNode(case.id, case.op, tuple(operands), tuple(results), dict(case.rten or {})))
    write_model(Graph(tuple(nodes), tuple(inputs), tuple(outputs)), path)


def rten_dtype(x: Array) -> DType:
    """The type that the array's elements have in a .rten model."""
    names: dict[str, DType] = {"float32": "float32", "int8": "int8", "uint8": "uint8"}
    return names.get(x.dtype.name, "int32")
