"""The texts of a bundle, for models that make them hard."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rten_aot.bundle import library_name, new_files, texts
from rten_aot.bundle.kit import make_kit
from rten_aot.bundle.loader import loader_source
from tests.codegen.nets import build_program


def tensor(name: str, dtype: str, *shape: int | str | None) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": list(shape)}


def metadata(
    inputs: list[dict[str, Any]], outputs: list[dict[str, Any]], levels: tuple[str, ...] = ()
) -> dict[str, Any]:
    return {
        "abi": 1,
        "inputs": inputs,
        "outputs": outputs,
        "target": {"triple": "some-linux-gnu", "features": ["a", "b"], "levels": list(levels)},
        "sizes": {"code": 1000, "weights": 2000, "workspace": None},
        "versions": {"rten_aot": "1.2.3"},
    }


HARD = metadata(
    [
        tensor('a "b"\\ */ /* \n', "float32", "batch", None, 3),
        tensor("a__b__________", "int32"),
        tensor("int", "uint8", "Batch", "batch", 0),
        tensor("größe", "int8", 2),
        tensor("main", "float32", "DIM_", "*/"),
    ],
    [tensor('r"%s"??/\\', "float32", None), tensor("größe", "int8", "n")],
)


@pytest.mark.parametrize(
    "facts",
    [HARD, metadata([], [tensor("y", "float32")]), metadata([tensor("x", "float32", 1)], [])],
    ids=["names", "no-inputs", "no-outputs"],
)
def test_programs_are_valid(facts: dict[str, Any], tmp_path: Path) -> None:
    made = texts("libmodel.so", "rten_aot", facts)
    (tmp_path / "example.c").write_text(made["example.c"])
    compile_only = ("-c", "-pedantic", "-Wno-unused-command-line-argument")
    build_program(tmp_path, tmp_path / "example.c", *compile_only)
    tree = ast.parse(made["example.py"])
    names = {tensor["name"] for tensor in facts["inputs"]}
    found = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert names <= found


def test_names_in_programs() -> None:
    kit = make_kit("libmodel.so", "rten_aot", HARD)
    identifiers = [t.identifier for t in kit.inputs]
    assert len(set(identifiers)) == len(identifiers)
    assert kit.inputs[0].sizes[0] == kit.inputs[2].sizes[1] == "DIM_BATCH"
    assert kit.inputs[2].sizes[0] == "DIM_BATCH_2"
    assert kit.free["DIM_BATCH"] == "batch"
    assert list(kit.free.values())[1].startswith("axis 1 of a_")
    assert library_name("v2.große-3") == "libv2_gro_e_3.so"


def test_readme_tells_of_the_cpu_and_the_inputs() -> None:
    facts = metadata([tensor("x y", "float32", "n", 2)], [tensor("y", "int32")])
    text = texts("libmodel.so", "mine", facts)["README.md"]
    assert "  x y  float32  [n, 2]\n" in text
    assert "The examples take 1 for sizes that the model leaves open: DIM_N (n)." in text
    assert "`-DDIM_N=2`" in text
    assert "take\n`--shape 'x y=…,2'`.\n" in text
    assert "run libmodel.so --input 'x y=x0.npy' --output y.npz" in text
    assert "`mine.h`" in text
    assert "These begin with\n  `mine_`;" in text
    assert "must have the features a, b." in text
    facts["target"]["levels"] = ["good", "any"]
    text = texts("libmodel.so", "mine", facts)["README.md"]
    assert "It takes the first of these that the CPU can run: good, any." in text


def test_modules_of_the_loader_share_no_name() -> None:
    tree = ast.parse(loader_source("a test"))
    names = [n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    targets = [
        t
        for node in tree.body
        for t in (
            node.targets if isinstance(node, ast.Assign)
            else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
    ]  # fmt: skip
    names += [t.id for t in targets if isinstance(t, ast.Name)]
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_the_loader_imports_only_numpy(tmp_path: Path) -> None:
    text = loader_source("a test")
    modules = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(str(node.module).partition(".")[0])
    assert modules - set(sys.stdlib_module_names) == {"numpy"}
    path = tmp_path / "loader.py"
    path.write_text(text)
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout  # no name is undefined


def test_files_come_into_a_folder_when_all_is_well(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "kit"
    with new_files(folder) as new:
        (new / "x").write_text("old")
    (folder / "mine").write_text("kept")
    with new_files(folder) as new:
        (new / "x").write_text("new")
        assert (folder / "x").read_text() == "old"
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "x": "new",
        "mine": "kept",
    }


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail() -> None:
        with new_files(tmp_path / "kit") as new:
            (new / "x").write_text("half")
            raise ValueError("no model")

    with pytest.raises(ValueError, match="no model"):
        fail()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError), new_files(tmp_path / "file"):
        pass


def test_readme_of_a_model_for_gpus() -> None:
    facts = metadata([], [tensor("y", "float32")])
    assert "NVIDIA" not in texts("libmodel.so", "rten_aot", facts)["README.md"]
    facts["target"].update(kind="cuda", archs=["sm_80", "sm_90"])
    text = texts("libmodel.so", "rten_aot", facts)["README.md"]
    assert "It runs on NVIDIA GPUs: sm_80, sm_90, and later ones." in text
    assert "- Memory: weights are copied to the GPU once" in text
