"""``rten-aot targets``: the names that --target takes."""

from __future__ import annotations

from rten_aot.cli.parser import Parser
from rten_aot.cli.text import align
from rten_aot.extras import import_compiler

_EPILOG = """\
CPUs and features have LLVM's names; what all CPUs of an architecture have is not listed. Besides
these, --target takes "llvm" with the options -mcpu, -mattr and -mtriple. Names joined by commas
are for a library that takes the best of them that the CPU allows: aarch64,neoverse-n1.
"""


def main(words: list[str]) -> int:
    """Print the table; returns the exit code."""
    build_parser().parse(words)
    targets = import_compiler("rten_aot.targets")
    rows = [("target", "CPU", "what it is", "what the CPU must have")]
    for name, text in targets.descriptions().items():
        machine = targets.get_machine(name)
        rows.append((name, machine.cpu, text, ", ".join(machine.features) or "-"))
    print("\n".join(align(rows, indent="")))
    return 0


def build_parser() -> Parser:
    """The arguments of the command: none."""
    return Parser("targets", "List the names that --target takes.", epilog=_EPILOG)
