"""What README says to type exists, and its tables are those of the code."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import rten_aot
from rten_aot.cli import COMMANDS, choices, command_module, ops
from rten_aot.importer.registry import load_all
from rten_aot.runtime.__main__ import parser as runtime_parser

ROOT = Path(__file__).resolve().parents[1]
BUNDLE = ("example.py", "rten_aot_runtime.py")
"""What --bundle writes."""
PAGES = ("README.md", "CONTRIBUTING.md", "examples/README.md", "passes/README.md")
TABLE = re.compile(r"(<!-- operators: begin [^\n]*-->\n).*?(<!-- operators: end -->)", re.DOTALL)


def blocks(page: str, language: str) -> Iterator[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    yield from re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.DOTALL)


def command_lines() -> list[tuple[str, str]]:
    lines = [(page, line) for page in PAGES for b in blocks(page, "sh") for line in b.splitlines()]
    return [(page, line) for page, line in lines if line]


@pytest.mark.parametrize(("page", "line"), command_lines())
def test_commands_exist(page: str, line: str) -> None:
    program, *words = shlex.split(line, comments=True)
    match program, words:
        case "rten-aot", [name, *rest]:
            assert name in COMMANDS
            parser = command_module(name).build_parser()
            parser.parse(choices.join_features(rest, parser.option_strings))
        case "make", [target]:
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            assert re.search(rf"^{target}:", makefile, re.M)
        case "python", ["-m", "rten_aot.runtime", *rest]:
            runtime_parser().parse_args(rest)
        case "python", [script, *_]:
            assert (ROOT / script).is_file() or script in BUNDLE
        case "pip", ["install", package]:
            extras = re.fullmatch(r"rten-aot(?:\[([a-z,]+)\])?", package)
            assert extras, package
            known = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
            for extra in extras[1].split(",") if extras[1] else ():
                assert re.search(rf"^{extra} = \[", known, re.M), extra
        case _:
            assert program in ("cc", "scp"), line


def test_make_targets_named_in_the_text_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in PAGES:
        for target in re.findall(r"`make ([\w-]+)`", (ROOT / page).read_text(encoding="utf-8")):
            assert re.search(rf"^{target}:", makefile, re.M), (page, target)


def test_python_names_exist() -> None:
    code = "".join(blocks("README.md", "python"))
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Attribute(value=ast.Name(id="rten_aot"), attr=name):
                assert name in rten_aot.__all__


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        if not link.startswith("https://"):
            assert (ROOT / page).parent.joinpath(link).exists(), link


def test_operator_table_is_current(update_golden: bool) -> None:
    path = ROOT / "README.md"
    text = path.read_text(encoding="utf-8")
    table = ops.markdown(load_all())
    expected, count = TABLE.subn(lambda m: f"{m[1]}{table}\n{m[2]}", text)
    assert count == 1
    if update_golden:
        path.write_text(expected, encoding="utf-8")
    else:
        assert text == expected, "make golden brings the table up to date"


def test_changelog_and_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[(.+?)\]", text, re.M)
    assert headings[0] == "Unreleased" or headings[0] == rten_aot.__version__
