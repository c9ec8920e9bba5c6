"""Keys of problems, and the sizes that follow from them."""

from __future__ import annotations

import pytest

from rten_aot.targets.common.problems import Problem

CONV = "conv 64->128 3x3 strides 1x1 dilations 1x1 pads 1x1x1x1 groups 1 image 1x56x57"
KEYS = {
    CONV: (128, 1 * 56 * 57),
    CONV.replace("image 1x56x57", "image ?x56x?"): (128, None),
    "conv 6->12 3x2 strides 2x1 dilations 1x3 pads ?x0x0x0 groups 3 image 1x8x9": (4, None),
    "conv 6->12 3x2 strides 2x1 dilations 1x3 pads 1x0x0x1 groups 3 image 2x8x9": (4, 2 * 4 * 7),
    "conv 1->1 5x5 strides 1x1 dilations 1x1 pads 0x0x0x0 groups 1 image 1x3x9": (1, 0),
    "depthwise 8->16 3x3 strides 1x1 dilations 1x1 pads 1x1x1x1 image 1x4x4": (16, 16),
    "gemm 128x384x1536": (1536, 128),
    "gemm ?x384x1536": (1536, None),
    "matmul 12x128x32 by 12x32x100": (100, 12 * 128),
    "matmul ?x12x128x32 by transposed 12x100x32": (100, None),
    "matmul 7x3 by 3x?": (None, 7),
    "attention 1x12x128x32 by 100 keys of 32 channels": (100, 12 * 128),
    "attention ?x12x?x32 by ? keys of 32 channels": (None, None),
}
"""With columns and rows."""


@pytest.mark.parametrize("key", KEYS)
def test_keys_say_all(key: str) -> None:
    problem = Problem.parse(key)
    assert problem is not None
    assert problem.key == key
    assert (problem.columns, problem.rows) == KEYS[key]


@pytest.mark.parametrize(
    "key",
    [
        "",
        "conv",
        CONV + " ",
        CONV + "x1",
        CONV.replace("3x3", "3"),
        CONV.replace("groups 1", "groups 0"),
        CONV.replace("64->", "?->"),
        CONV.replace("56", "56.0"),
        CONV.replace("56", "1" * 40),
        CONV.replace("conv", "depthwise"),
        "gemm 1x2",
        "gemm 1x2x3x4",
        "matmul 3 by 3x4",
        "attention 1x12x128x32 by 100 keys",
        "attention 1x12x128x32 by 100 keys of ? channels",
    ],
)
def test_what_is_no_key(key: str) -> None:
    assert Problem.parse(key) is None


def test_winograd_is_for_plain_kernels() -> None:
    problem = Problem.parse(CONV)
    assert problem is not None
    assert problem.allows_winograd
    assert problem.tiles == 28 * 29
    for old, new in (
        ("3x3", "3x1"),
        ("strides 1x1", "strides 1x2"),
        ("dilations 1x1", "dilations 2x2"),
        ("groups 1", "groups 2"),
    ):
        other = Problem.parse(CONV.replace(old, new))
        assert other is not None
        assert not other.allows_winograd
    assert not Problem("gemm", {"sizes": (3, 3, 3)}).allows_winograd
