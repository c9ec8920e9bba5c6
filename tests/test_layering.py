"""Each layer imports only what its row of README's layer table lists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# What every layer but the run-time may import besides its row.
COMMON = ("errors", "diagnostics", "options", "extras", "files")
TVM = ("tvm", "tvm_ffi")
WITHOUT_TVM = ("runtime", "format", "interop", "bundle", "cli", *COMMON)
DYNAMIC = ("import_module", "import_compiler", "import_verify")


def layer_table() -> dict[str, tuple[str, ...]]:
    """README's table: a layer's module path below ``rten_aot`` and those that it may import."""
    table: dict[str, tuple[str, ...]] = {}
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for folder, allowed in re.findall(r"^\| `([\w/.]+)` \|[^|]*\| ([^|]*) \|$", text, re.M):
        name = folder.removeprefix("rten_aot/").removesuffix("/").removesuffix(".py")
        table[name] = tuple(re.findall(r"`([\w.]+)`", allowed))
    return table


def modules() -> Iterator[tuple[str, Path]]:
    """Every module's path below ``rten_aot`` and its file; the package itself is ``__init__``."""
    for top in (ROOT / "rten_aot", ROOT / "passes", ROOT / "targets"):
        base = top if top.name == "rten_aot" else ROOT
        for path in sorted(top.rglob("*.py")):
            parts = path.relative_to(base).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "__init__", path


def imports(name: str, path: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute name of everything that a module imports, late imports included."""
    package = ["rten_aot", *name.split(".")]
    if path.name != "__init__.py":
        package.pop()
    if name == "__init__":
        package = ["rten_aot"]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import():
                for alias in node.names:
                    yield node.lineno, alias.name
            case ast.ImportFrom():
                near = package[: len(package) - node.level + 1] if node.level else []
                origin = ".".join([*near, node.module or ""]).rstrip(".")
                for alias in node.names:
                    yield node.lineno, f"{origin}.{alias.name}"
            case ast.Call(func=ast.Name(id=function) | ast.Attribute(attr=function)):
                match node.args:
                    case [ast.Constant(value=str(text)), *_] if function in DYNAMIC:
                        yield node.lineno, text


def lies_in(name: str, places: tuple[str, ...]) -> bool:
    return any(name == place or name.startswith(place + ".") for place in places)


LAYERS = layer_table()
MODULES = dict(modules())


def test_the_table_lists_every_layer() -> None:
    tops = {name.partition(".")[0] for name in MODULES}
    assert tops - {"__init__", "__main__", *COMMON} == set(LAYERS)


def test_the_table_lists_only_what_exists() -> None:
    for allowed in LAYERS.values():
        for name in allowed:
            assert name in MODULES or name in {m.rpartition(".")[0] for m in MODULES}, name


@pytest.mark.parametrize("name", MODULES)
def test_imports(name: str) -> None:
    layer = name.partition(".")[0]
    if layer == "__init__":
        return  # test_isolation.py checks that it loads nothing
    common = () if layer == "runtime" else COMMON
    allowed = (layer, *common, *LAYERS.get(layer, ("cli",) if layer == "__main__" else ()))
    wrong = []
    for line, target in imports(name, MODULES[name]):
        if layer in WITHOUT_TVM and lies_in(target, TVM):
            wrong.append(f"{MODULES[name]}:{line}: imports {target}")
        if not lies_in(target, ("rten_aot",)):
            continue
        # `from rten_aot import compile`, and `import rten_aot` itself: the public interface.
        inner = target.removeprefix("rten_aot").removeprefix(".")
        public = inner.partition(".")[0] not in {m.partition(".")[0] for m in MODULES}
        if layer in ("cli", "driver", "records") if public else lies_in(inner, allowed):
            continue
        wrong.append(f"{MODULES[name]}:{line}: {layer} may not import {target}")
    assert not wrong, "\n".join(wrong)


def test_mapped_packages_are_not_imported_by_their_folders() -> None:
    for name, path in MODULES.items():
        for line, target in imports(name, path):
            assert not lies_in(target, ("passes", "targets", "tests")), f"{path}:{line}"
