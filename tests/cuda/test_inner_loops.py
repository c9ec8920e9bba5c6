"""What machine code is like: products keep their sums in registers, and nothing spills."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rten_aot
from rten_aot.codegen import nvrtc
from rten_aot.targets.cuda import product, tiles
from tests.cuda import ptx
from tests.cuda.ptx import Products
from tests.cuda.test_kernels import PRODUCTS, TILES
from tests.cuda.test_nvrtc import needs_nvrtc
from tests.models.conftest import available
from tests.support.cases import Case, Mode, write_cases
from tests.support.models import CASES
from tests.support.models import Case as ModelCase

pytestmark = needs_nvrtc


def conv(name: str, size: Sequence[int], out: int, kernel: int, stride: int = 1) -> Case:
    """A convolution of a picture of (batch, channels, height, width)."""
    weights = np.ones((out, size[1], kernel, kernel), np.float32)
    attrs = {"pads": [kernel // 2] * 4, "strides": [stride] * 2}
    return Case(name, "Conv", [np.ones(size, np.float32), weights], [], attrs=attrs, constant=[1])


def matmul(name: str, a: Sequence[int], b: Sequence[int], *, constant: bool = True) -> Case:
    inputs = [np.ones(a, np.float32), np.ones(b, np.float32)]
    return Case(name, "MatMul", inputs, [], constant=[1] if constant else [])


SHAPES = {
    "resnet50": [
        conv("stem", (1, 3, 224, 224), 64, 7, stride=2),
        conv("wide", (1, 64, 56, 56), 64, 3),
        conv("narrow", (1, 512, 7, 7), 512, 3),
        conv("shrinks", (1, 256, 56, 56), 128, 3, stride=2),
        conv("expands", (1, 64, 56, 56), 256, 1),
        conv("squeezed", (1, 16, 55, 55), 64, 1),
        conv("batch", (8, 256, 14, 14), 1024, 1),
        matmul("classes", (8, 2048), (2048, 1000)),
    ],
    "yolov8n": [
        conv("stem", (1, 3, 640, 640), 16, 3, stride=2),
        conv("second", (1, 16, 320, 320), 32, 3, stride=2),
        conv("neck", (1, 384, 40, 40), 128, 1),
        conv("head", (1, 80, 80, 80), 80, 3),
        conv("batch", (8, 32, 80, 80), 32, 3),
    ],
    "minilm": [
        matmul("project", (32, 128, 384), (384, 384)),
        matmul("expand", (1, 128, 384), (384, 1536)),
        matmul("shrink", (32, 128, 1536), (1536, 384)),
        matmul("scores", (8, 12, 128, 32), (8, 12, 32, 128), constant=False),
        matmul("attend", (8, 12, 128, 128), (8, 12, 128, 32), constant=False),
    ],
    "integers": [
        Case("gemm", "MatMulInteger", [np.ones((64, 96), np.uint8), np.ones((96, 128), np.int8)],
             [], constant=[1]),
        Case("conv", "ConvInteger",
             [np.ones((1, 16, 28, 28), np.uint8), np.ones((32, 16, 3, 3), np.int8)],
             [], attrs={"pads": [1] * 4}, constant=[1]),
    ],
}  # fmt: skip


@dataclass(frozen=True)
class Made:
    """The text of kernels, and what the compiler explained."""

    text: str
    notes: Sequence[str]


def made(source: Path, **options: Any) -> Made:
    notes: list[str] = []
    out = source.with_suffix(".cu")
    rten_aot.compile(
        source, out, target="cuda -arch=sm_80", emit="cuda", explain=notes.append, **options
    )
    return Made(out.read_text(), notes)


def made_of(cases: Sequence[Case], folder: Path, mode: Mode = "static") -> Made:
    write_cases(cases, mode, folder / "model.rten")
    return made(folder / "model.rten")


IS_PRODUCT = re.compile("matmul|gemm|conv")
TILES_NOTE = re.compile(r"(\w+): matrix product of (?:.* times )?(\w+|\?)x(\w+|\?)x.*, tiles of ")
SMALL_NOTE = re.compile(
    r"(\w+): no tiles: (columns are [0-7], fewer than 8|terms are [0-3], fewer than 4"
    r"|rows are [0-7], fewer than 8, and terms lie together)$"
)
"""A product that may go without."""


def assert_busy(model: Made) -> dict[str, Products]:
    """Check each kernel that makes products, and that those without tiles are too small for them.

    32 sums a thread at least, and 8 multiplications for each load of shared memory. But for
    results that a warp has not so many of, and products of a few rows, which take as long as it
    takes to read their weights: of these the compiler drops the sums of rows that there are not.
    """
    tiled = {m[1]: m for note in model.notes if (m := TILES_NOTE.match(note))}
    small = {m[1] for note in model.notes if (m := SMALL_NOTE.match(note))}
    kernels = ptx.kernels(nvrtc.compile_image(model.text, 80, ptx=True).data.decode())
    names = {n for n in kernels if IS_PRODUCT.search(n)}
    assert not {n for n in names if _plain(n) not in tiled.keys() | small}
    found = {n: ptx.read_products(k) for n, k in kernels.items() if any("4rows[" in x for x in k)}
    assert {_plain(name) for name in found} == tiled.keys()
    for name, products in found.items():
        note = tiled[_plain(name)]
        rows, columns = (1 << 12 if size == "?" else int(size) for size in note.groups()[1:])
        share = 2 if rows <= 16 or rows * columns <= 32 * 32 else 1
        assert products.sums >= 32 // share, (name, products)
        assert products.loads > 0, (name, products)
        assert products.products >= 8 // share * products.loads, (name, products)
        assert products.narrowest == 16, (name, products)
    return found


def _plain(name: str) -> str:
    """The name of the model's kernel, which may be several, and in two versions."""
    return re.sub(r"^rten_k\d+_|(_\d+)?(_wide)?$", "", name)


def assert_no_spills(model: Made) -> None:
    for arch in (80, 90):
        for name, used in nvrtc.compile_image(model.text, arch).kernels.items():
            assert used.spill_stores == used.spill_loads == 0, (arch, name, used)
            if IS_PRODUCT.search(name) and not name.endswith("_wide"):
                assert used.registers <= 128, (arch, name, used)


@pytest.mark.parametrize("mode", ["static", "dynamic"])
@pytest.mark.parametrize("network", SHAPES)
def test_real_shapes(network: str, mode: Mode, tmp_path: Path) -> None:
    model = made_of(SHAPES[network], tmp_path, mode)
    assert len(assert_busy(model)) >= len(SHAPES[network])
    assert_no_spills(model)


@pytest.mark.parametrize("tile", TILES)
def test_all_tiles(tile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "choose_tile", lambda *_: TILES[tile])
    # Where large tiles are worth it there are too many to share their terms.
    parts = 1 if tile == "large" else 3
    monkeypatch.setattr(product, "count_parts", lambda *_: parts)
    model = made_of(PRODUCTS, tmp_path)
    assert len(assert_busy(model)) == len(PRODUCTS)
    assert_no_spills(model)


def test_products_stay_in_loops(tmp_path: Path) -> None:
    """Of 16 terms a turn; those that have no more go on in fours."""
    sizes = {"short": 16, "long": 17}
    cases = [matmul(name, (64, terms), (terms, 64)) for name, terms in sizes.items()]
    short, long = assert_busy(made_of(cases, tmp_path)).values()
    assert (short.loops, long.loops) == (1, 1)
    assert (short.products, long.products) == (4 * 32, 16 * 32)


def test_threads_with_few_sums_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "choose_tile", lambda *_: tiles.Tile(32, 32, 4, 4))
    model = made_of([matmul("few", (64, 64), (64, 64))], tmp_path)
    with pytest.raises(AssertionError, match="sums=16, products=256, loads=32, narrowest=16"):
        assert_busy(model)


def test_products_without_tiles_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(product, "contraction", lambda *_: None)
    model = made_of([matmul("naive", (64, 64), (64, 64))], tmp_path)
    with pytest.raises(AssertionError, match="rten_k0_"):
        assert_busy(model)


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ((64, 64), (64, 7), "columns are 7, fewer than 8"),
        ((64, 3), (3, 64), "terms are 3, fewer than 4"),
        ((64, 64), (64, 8), None),
        ((3, 64), (64, 64), None),
    ],
)
def test_small_products_say_why(
    a: tuple[int, int], b: tuple[int, int], reason: str | None, tmp_path: Path
) -> None:
    model = made_of([matmul("small", a, b)], tmp_path)
    assert len(assert_busy(model)) == (reason is None)
    assert [m[2] for note in model.notes if (m := SMALL_NOTE.match(note))] == (
        [] if reason is None else [reason]
    )


LOOP = """
.visible .entry f(
{lines}
$L1:
ld.shared.v4.f32 {{%f1, %f2, %f3, %f4}}, [%rd1];
ld.shared.f32 %f5, [%rd1+64];
fma.rn.f32 %f10, %f1, %f5, %f12;
fma.rn.f32 %f12, %f2, %f5, %f10;
fma.rn.f32 %f11, %f3, %f5, %f13;
fma.rn.f32 %f13, %f4, %f5, %f11;
fma.rn.f32 %f20, %f1, %f30, %f21;
mad.lo.s32 %r1, %r2, %r3, %r4;
@%p1 bra $L1;
bra.uni $L2;
$L2:
"""


def test_reading() -> None:
    """Sums go round in a loop; a factor that is not in shared memory makes no product."""
    (lines,) = ptx.kernels(LOOP.format(lines="")).values()
    assert ptx.read_products(lines) == Products(2, 4, 2, 4, 1)
    straight = [line for line in lines if "bra $L1" not in line]
    assert ptx.read_products(straight).loops == 0
    assert ptx.read_products(["ret;"]) == Products(0, 0, 0, 0, 0)


@pytest.mark.models
@pytest.mark.parametrize("free", [False, True], ids=["fixed", "free"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_models(case: ModelCase, free: bool, tmp_path: Path) -> None:
    """Every product of a real model has tiles, or is too small for them, and nothing spills."""
    source = tmp_path / "model.rten"
    source.symlink_to(available(case.model))
    model = made(source, shapes=None if free else case.shapes())
    assert_busy(model)
    assert_no_spills(model)
