"""``rten-aot ops``: the table of operators; the one in README.md is made by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, get_args

from rten_aot.cli.parser import Parser
from rten_aot.cli.text import align
from rten_aot.extras import import_compiler
from rten_aot.format.graph import DType
from rten_aot.format.schema import load_schema

if TYPE_CHECKING:
    from rten_aot.importer.registry import OpSpec


_ALL_TYPES = len(get_args(DType))
_HEAD = ("operator", "inputs", "types", "sizes", "limits")


def main(words: list[str]) -> int:
    """Print the table as the words say; returns the exit code."""
    args = build_parser().parse(words)
    specs = import_compiler("rten_aot.importer.registry").load_all()
    if args.markdown:
        print(markdown(specs))
    else:
        print("\n".join(align([_HEAD, *_rows(specs)], indent="")))
        print(_count(specs))
    return 0


def build_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser("ops", "List the operators of .rten models and what of them is supported.")
    parser.add_argument("--markdown", action="store_true", help="print README's table")
    return parser


def markdown(specs: Mapping[str, OpSpec]) -> str:
    """README's support table."""
    rows: list[str] = []
    for row in _rows(specs):
        cells = [cell.replace("|", "\\|") for cell in row]
        rows.append(f"| {' | '.join(cells)} |".replace("  |", " |"))
    head = f"| {' | '.join(name.capitalize() for name in _HEAD)} |"
    return "\n".join([_count(specs), "", head, "|---" * len(_HEAD) + "|", *rows])


def _rows(specs: Mapping[str, OpSpec]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name in sorted({*_schema_operators(), *specs}):
        spec = specs.get(name)
        if spec is None:
            rows.append((name, "", "", "", "not supported"))
        else:
            rows.append((name, spec.arity, _types(spec), _sizes(spec), spec.limits))
    return rows


def _types(spec: OpSpec) -> str:
    return "all" if len(spec.types) == _ALL_TYPES else ", ".join(spec.types)


def _sizes(spec: OpSpec) -> str:
    return "fixed, free, computed" if spec.data_dependent else "fixed, free"


def _count(specs: Mapping[str, OpSpec]) -> str:
    known = set(_schema_operators())
    return f"{len(known & specs.keys())} of the {len(known)} operators of the .rten format."


def _schema_operators() -> tuple[str, ...]:
    return load_schema().enums["OperatorType"].names
