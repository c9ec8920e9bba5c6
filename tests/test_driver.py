"""``compile`` as a whole: what it tells while it works, and what it leaves behind when it fails."""

from __future__ import annotations

import os
import stat
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rten_aot
from rten_aot import driver
from rten_aot.dialect import registry as dialect
from rten_aot.errors import Ended
from rten_aot.format.graph import Constant, Graph, Node, OpNode, Value
from tests.codegen.nets import Net, assert_right, feed, write_net
from tests.support.rten_writer import write_model

NATIVE = "llvm -mcpu=native"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_net(tmp_path / "net.rten")


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, watched."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_the_library_lies_beside_the_model_by_default(source: Path, scratch: Path) -> None:
    path = rten_aot.compile(source, target=NATIVE, opt_level=1)
    assert path == source.with_suffix(".so")
    assert_right(rten_aot.load(path).run(feed()), feed())
    assert files(source.parent) == ["net.rten", "net.so"]
    assert files(scratch) == []


def test_file_modes(source: Path, tmp_path: Path) -> None:
    """Others may read what was made, if the umask lets them; a mode that was set stays."""
    for emit, out in (("lib", tmp_path / "a.so"), ("relax", tmp_path / "a.relax")):
        made = rten_aot.compile(source, out, target=NATIVE, opt_level=0, emit=emit)  # type: ignore[arg-type]
        assert stat.S_IMODE(made.stat().st_mode) & 0o644 == 0o644


def test_progress_names_the_stages_in_order(source: Path, tmp_path: Path) -> None:
    seen: list[tuple[str, float]] = []
    rten_aot.compile(
        source, tmp_path / "x.so", target=NATIVE, progress=lambda *step: seen.append(step)
    )
    times = [seconds for _, seconds in seen]
    assert times == sorted(times)
    assert times[0] >= 0
    names = [name for name, _ in seen]
    assert names[:3] == ["reading", "importing", "optimising"]
    scheduling = [name for name in names if name.startswith("scheduling")]
    count = len(scheduling)
    assert scheduling == [f"scheduling kernel {i + 1} of {count}" for i in range(count)]
    assert names[3 + count :] == ["generating machine code", "linking"]


def test_explain_says_what_was_done_to_which_kernel(source: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    rten_aot.compile(source, tmp_path / "x.so", target=NATIVE, explain=lines.append)
    assert lines
    assert all(line and line == line.strip() for line in lines)
    assert any("conv" in line for line in lines)


def test_dimensions_and_shapes(source: Path, tmp_path: Path) -> None:
    path = rten_aot.compile(
        source, tmp_path / "x.so", target=NATIVE, opt_level=0,
        dims={"count": 1}, shapes={"image": ["n", 3, 8, 8]},
    )  # fmt: skip
    shapes = {t.name: t.shape for t in rten_aot.load(path).inputs}
    assert shapes == {"image": ("n", 3, 8, 8), "rows": (1,)}


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"target": "x86-64-v33"}, rten_aot.TargetError, 'unknown target "x86-64-v33"'),
        ({"target": "llvm -mcpu=nativ"}, rten_aot.TargetError, 'unknown CPU "nativ"'),
        ({"shapes": {"imag": [1]}}, rten_aot.CompileError, '"imag"'),
        ({"shapes": {"image": [1, 3]}}, rten_aot.ShapeError, '"image"'),
        ({"dims": {"batsch": 1}}, rten_aot.CompileError, '"batsch"'),
        ({"symbol_prefix": "a-b"}, rten_aot.CompileError, '"a-b"'),
        ({"shapes": {"image": ["b", 4, 8, 8]}}, rten_aot.ShapeError, '"node_conv"'),
    ],
)
def test_what_was_asked_for_is_wrong(
    source: Path,
    tmp_path: Path,
    options: dict[str, object],
    kind: type[Exception],
    message: str,
) -> None:
    with pytest.raises(kind, match=message):
        rten_aot.compile(source, tmp_path / "x.so", **{"target": NATIVE, **options})  # type: ignore[arg-type]
    assert not (tmp_path / "x.so").exists()


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        rten_aot.compile(tmp_path / "none.rten", target=NATIVE)
    (tmp_path / "bad.rten").write_bytes(b"no model at all, but long enough")
    with pytest.raises(rten_aot.ModelFormatError, match=r"not a \.rten model"):
        rten_aot.compile(tmp_path / "bad.rten", target=NATIVE)
    assert files(tmp_path) == ["bad.rten"]


@pytest.mark.parametrize("emit", ["lib", "relax", "header"])
def test_folders_that_do_not_exist_are_told_before_the_work(
    source: Path, tmp_path: Path, emit: str
) -> None:
    stages: list[str] = []
    with pytest.raises(OSError, match="nowhere"):
        rten_aot.compile(
            source, tmp_path / "nowhere" / "x.so", target=NATIVE, emit=emit,  # type: ignore[arg-type]
            progress=lambda name, _seconds: stages.append(name),
        )  # fmt: skip
    assert stages == []


