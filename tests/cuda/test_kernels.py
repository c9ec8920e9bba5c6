"""What the kernels are like: tiles, registers, shared memory, and the versions that are rare."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import rten_aot
from rten_aot.codegen import nvrtc
from rten_aot.runtime import ModelRunError
from rten_aot.targets.cuda import kernel, pointwise, product, rows, tiles
from tests.cuda import emulator, ptx
from tests.cuda.emulator import Emulator
from tests.cuda.test_nvrtc import needs_nvrtc
from tests.support.cases import Array, Case, feeds, write_cases
from tests.support.tolerances import assert_matches

RANDOM = np.random.default_rng(0)
TILES = {
    "large": tiles.LARGE,
    "small": tiles.SMALL,
    "tall": tiles.TALL,
    "short": tiles.SHORT,
    "wide": tiles.WIDE,
}


def numbers(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def matmul(name: str, a: tuple[int, ...], b: tuple[int, ...], *, constant: bool = True) -> Case:
    return Case(
        name, "MatMul", [numbers(*a), numbers(*b)], np.matmul,
        tolerance="approximate", constant=[1] if constant else [],
    )  # fmt: skip


def conv(name: str, x: tuple[int, ...], w: tuple[int, ...], groups: int = 1) -> Case:
    def expected(x: Array, w: Array) -> Array:
        per_group = w.shape[1]
        pads = ((0, 0), (0, 0), (w.shape[2] // 2,) * 2, (w.shape[3] // 2,) * 2)
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, pads), w.shape[2:], (2, 3))
        parts = [
            np.einsum(
                "nchwyx,ocyx->nohw",
                windows[:, g * per_group : (g + 1) * per_group],
                w[g * w.shape[0] // groups : (g + 1) * w.shape[0] // groups],
            )
            for g in range(groups)
        ]
        return np.concatenate(parts, 1)

    pads = [w[2] // 2, w[3] // 2] * 2
    return Case(
        name, "Conv", [numbers(*x), numbers(*w)], expected,
        attrs={"pads": pads, "group": groups}, tolerance="approximate", constant=[1],
    )  # fmt: skip


PRODUCTS = [
    matmul("even", (160, 64), (64, 144)),
    matmul("odd", (77, 37), (37, 51)),
    matmul("batches", (3, 33, 20), (3, 20, 40), constant=False),
    conv("conv", (2, 12, 9, 11), (20, 12, 3, 3)),
    conv("three_channels", (1, 3, 20, 20), (16, 3, 3, 3)),
    conv("groups", (1, 24, 8, 8), (32, 12, 3, 3), groups=2),
]


def compile_text(cases: Sequence[Case], folder: Path, target: str = "cuda -arch=sm_80") -> str:
    """The CUDA text for the cases."""
    write_cases(cases, "static", folder / "model.rten")
    out = rten_aot.compile(folder / "model.rten", folder / "model.cu", target=target, emit="cuda")
    return out.read_text()


def check(
    cases: Sequence[Case], folder: Path, patch: pytest.MonkeyPatch, target: str = "cuda"
) -> None:
    """Compile the cases in one model, run it on the emulator, compare."""
    patch.setattr(nvrtc, "compile_image", emulator.text_image)
    write_cases(cases, "static", folder / "model.rten")
    library = rten_aot.compile(folder / "model.rten", folder / "model.so", target=target)
    with rten_aot.load(library) as model:
        results = model.run(feeds(cases, "static"))
    for index, case in enumerate(cases):
        assert_matches(results[f"c{index}_y0"], case.want()[0], case.tolerance)


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("parts", [1, 3])
def test_products(
    tile: str, parts: int, tmp_path: Path, gpu: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(product, "choose_tile", lambda *_: TILES[tile])
    monkeypatch.setattr(product, "count_parts", lambda *_: parts)
    check(PRODUCTS, tmp_path, monkeypatch)


def rounded(x: Array, precision: str) -> Array:
    """What a factor is in tensor cores."""
    if precision == "fp16":
        return x.astype(np.float16).astype(np.float32)
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x1000) & 0xFFFFE000).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("tile", [name for name in TILES if name != "large"])
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("precision", ["tf32", "fp16"])
def test_tensor_cores(
    precision: str,
    parts: int,
    tile: str,
    tmp_path: Path,
    gpu: Emulator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The numbers are those of factors that are rounded: sums are exact."""
    monkeypatch.setattr(product, "choose_tile", lambda *_: TILES[tile])
    monkeypatch.setattr(product, "count_parts", lambda *_: parts)
    cases = [
        dataclasses.replace(
            case,
            expected=[_expected(case, [rounded(np.asarray(x), precision) for x in case.inputs])],
        )
        for case in PRODUCTS
    ]
    check(cases, tmp_path, monkeypatch, f"cuda -precision={precision}")


def _expected(case: Case, inputs: Sequence[Array]) -> Array:
    return dataclasses.replace(case, inputs=inputs).want()[0]


@needs_nvrtc
@pytest.mark.parametrize("precision", ["tf32", "fp16"])
def test_tensor_cores_are_used(precision: str, tmp_path: Path) -> None:
    text = compile_text(PRODUCTS, tmp_path, f"cuda -arch=sm_80 -precision={precision}")
    kernels = ptx.kernels(nvrtc.compile_image(text, 80, ptx=True).data.decode())
    products = [k for name, k in kernels.items() if re.search(r"(matmul|gemm|conv)\w*$", name)]
    assert sum("mma.sync.aligned" in "\n".join(k) for k in products) >= len(PRODUCTS) - 1
    for arch in (80, 90):
        for name, used in nvrtc.compile_image(text, arch).kernels.items():
            assert used.spill_stores == used.spill_loads == 0, name


@pytest.mark.parametrize(
    ("rows", "columns", "precision", "tile"),
    [
        (4096, 4096, "fp32", "large"),
        (4096, 4096, "fp16", "small"),
        (500, 500, "fp32", "small"),
        (4096, 32, "fp32", "tall"),
        (64, 32, "fp32", "short"),
        (32, 4096, "fp32", "wide"),
        (32, 4096, "tf32", "wide"),
    ],
)
def test_choice_of_tiles(
    rows: int, columns: int, precision: str, tile: str, tmp_path: Path
) -> None:
    factors = [np.ones((rows, 16), np.float32), np.ones((16, columns), np.float32)]
    write_cases([Case("a", "MatMul", factors, [])], "static", tmp_path / "a.rten")
    notes: list[str] = []
    rten_aot.compile(
        tmp_path / "a.rten", tmp_path / "a.cu", target=f"cuda -arch=sm_80 -precision={precision}",
        emit="cuda", explain=notes.append,
    )  # fmt: skip
    chosen = TILES[tile]
    wanted = (
        f"matmul: matrix product of {rows}x{columns}x16, tiles of {chosen.rows}x{chosen.columns}"
    )
    assert [note for note in notes if note.startswith(wanted)]


def test_long_indices(tmp_path: Path, gpu: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """What tensors of 2^30 elements or more get."""
    monkeypatch.setattr(kernel, "_MOST_ELEMENTS", 1)
    others = [
        Case("transpose", "Transpose", [numbers(40, 50)], np.transpose),
        Case("add", "Add", [numbers(7, 5), numbers(5)], np.add),
    ]
    assert "const int i" not in compile_text([*PRODUCTS, *others], tmp_path)
    check([*PRODUCTS, *others], tmp_path, monkeypatch)


def test_four_elements_a_thread(
    tmp_path: Path, gpu: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pointwise, "_WORTH_LANES", 1)
    monkeypatch.setattr(rows, "_WORTH_LANES", 1)
    cases = [
        Case("add", "Add", [numbers(6, 8), numbers(8)], np.add),
        Case("column", "Mul", [numbers(6, 8), numbers(6, 1)], np.multiply),
        conv("depthwise", (1, 8, 7, 9), (8, 1, 3, 3), groups=8),
        Case("mean", "ReduceMean", [numbers(3, 5, 8)], lambda x: x.mean(1, keepdims=True),
             attrs={"axes": [1]}, tolerance="approximate"),
    ]  # fmt: skip
    assert "float4" in compile_text(cases[:1], tmp_path)
    check(cases, tmp_path, monkeypatch)


def test_failures_name_the_node(
    tmp_path: Path, gpu: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc, "compile_image", emulator.text_image)
    case = Case("pick", "Gather", [numbers(3, 4), np.array([1], np.int32)], np.take)
    write_cases([case], "static", tmp_path / "model.rten")
    library = rten_aot.compile(tmp_path / "model.rten", tmp_path / "model.so", target="cuda")
    x = case.inputs[0]
    with rten_aot.load(library) as model:
        with pytest.raises(ModelRunError, match=r'node "pick" .*index 3'):
            model.run({"c0_x0": x, "c0_x1": np.array([3], np.int32)})
        (got,) = model(x, np.array([-1], np.int32))
    np.testing.assert_array_equal(got, np.asarray(x)[[-1]])
