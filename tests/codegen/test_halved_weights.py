"""Libraries with weights stored as float16: their answers, their size, what they say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import rten_aot
from rten_aot import driver
from rten_aot.cli.artifact import read_metadata
from rten_aot.errors import CompileError
from rten_aot.options import Weights
from rten_aot.targets import get_machine, get_machines
from rten_aot.targets.common.choices import Choice
from tests.codegen.nets import Array, Net
from tests.codegen.test_levels import HERE
from tests.edge.emulation import Emulated, Wasm, quick_on

NATIVE = "llvm -mcpu=native"
FEW_ULPS = 4
PRECISION = 2.0**-11
"""Of float16: what one rounding loses at most."""


def weight(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32) / 8


def same(w: Array) -> Array:
    return w


def rounded(w: Array) -> Array:
    """What remains of a weight that is stored as float16."""
    return w.astype(np.float16).astype(np.float32)


def conv(net: Net, x: int, w: Array, name: str, pads: int = 1, **attrs: Any) -> int:
    geometry = {"groups": 1, "strides": [1, 1], "dilations": [1, 1], "pads": [pads] * 4, **attrs}
    return net.op("Conv", x, w, name=name, auto_pad="NotSet", **geometry)


def write_net(path: Path, form: Callable[[Array], Array] = same) -> Path:
    """All kinds of products but Winograd's, and a table, their weights put in a form.

    Depthwise kernels and small weights keep theirs. Inputs: image (batch, 24, 9, 9), rows (count).
    """
    net = Net()
    image, rows = net.input("image", ("batch", 24, 9, 9)), net.input("rows", ("count",), "int32")
    y = conv(net, image, form(weight(128, 24, 3, 3)), "strided", strides=[2, 2])
    y = conv(net, y, weight(128, 1, 3, 3), "depthwise", groups=128)
    y = conv(net, y, form(weight(74, 64, 1, 1)), "grouped", pads=0, groups=2)
    y = net.op(
        "ConvTranspose", y, form(weight(74, 20, 2, 2)), name="transposed", auto_pad="NotSet",
        pads=[0] * 4, groups=1, strides=[2, 2], output_padding=[0, 0],
    )  # fmt: skip
    y = net.op("GlobalAveragePool", y, name="pool")
    y = net.op("Flatten", y, name="flat", axis=1)
    y = net.op("MatMul", y, form(weight(20, 200)), name="product")
    y = net.op("MatMul", y, weight(200, 3), name="small")
    table = net.op("Gather", form(weight(300, 21)), rows, name="chosen", axis=0)
    return net.write(path, y, table)


FEED = {
    "image": np.random.default_rng(0).standard_normal((3, 24, 9, 9), np.float32),
    "rows": np.array([7, -1, 0, 299], np.int32),
}


def write_winograd(path: Path) -> Path:
    net = Net()
    image = net.input("image", (1, 32, 12, 12))
    return net.write(path, conv(net, image, weight(40, 32, 3, 3), "winograd"))


def write_recurrent(path: Path, form: Callable[[Array], Array] = same) -> Path:
    net = Net()
    x = net.input("x", ("steps", 2, 12))
    y = net.op(
        "LSTM", x, form(weight(1, 160, 12)), form(weight(1, 160, 40)), name="lstm",
        direction="Forward", hidden_size=40,
    )  # fmt: skip
    gru = {"direction": "Reverse", "hidden_size": 40}
    sizes = ((1, 120, 12), (1, 120, 40))
    after, before = (
        net.op(
            "GRU", x, *(form(weight(*s)) for s in sizes), name=name, linear_before_reset=k, **gru
        )
        for k, name in enumerate(("after", "before"))
    )
    return net.write(path, y, after, before)


def answers(library: Path, inputs: Mapping[str, Array]) -> list[Array]:
    with rten_aot.load(library, num_threads=2) as model:
        return list(model.run(inputs).values())


def loss(got: Array, want: Array) -> float:
    """What part of the answer was lost, taken as a vector."""
    return float(np.linalg.norm((got - want).ravel()) / np.linalg.norm(want.ravel()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the net, the net of rounded weights, and each compiled for this machine."""
    path = tmp_path_factory.mktemp("halves")
    for name, form in (("net", same), ("rounded", rounded)):
        write_net(path / f"{name}.rten", form)
        rten_aot.compile(path / f"{name}.rten", path / f"{name}.so", target=NATIVE)
    rten_aot.compile(path / "net.rten", path / "halved.so", target=NATIVE, weights="fp16")
    return path


def test_answers_are_those_of_rounded_weights(folder: Path) -> None:
    halved, want, plain = (
        answers(folder / f"{name}.so", FEED) for name in ("halved", "rounded", "net")
    )
    for got, expected in zip(halved, want, strict=True):
        np.testing.assert_array_max_ulp(got, expected, FEW_ULPS)
    for got, exact in zip(halved, plain, strict=True):
        assert 0 < loss(got, exact) < 2 * PRECISION


def test_machines_without_an_instruction_for_it(folder: Path, tmp_path: Path) -> None:
    target = {"x86_64": "x86-64-v2"}.get(get_machine("llvm").arch)
    if target is None:
        pytest.skip("every CPU of this architecture has one")
    got, want = (
        answers(rten_aot.compile(folder / f"{name}.rten", tmp_path / f"{name}.so", target=target,
                                 weights=weights), FEED)
        for name, weights in (("net", "fp16"), ("rounded", "fp32"))
    )  # fmt: skip
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_max_ulp(a, b, FEW_ULPS)


def test_the_file_is_about_half_as_large(folder: Path) -> None:
    halved, plain = (read_metadata(folder / f"{name}.so")["sizes"] for name in ("halved", "net"))
    kept = 4 * (128 * 9 + 200 * 4)  # depthwise and small
    saved = plain["weights"] - halved["weights"]
    assert saved == pytest.approx((plain["weights"] - kept) / 2, rel=0.01)
    sizes = [(folder / f"{name}.so").stat().st_size for name in ("net", "halved")]
    assert abs(sizes[0] - sizes[1] - saved) < 16 * 1024  # pages, and code


def test_metadata_tell(folder: Path) -> None:
    assert read_metadata(folder / "halved.so")["model"]["weights"] == "fp16"
    assert read_metadata(folder / "net.so")["model"]["weights"] == "fp32"


def test_the_same_bytes_every_time(folder: Path, tmp_path: Path) -> None:
    again = rten_aot.compile(
        folder / "net.rten", tmp_path / "halved.so", target=NATIVE, weights="fp16"
    )
    assert again.read_bytes() == (folder / "halved.so").read_bytes()


def test_winograd_rounds_what_it_stores(tmp_path: Path) -> None:
    source = write_winograd(tmp_path / "net.rten")
    image = {"image": np.random.default_rng(1).standard_normal((1, 32, 12, 12), np.float32)}
    notes: list[str] = []
    halved = rten_aot.compile(
        source, tmp_path / "halved.so", target=NATIVE, weights="fp16", explain=notes.append
    )
    assert any("algorithm winograd" in note for note in notes)
    assert any(note.startswith("weights in fp16: ") for note in notes)
    plain = rten_aot.compile(source, tmp_path / "plain.so", target=NATIVE)
    (got,), (want,) = answers(halved, image), answers(plain, image)
    assert 0 < loss(got, want) < PRECISION


@pytest.mark.parametrize("target", [NATIVE, "llvm"])
def test_recurrent_layers(target: str, tmp_path: Path) -> None:
    x = {"x": np.random.default_rng(2).standard_normal((7, 2, 12), np.float32)}
    notes: list[str] = []
    halved = rten_aot.compile(
        write_recurrent(tmp_path / "net.rten"), tmp_path / "halved.so", target=target,
        weights="fp16", explain=notes.append,
    )  # fmt: skip
    plain = rten_aot.compile(
        write_recurrent(tmp_path / "rounded.rten", rounded), tmp_path / "plain.so", target=target
    )
    for got, want in zip(answers(halved, x), answers(plain, x), strict=True):
        np.testing.assert_array_max_ulp(got, want, FEW_ULPS)
    # Units come in blocks of 16.
    recurrent, of_inputs = 4 * 40 * 48 * (4 + 3 + 3), 4 * 12 * 48 * (4 + 3 + 3)
    bytes_ = recurrent + of_inputs
    assert f"weights in fp16: {bytes_ // 2} bytes in place of {bytes_}" in notes


@pytest.mark.skipif(not HERE, reason="no levels of this architecture have names")
def test_levels_share_halved_weights(folder: Path, tmp_path: Path) -> None:
    library = rten_aot.compile(
        folder / "net.rten", tmp_path / "levels.so", target=HERE, weights="fp16"
    )
    sizes = [read_metadata(path)["sizes"] for path in (library, folder / "halved.so")]
    assert sizes[0]["weights"] < 1.1 * sizes[1]["weights"]
    if get_machines(HERE)[-1].runs_here():
        for got, want in zip(
            answers(library, FEED), answers(folder / "rounded.so", FEED), strict=True
        ):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_tuning_records_are_followed(folder: Path, tmp_path: Path) -> None:
    keys: list[str] = []
    rten_aot.compile(
        folder / "net.rten", tmp_path / "a.so", target=NATIVE, weights="fp16",
        explain=lambda note: keys.append(note.split(": width")[0]),
    )  # fmt: skip
    (key,) = {key for key in keys if key.startswith("gemm ") and key.endswith("x20x200")}
    notes: list[str] = []
    tuned = driver.compile(
        folder / "net.rten", tmp_path / "tuned.so", target=NATIVE, weights="fp16",
        choices={key: Choice(width=get_machine(NATIVE).lanes("float32"), rows=2)},
        explain=notes.append,
    )  # fmt: skip
    assert "tuning: 1 of 1 records are of problems in this model" in notes
    for got, want in zip(answers(tuned, FEED), answers(folder / "rounded.so", FEED), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_archives(folder: Path, tmp_path: Path) -> None:
    halved, plain = (
        rten_aot.compile(
            folder / "net.rten", tmp_path / f"{weights}.a", emit="static", libc="musl",
            weights=weights,
        ).stat().st_size
        for weights in get_args(Weights)[::-1]
    )  # fmt: skip
    saved = plain - halved
    assert saved == pytest.approx(read_metadata(folder / "halved.so")["sizes"]["weights"], rel=0.2)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_only_what_is_packed_is_halved(level: int, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        rten_aot.compile(folder / "net.rten", tmp_path / "net.so", weights="fp16", opt_level=level)
    assert str(caught.value) == (
        f"weights are stored in fp16 at -O3 only, not at -O{level}\n"
        "hint: compile with fp32, or at -O3"
    )


def test_not_for_gpus(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        rten_aot.compile(folder / "net.rten", tmp_path / "net.so", weights="fp16", target="cuda")
    assert str(caught.value) == (
        "weights are stored in fp16 for CPUs only\nhint: for GPUs there is --precision fp16"
    )


def test_unknown_kinds_of_weights(folder: Path) -> None:
    with pytest.raises(CompileError) as caught:
        rten_aot.compile(folder / "net.rten", weights="int8")  # type: ignore[arg-type]
    assert str(caught.value) == 'weights "int8" are unknown\nhint: one of fp32, fp16'


@quick_on("cortex-a53", "armv7", "riscv64v", "wasm32")
def test_other_machines(machine: Emulated | Wasm, folder: Path, tmp_path: Path) -> None:
    machine.require()
    library = rten_aot.compile(
        folder / "net.rten", tmp_path / f"libmodel{machine.suffix}", target=machine.target,
        weights="fp16",
    )  # fmt: skip
    want = answers(folder / "rounded.so", FEED)
    for got, expected in zip(machine.run(library, FEED), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
