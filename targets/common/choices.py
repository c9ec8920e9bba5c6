"""What is chosen for a convolution or matrix product: by the cost model, or by a record."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from rten_aot.errors import CompileError
from rten_aot.targets.base import Machine
from rten_aot.targets.common.packing import columns_in_copy, lanes, rows, width
from rten_aot.targets.common.problems import Problem
from rten_aot.targets.common.stages import Stage
from rten_aot.targets.common.stmts import TILE_BYTES

Algorithm: TypeAlias = Literal["direct", "winograd"]

_T = TypeVar("_T")
_KEY = "rten.key"
_PREFIX = "rten.choice."
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "conv": ("algorithm", "width", "rows", "run", "block", "ahead"),
    "depthwise": ("width", "rows", "group"),
    "gemm": ("width", "rows", "run", "ahead"),
    "matmul": ("width", "rows", "run"),
    "matmul_transposed": ("width", "rows", "run"),
    "attention": ("width", "rows"),
}
"""What there is to choose, by kind of problem."""
_LONGEST_RUN = 1 << 16
_LARGEST_BLOCK = 64 << 20
"""Bytes of a block of Winograd tiles at most."""


@dataclass(frozen=True)
class Choice:
    """How to compute a problem; what is None is for the cost model to decide."""

    algorithm: Algorithm | None = None
    """Of a convolution."""
    width: int | None = None
    """Columns of a packed block and of a register tile; channels of a depthwise tile; keys."""
    rows: int | None = None
    """Rows of a register tile at most; pixels of a depthwise tile."""
    run: int | None = None
    """Tiles that share a block of columns before the next block is taken up."""
    block: int | None = None
    """Winograd tiles that are transformed together."""
    ahead: bool | None = None
    """Whether the next block of weights is fetched while a tile is computed."""
    group: int | None = None
    """Channels of a depthwise convolution that are computed tile by tile along a row."""

    @property
    def fields(self) -> dict[str, Any]:
        """What is chosen, by name, in the order of the fields."""
        every = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
        return {name: value for name, value in every if value is not None}

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Choice:
        """The choice with these fields.

        Raises:
            ValueError: a field is unknown, or its value has the wrong type.
        """
        for name, value in fields.items():
            if name not in FIELDS:
                raise ValueError(f'"{name}" is no choice; choices: {", ".join(FIELDS)}')
            if name == "algorithm":
                fits = value in get_args(Algorithm)
            else:
                fits = type(value) is (bool if name == "ahead" else int)
            if not fits:
                raise ValueError(f'"{name}" cannot be {value!r}')
        return cls(**fields)

    def __str__(self) -> str:
        return ", ".join(f"{name} {_shown(value)}" for name, value in self.fields.items())


FIELDS = tuple(f.name for f in dataclasses.fields(Choice))
"""The names of all choices."""
NOTHING = Choice()
"""The choice that leaves all to the cost model."""


def check(machine: Machine, key: str, choice: Choice) -> None:
    """Refuse what kernels cannot be made of.

    Raises:
        CompileError: names the record by its key, and the field.
    """
    problem = Problem.parse(key)
    if problem is None:
        raise CompileError(f'tuning record "{key}": there is no such problem')
    for field, fault in faults(machine, problem, choice):
        raise CompileError(f'tuning record "{key}", field "{field}": {fault}')


def faults(machine: Machine, problem: Problem, choice: Choice) -> Iterator[tuple[str, str]]:
    """What is wrong with a choice for a problem: fields, and what is to be said of them."""
    strange = [field for field in choice.fields if field not in _FIELDS[problem.kind]]
    for field in strange:
        kind = problem.kind.split("_")[0]
        yield field, f"there is no such choice for {'an' if kind == 'attention' else 'a'} {kind}"
    if strange:
        return
    if choice.algorithm == "winograd" and not problem.allows_winograd:
        yield "algorithm", "Winograd needs a plain kernel of 3x3: no strides, dilations, groups"
    if choice.width is not None and (fault := _width_fault(machine, problem, choice.width)):
        yield "width", fault
    elif choice.rows is not None and (fault := _rows_fault(machine, problem, choice)):
        yield "rows", fault
    if choice.run is not None and not 1 <= choice.run <= _LONGEST_RUN:
        yield "run", f"{choice.run} is not between 1 and {_LONGEST_RUN}"
    if choice.block is not None and (fault := _block_fault(problem, choice)):
        yield "block", fault
    if choice.group is not None and (fault := _group_fault(machine, problem, choice)):
        yield "group", fault


def _width_fault(machine: Machine, problem: Problem, columns: int) -> str | None:
    vector, count = machine.lanes("float32"), problem.columns
    if columns < 1:
        return f"{columns} is not positive"
    if count is not None and count < vector and columns < vector:
        if columns & (columns - 1):
            return f"{columns} is no part of a vector of {vector}"
    elif columns % vector:
        return f"{columns} is no whole number of vectors of {vector}"
    reads_all = problem.kind == "depthwise" or problem.kind == "matmul"
    if reads_all and count is not None and columns > max(1, count):
        return f"{columns} is more than the {count} that there are"
    if not _fits(machine, columns, 1, problem.kind):
        return f"{columns} are too many for the {machine.vector_registers} vector registers"
    return None


def _rows_fault(machine: Machine, problem: Problem, choice: Choice) -> str | None:
    columns, count = choice.width or width(machine, problem), choice.rows or 0
    if count < 1:
        return f"{count} is not positive"
    if problem.kind == "depthwise":
        too_many = not _fits(machine, columns, count, problem.kind)
        spills = too_many or columns * count * 4 > TILE_BYTES
    else:
        spills = count > rows(machine, columns)
    if problem.kind == "attention":  # its other product has tiles of as many rows
        spills |= count > rows(machine, columns_in_copy(machine, problem.sizes["channels"][0]))
    return f"a tile of {count}x{columns} does not fit the registers" if spills else None


def _fits(machine: Machine, columns: int, count: int, kind: str) -> bool:
    vectors = columns // lanes(machine, columns)
    left, right = (0, vectors + 1) if kind == "depthwise" else machine.factor_vectors(vectors)
    needed = (vectors + left) * count + right
    return needed <= machine.vector_registers and columns * 4 <= TILE_BYTES


def _block_fault(problem: Problem, choice: Choice) -> str | None:
    if choice.algorithm != "winograd":
        return 'needs the field "algorithm" to be "winograd"'
    channels = sum(size or 0 for name in ("channels", "out") for size in problem.sizes[name])
    most = max(1, _LARGEST_BLOCK // (16 * channels * 4))
    if not 1 <= (choice.block or 0) <= most:
        return f"{choice.block} is not between 1 and {most}"
    return None


def _group_fault(machine: Machine, problem: Problem, choice: Choice) -> str | None:
    block = choice.width or width(machine, problem)
    if choice.group is None or choice.group < 1 or choice.group % block:
        return f"{choice.group} is no whole number of blocks of {block}"
    return None


class Decisions:
    """How one kernel is computed: what a record says, else what the cost model says, and why."""

    def __init__(self, key: str | None = None, record: Choice = NOTHING) -> None:
        self.key = key
        self.record = record
        self._made: dict[str, Any] = {}
        self._reasons: dict[str, str] = {}

    @classmethod
    def of(cls, stage: Stage) -> Decisions:
        """Those still to be made for a stage, whose annotations hold what ``annotations`` gives."""
        key = stage.annotations.get(_KEY)
        given = {name: stage.int_annotation(_PREFIX + name, -1) for name in FIELDS[1:]}
        record: dict[str, Any] = {name: value for name, value in given.items() if value >= 0}
        if "ahead" in record:
            record["ahead"] = bool(record["ahead"])
        return cls(None if key is None else str(key), Choice(**record))

    def annotations(self) -> dict[str, int | str]:
        """What a stage is to be annotated with so that the rules follow the record."""
        fields = {n: int(v) for n, v in self.record.fields.items() if n != "algorithm"}
        own = {} if self.key is None else {_KEY: self.key}
        return own | {_PREFIX + name: value for name, value in fields.items()}

    def take(self, field: str, model: _T, why: str) -> _T:
        """The value of a field: the record's, else the model's, which has its reasons."""
        recorded: _T | None = getattr(self.record, field)
        value = model if recorded is None else recorded
        self._made[field] = value
        self._reasons[field] = why if recorded is None else "tuned"
        return value

    def know(self, field: str, value: object) -> None:
        """A field whose value was taken earlier."""
        self._made[field] = value

    @property
    def choice(self) -> Choice:
        """All that was taken."""
        return Choice(**self._made)

    def __str__(self) -> str:
        parts = []
        for name, value in self.choice.fields.items():
            why = f" ({self._reasons[name]})" if name in self._reasons else ""
            parts.append(f"{name} {_shown(value)}{why}")
        return (f"{self.key}: " if self.key else "") + ", ".join(parts)


def _shown(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
