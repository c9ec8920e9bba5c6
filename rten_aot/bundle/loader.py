"""``rten_aot.runtime`` as one file that imports nothing but NumPy."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable
from importlib import resources

_PACKAGE = "rten_aot.runtime"
_MODULES = ("errors", "abi", "inputs", "device", "library", "outputs", "model", "files", "__main__")
"""In the order in which they need each other."""

_HEAD = '''\
"""Describe, run and time libraries that rten-aot compiled, where there is NumPy and no rten-aot.

In a program: load("model.so").run({{"x": array}}), as with rten_aot.load. Python 3.10 or later.
Made by {maker} of its package rten_aot.runtime; licensed under Apache-2.0, as that is.
"""

from __future__ import annotations

'''


def loader_source(maker: str) -> str:
    """The text of the file.

    The modules share one namespace in it: what they define at their top has different names.
    """
    imports: set[tuple[str, str]] = set()
    bodies = []
    for module in _MODULES:
        text = resources.files(_PACKAGE).joinpath(f"{module}.py").read_text(encoding="utf-8")
        tree = ast.parse(text)
        nodes = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
        imports.update(_imported(nodes))
        rest = text.splitlines()[nodes[-1].end_lineno if nodes else 1 :]
        # abi is imported as a module.
        bodies.append(re.sub(r"\babi\.(?=[A-Za-z])", "", "\n".join(rest)).strip("\n"))
    return _HEAD.format(maker=maker) + "\n\n\n".join([_import_lines(imports), *bodies]) + "\n"


def _imported(nodes: Iterable[ast.Import | ast.ImportFrom]) -> set[tuple[str, str]]:
    """Module and name (empty for a module as a whole) of what does not come from the package."""
    found = set()
    for node in nodes:
        for alias in node.names:
            name = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
            if isinstance(node, ast.Import):
                found.add((name, ""))
            elif node.module != "__future__" and not f"{node.module}".startswith(_PACKAGE):
                found.add((f"{node.module}", name))
    return found


def _import_lines(imports: Iterable[tuple[str, str]]) -> str:
    names: dict[str, list[str]] = defaultdict(list)
    for module, name in sorted(imports):
        names[module].append(name)
    lines = [f"import {module}" for module, of in names.items() if of == [""]]
    lines += [f"from {module} import {', '.join(of)}" for module, of in names.items() if of != [""]]
    numpy = [line for line in lines if line.startswith("import numpy")]
    return "\n".join([*(line for line in lines if line not in numpy), "", *numpy])
