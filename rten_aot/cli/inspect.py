"""``rten-aot inspect``: what is in a .rten model, or in a library compiled from one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rten_aot.cli.artifact import is_library, read_metadata
from rten_aot.cli.model_facts import model_facts
from rten_aot.cli.parser import Parser, file_path
from rten_aot.cli.text import align, bytes_text, shape_text


def main(words: list[str]) -> int:
    """Describe a file as the words say; returns the exit code."""
    args = build_parser().parse(words)
    library = is_library(args.file)
    facts = read_metadata(args.file) if library else model_facts(args.file)
    if args.json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
    else:
        lines = _library_lines(facts) if library else _model_lines(facts)
        print("\n".join([f"{args.file}: {lines[0]}", *lines[1:]]))
    return 0


def _model_lines(facts: Mapping[str, Any]) -> list[str]:
    operators = facts["operators"]
    lines = [
        f"{facts['format']} model, {facts['parameters']:,} parameters in "
        f"{bytes_text(facts['weight_bytes'])} of weights",
        f"sha256: {facts['sha256']}",
        *_tensor_lines("inputs", facts["inputs"]),
        *_tensor_lines("outputs", facts["outputs"]),
        f"operators: {sum(operators.values())}",
        *align([(name, str(count)) for name, count in operators.items()]),
        *_table_lines("metadata", facts["metadata"]),
    ]
    if facts["unsupported"]:
        lines += ["unsupported operators:", *(f"  {name}" for name in facts["unsupported"])]
    elif facts["unsupported"] is not None:
        lines += ["unsupported operators: none"]
    return lines


def _library_lines(facts: Mapping[str, Any]) -> list[str]:
    model = facts.get("model", {})
    sizes = {
        name: "depends on the shapes" if size is None else bytes_text(size)
        for name, size in facts.get("sizes", {}).items()
    }
    return [
        f"compiled model, interface version {facts['abi']}",
        *_tensor_lines("inputs", facts["inputs"]),
        *_tensor_lines("outputs", facts["outputs"]),
        *_table_lines("target", facts.get("target", {})),
        *_table_lines("sizes", sizes),
        *_table_lines("versions", facts.get("versions", {})),
        *_table_lines("model", {k: v for k, v in model.items() if k != "metadata"}),
        *_table_lines("metadata", model.get("metadata", {})),
        *_kernel_lines(facts.get("kernels", {})),
    ]


def _kernel_lines(kernels: Mapping[str, Mapping[str, Mapping[str, int]]]) -> list[str]:
    """What the kernels of a GPU use, by thread or (shared memory) by block."""
    rows = [
        (
            name,
            arch,
            f"{used['registers']} registers",
            f"{used['shared_bytes']} bytes shared",
            f"{used['spill_stores'] + used['spill_loads']} bytes spilled",
        )
        for name, by_arch in kernels.items()
        for arch, used in by_arch.items()
    ]
    return ["kernels:", *align(rows)] if rows else []


def _tensor_lines(title: str, tensors: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [(t["name"], t["dtype"] or "?", shape_text(t["shape"])) for t in tensors]
    return [f"{title}:", *align(rows)] if rows else [f"{title}: none"]


def _table_lines(title: str, table: Mapping[str, Any]) -> list[str]:
    rows = []
    for name, value in table.items():
        if value not in (None, "", [], {}):
            text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
            rows.append((name, text.replace("\n", " ")))
    return [f"{title}:", *align(rows)] if rows else []


def build_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(
        "inspect",
        "Show inputs, outputs, operators, sizes and metadata of a .rten model or a compiled one.",
        epilog="Needs NumPy only; with the compiler installed it also lists what it cannot compile."
        "\nA library is read, not loaded, so libraries for other machines can be looked into too.",
    )
    parser.add_argument("file", metavar="MODEL", type=file_path, help="a .rten model or a .so")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser
