"""Builds a library for GPUs around the model that fake_model.c writes by hand."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rten_aot.codegen import elf
from rten_aot.codegen.link import link
from rten_aot.runtime import Model

_HERE = Path(__file__).resolve().parent

# The values of `mode` in fake_model.c.
NORMAL, STRAY, DIVERGE, MISALIGN, GRID, EXHAUST, SHARED = range(7)

KERNELS = (_HERE / "fake_kernels.cu").read_text()

WEIGHTS = np.array([1, 2, 3, -4], np.float32)


def build_fake(
    folder: Path,
    *,
    name: str = "fake.so",
    archs: Sequence[str] = ("sm_80",),
    can_fail: bool = True,
    plain: bool = False,
    compiled: Callable[[str, str], bytes] | None = None,
    **options: Any,
) -> Path:
    """The library ``folder/name`` with an image for each arch, as sm_80 or compute_80.

    ``compiled`` makes an image of a text for an arch; by default it is the text, for the emulator.
    """
    folder.mkdir(exist_ok=True)
    machine = options.pop("machine", platform.machine())
    weights = folder / "weights.o"
    elf.write_weights_object(weights, [(0, WEIGHTS)], WEIGHTS.nbytes, machine=machine)
    declarations, rows = "", []
    for index, arch in enumerate(archs):
        text = f"// {arch}\n{KERNELS}"
        image = compiled(text, arch) if compiled else text.encode() + b"\0"
        data, number = f"image{index}", arch.split("_")[1]
        declarations += f"static const uint8_t {data}[] = {{{', '.join(map(str, image))}}};\n"
        rows.append(f"{{{number}, {int(arch[0] == 'c')}, {data}, sizeof {data}}}")
    source = folder / "fake.c"
    source.write_text(
        "#include <stdint.h>\n"
        + declarations
        + f"#define IMAGES {', '.join(rows)}\n"
        + ("#define PLAIN\n" if plain else "")
        + f"#define CAN_FAIL {int(can_fail)}\n"
        + (_HERE / "fake_model.c").read_text()
    )
    output = folder / name
    link(
        [weights], output, f"{machine}-unknown-linux-gnu", c_sources=[source], cuda=True, **options
    )
    return output


def feed(batch: int = 3, *, mode: int = NORMAL, index: Sequence[int] = (0, -1)) -> dict[str, Any]:
    """Inputs of the model; rows of x with an odd number have a negative sum."""
    x = np.arange(batch * 4, dtype=np.float32).reshape(batch, 4) + 1
    x[1::2] *= -1
    return {"x": x, "index": np.array(index, np.int32), "mode": np.array(mode, np.int32)}


def expected(inputs: dict[str, Any]) -> dict[str, Any]:
    """What the model computes of them."""
    y = inputs["x"] + WEIGHTS
    sums = y.sum(axis=1)
    picked = y[inputs["index"]]
    return {"y": y, "sums": sums, "picked": picked, "turned": sums[::-1], "kept": y[sums > 0]}


def check(model: Model, batch: int = 3) -> None:
    """Run the model, and compare with what is expected."""
    inputs = feed(batch)
    results = model.run(inputs)
    for name, array in expected(inputs).items():
        np.testing.assert_allclose(results[name], array, rtol=1e-6)