def test_the_output_is_a_folder(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(OSError, match="out"):
        rten_aot.compile(source, tmp_path / "out", target=NATIVE)
    assert files(tmp_path) == ["net.rten"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    (folder / "x.so").write_text("the one before")
    folder.chmod(0o555)
    try:
        with pytest.raises(PermissionError):
            rten_aot.compile(source, folder / "x.so", target=NATIVE)
        assert (folder / "x.so").read_text() == "the one before"
    finally:
        folder.chmod(0o755)


def unsupported(path: Path) -> Path:
    """A model with an operator that does not take what it gets."""
    net = Net()
    x = net.input("x", (2, 3))
    return net.write(path, net.op("MatMul", x, np.ones((4, 2), np.float32), name="product"))


@pytest.mark.parametrize("emit", ["lib", "obj", "relax", "tir", "llvm", "asm"])
def test_a_model_that_fails_leaves_the_old_file(tmp_path: Path, scratch: Path, emit: str) -> None:
    model = unsupported(tmp_path / "bad.rten")
    out = tmp_path / "out"
    out.write_text("the one before")
    with pytest.raises(rten_aot.ShapeError, match='"node_product"'):
        rten_aot.compile(model, out, target=NATIVE, emit=emit)  # type: ignore[arg-type]
    assert out.read_text() == "the one before"
    assert files(tmp_path) == ["bad.rten", "out"]


@pytest.mark.parametrize(
    "stage", ["reading", "optimising", "scheduling kernel 2", "generating machine code", "linking"]
)
def test_an_interrupt_at_any_stage_leaves_nothing_behind(
    source: Path, tmp_path: Path, scratch: Path, stage: str
) -> None:
    out = tmp_path / "out.so"
    out.write_text("the one before")

    def interrupt(name: str, _seconds: float) -> None:
        if name.startswith(stage):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rten_aot.compile(source, out, target=NATIVE, progress=interrupt)
    assert out.read_text() == "the one before"
    assert files(tmp_path) == ["net.rten", "out.so"]
    # And the compiler still works.
    rten_aot.compile(source, out, target=NATIVE)
    assert_right(rten_aot.load(out).run(feed()), feed())


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), Ended(143)])
def test_an_interrupt_while_tvm_calls_back(
    source: Path, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """It stays what it is on its way through TVM's own code."""

    def interrupted(*_operands: object, **_attrs: object) -> None:
        raise error

    own = dialect.definition("conv")
    monkeypatch.setitem(dialect._OPS, own.name, replace(own, te=interrupted))
    with pytest.raises(type(error)) as raised:
        rten_aot.compile(source, target=NATIVE)
    if isinstance(error, Ended):
        assert raised.value.code == 143  # type: ignore[attr-defined]
    assert files(tmp_path) == ["net.rten"]
    monkeypatch.undo()
    rten_aot.compile(source, target=NATIVE)


def test_an_interrupt_while_a_text_is_written(
    source: Path, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "generate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rten_aot.compile(source, tmp_path / "out.s", target=NATIVE, emit="asm")
    assert files(tmp_path) == ["net.rten"]


def test_constants_that_fail_are_left_to_the_run(tmp_path: Path) -> None:
    """Only a run may fail by values, so a branch that is never taken may hold nonsense."""

    def branch(build: str) -> Graph:
        net = Net()
        x = net.add(Value("x", None, None))
        if build == "divide":
            quotient = net.op(
                "Div", np.array([1], np.int32), np.array([0], np.int32), name="quotient"
            )
            out = net.op("Add", x, quotient, name="sum")
        else:
            out = net.op("Neg", x, name="negated")
        return Graph(net.nodes, (), (out,), (x,))

    nodes: list[Node] = [
        Value("x", (3,), "int32"),
        Value("c", (), "int32"),
        Value("y", None, None),
        OpNode(
            "choice", "If", (1,), (2,),
            {"then_branch": branch("divide"), "else_branch": branch("negate")},
        ),
    ]  # fmt: skip
    model = write_model(Graph(nodes, (0, 1), (2,)), tmp_path / "branches.rten")
    loaded = rten_aot.load(rten_aot.compile(model, target=NATIVE))
    x = np.array([1, 2, 3], np.int32)
    np.testing.assert_array_equal(loaded(x, 0)[0], -x)
    with pytest.raises(rten_aot.ModelRunError, match="division by zero"):
        loaded(x, 1)
    np.testing.assert_array_equal(loaded(x, 0)[0], -x)


def test_threads_may_compile_at_the_same_time(source: Path, tmp_path: Path) -> None:
    faults: list[BaseException] = []

    def work(number: int) -> None:
        try:
            out = tmp_path / f"{number}.so"
            model = rten_aot.load(rten_aot.compile(source, out, target=NATIVE, opt_level=number))
            assert_right(model.run(feed()), feed())
        except BaseException as err:
            faults.append(err)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults[0]


def test_a_model_of_constants_only(tmp_path: Path) -> None:
    nodes: list[Node] = [Constant("k", np.array([1, 2], np.float32))]
    model = write_model(Graph(nodes, (), (0,)), tmp_path / "k.rten")
    loaded = rten_aot.load(rten_aot.compile(model, target=NATIVE))
    np.testing.assert_array_equal(loaded.run({})["k"], [1, 2])
