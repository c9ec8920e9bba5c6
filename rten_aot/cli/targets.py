"""``rten-aot targets``: the names that --target takes."""

from __future__ import annotations

from rten_aot.cli.parser import Parser
from rten_aot.cli.text import align
from rten_aot.extras import import_compiler

_EPILOG = """\
Besides these, --target takes "llvm" with the options -mcpu, -mattr and -mtriple. Names joined by
commas are for a library that takes the best of them that the CPU allows: aarch64,neoverse-n1.
"""


def main(words: list[str]) -> int:
    """Print the table; returns the exit code."""
    build_parser().parse(words)
    targets = import_compiler("rten_aot.targets")
    print("\n".join(align(list(targets.descriptions().items()), indent="")))
    return 0


def build_parser() -> Parser:
    """The arguments of the command: none."""
    return Parser("targets", "List the names that --target takes.", epilog=_EPILOG)
