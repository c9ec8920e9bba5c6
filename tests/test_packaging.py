"""What is packaged is what is in the tree, and works from where a wheel puts it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TOPS = {"rten_aot": "rten_aot", "passes": "rten_aot.passes", "targets": "rten_aot.targets"}


@pytest.fixture(scope="module")
def project(root: Path) -> dict[str, Any]:
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    table: dict[str, Any] = tomllib.loads(text)
    return table


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy, so that nothing stale is packed and nothing is left behind."""
    pytest.importorskip("setuptools", minversion="77", reason="PEP 639 licence fields")
    copy = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, copy)
    for name in TOPS:
        shutil.copytree(root / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    command += ["--disable-pip-version-check", "--wheel-dir", str(out), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = out.glob("*.whl")
    return path


def packages(root: Path) -> set[str]:
    """The packages in the tree by import name."""
    found = set()
    for top, name in TOPS.items():
        for path in (root / top).rglob("*.py"):
            inner = path.parent.relative_to(root / top).parts
            found.add(".".join([name, *inner]))
    return found


def test_pyproject_lists_every_package(root: Path, project: dict[str, Any]) -> None:
    assert set(project["tool"]["setuptools"]["packages"]) == packages(root)


@pytest.mark.parametrize("top", TOPS)
def test_every_folder_with_modules_is_a_package(root: Path, top: str) -> None:
    for path in (root / top).rglob("*.py"):
        assert (path.parent / "__init__.py").is_file(), path.parent


@pytest.mark.parametrize("name", ["passes", "targets"])
def test_mapped_packages_refuse_their_folder_names(root: Path, name: str) -> None:
    code = f"import {name}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False
    )
    assert f"ImportError: import rten_aot.{name}" in done.stderr


def test_wheel_holds_the_tree(root: Path, wheel: Path) -> None:
    expected = set()
    for top, name in TOPS.items():
        for path in (root / top).rglob("*"):
            data = path.suffix in {".py", ".c", ".h", ".fbs"} or path.name == "py.typed"
            if data and "__pycache__" not in path.parts:
                inner = path.relative_to(root / top)
                expected.add(str(Path(*name.split("."), inner)))
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == expected


def test_wheel_carries_licence_and_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (entry,) = (name for name in names if name.endswith("entry_points.txt"))
        assert "rten-aot = rten_aot.cli:main" in archive.read(entry).decode()
        assert any(name.endswith("LICENSE") for name in names)


def test_what_installing_the_runtime_brings(wheel: Path) -> None:
    """NumPy, and less than a megabyte to download; all else is behind an extra."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        needed = re.findall(r"^Requires-Dist: (.*)$", archive.read(name).decode(), re.M)
    assert [text.split(">")[0] for text in needed if "extra ==" not in text] == ["numpy"]
    assert wheel.stat().st_size < 1_000_000


def test_installed_tree_works(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = (
        "import rten_aot, rten_aot.passes, rten_aot.targets, rten_aot.driver, pathlib\n"
        "assert pathlib.Path(rten_aot.get_include(), 'rten_aot.h').is_file()\n"
        "print(rten_aot.passes.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-P" if sys.version_info >= (3, 11) else "-s", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()) == tmp_path / "site/rten_aot/passes/__init__.py"
