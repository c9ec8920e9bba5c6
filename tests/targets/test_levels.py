"""Several CPUs in one artifact: which there may be, in what order, and what weights suit them."""

from __future__ import annotations

import itertools

import pytest

from rten_aot.errors import TargetError
from rten_aot.targets import get_machine, get_machines, packing_machine
from rten_aot.targets.common.packing import Blocks, lanes


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("x86-64-v2,x86-64-v3,x86-64-v4", ["x86-64-v4", "x86-64-v3", "x86-64-v2"]),
        ("x86-64-v4,x86-64-v2", ["x86-64-v4", "x86-64-v2"]),
        ("aarch64,neoverse-n1,neoverse-v1", ["neoverse-v1", "neoverse-n1", "aarch64"]),
        ("aarch64,cortex-a76 -mtriple=aarch64-linux-gnu", ["cortex-a76", "aarch64"]),
    ],
)
def test_the_best_comes_first(target: str, names: list[str]) -> None:
    levels = get_machines(target)
    assert [level.name for level in levels] == names
    for better, other in itertools.pairwise(levels):
        assert set(better.features) > set(other.features)


@pytest.mark.parametrize(
    "target", ["x86-64-v3", "llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu -mattr=+lse,-crc"]
)
def test_one_name_is_one_machine(target: str) -> None:
    expected = get_machine(target)
    assert get_machines(target) == (expected,)
    assert packing_machine(get_machines(target)) == expected


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            "x86-64-v3,aarch64",
            '"x86-64-v3" is for x86_64-unknown-linux-gnu, "aarch64" for aarch64-unknown-linux-gnu; '
            "CPUs of one library must be of one architecture\n"
            "hint: compile once for each architecture",
        ),
        ("x86-64-v3,x86-64-v2,x86-64-v3", '"x86-64-v3" is named twice'),
        (
            "cortex-a53,cortex-a72",
            '"cortex-a53" and "cortex-a72" need the same features (nothing special), '
            "by which a level is chosen\nhint: leave one of them out",
        ),
        (
            "x86-64-v2,,x86-64-v3",
            "a name is missing beside a comma\n"
            "hint: join names by commas alone: x86-64-v2,x86-64-v3",
        ),
        ("x86-64-v2, x86-64-v3", "a name is missing beside a comma\n"),
        ("x86-64-v2,x86-64-v5", 'unknown target "x86-64-v5"; targets: '),
        ("x86-64-v2,x86-64-v5", 'hint: did you mean "x86-64-v'),
        (
            "x86-64-v2,x86-64-v3 -mcpu=native",
            "-mcpu is of one CPU, but 2 are named\nhint: leave out -mcpu, or name one CPU",
        ),
        ("x86-64-v2,x86-64-v3 -mattr +fma", "-mattr is of one CPU, but 2 are named"),
    ],
)
def test_errors(target: str, message: str) -> None:
    with pytest.raises(TargetError) as caught:
        get_machines(target)
    assert message in str(caught.value)


def test_where_one_is_wanted() -> None:
    with pytest.raises(TargetError, match="names several CPUs, where one is wanted"):
        get_machine("x86-64-v2,x86-64-v3")


@pytest.mark.parametrize("target", ["x86-64-v2,x86-64-v3,x86-64-v4", "aarch64,neoverse-n1"])
def test_tiles_fit_every_level(target: str) -> None:
    levels = get_machines(target)
    packing = packing_machine(levels)
    assert packing.vector_bits == max(level.vector_bits for level in levels)
    for level in levels:
        for vectors in range(1, 7):
            packed = vectors * packing.lanes("float32")
            tile = Blocks.of(level, packed, None).tile
            assert packed % tile == 0
            assert level.accumulator_rows(tile // lanes(level, tile)) >= 4


def test_what_a_record_packed_is_one_tile() -> None:
    machine = get_machine("x86-64-v3")
    assert Blocks.of(machine, 32, None) == Blocks(32, 16)
    assert Blocks.of(machine, 32, 32) == Blocks(32, 32)
