"""From the words of --target to machines."""

from __future__ import annotations

import platform

import pytest
import tvm

from rten_aot.errors import TargetError
from rten_aot.targets import Machine, descriptions, get_machine, host, machines, names
from rten_aot.targets.arm import target as arm
from rten_aot.targets.x86 import target as x86

on_x86 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the features of the host are those of x86-64"
)


@pytest.mark.parametrize("name", names())
def test_every_name_gives_a_machine(name: str) -> None:
    machine = get_machine(name)
    assert machine == get_machine(name)
    assert machine.tvm_target().attrs["mcpu"] == machine.cpu
    assert machine.lanes("float32") == machine.vector_bits // 32
    assert machine.lanes("int8") == machine.vector_bits // 8
    assert 16 * 1024 <= machine.l1_bytes <= machine.l2_bytes
    assert descriptions()[name]


@pytest.mark.parametrize(
    ("name", "bits", "registers", "fma"),
    [
        ("x86-64-v2", 128, 16, False),
        ("x86-64-v3", 256, 16, True),
        ("x86-64-v4", 512, 32, True),
        ("cortex-a72", 128, 32, True),
        ("armv7", 128, 16, True),
    ],
)
def test_vector_units(name: str, bits: int, registers: int, fma: bool) -> None:
    machine = get_machine(name)
    assert (machine.vector_bits, machine.vector_registers, machine.fma) == (bits, registers, fma)


def test_features_are_what_some_cpus_lack() -> None:
    features = get_machine("x86-64-v3").features
    assert {"avx2", "fma", "f16c", "bmi2"} <= set(features)
    assert "sse2" not in features
    assert list(features) == sorted(features)
    assert not get_machine("x86-64-v3").has("avx512f")
    assert "neon" not in get_machine("cortex-a72").features


def test_register_tiles_leave_room() -> None:
    assert get_machine("x86-64-v3").accumulator_rows(2) == 6
    assert get_machine("x86-64-v4").accumulator_rows(2) == 14
    assert get_machine("x86-64-v2").accumulator_rows(100) == 1


@pytest.mark.parametrize(
    ("words", "cpu", "triple"),
    [
        ("llvm -mcpu=znver3", "znver3", None),
        ("llvm -mcpu znver3", "znver3", None),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a53", "cortex-a53", "aarch64-linux-gnu"),
        ("llvm -mtriple=aarch64-linux-gnu", "generic", "aarch64-linux-gnu"),
        ("llvm -mtriple=x86_64-linux-gnu", "x86-64-v2", "x86_64-linux-gnu"),
        ("x86-64-v3 -mcpu=haswell", "haswell", None),
    ],
)
def test_options(words: str, cpu: str, triple: str | None) -> None:
    machine = get_machine(words)
    assert machine.cpu == cpu
    assert triple is None or machine.triple == triple


def test_options_as_arguments() -> None:
    assert get_machine("llvm", mcpu="znver3") == get_machine("llvm -mcpu=znver3")
    asked = get_machine("llvm", mcpu="x86-64-v3", mattr=["+avxvnni", "-fma"])
    assert asked == get_machine("llvm -mcpu=x86-64-v3 -mattr=+avxvnni,-fma")
    assert asked == get_machine("llvm -mcpu=x86-64-v3 -mattr=+avxvnni -mattr=-fma")


def test_attributes_change_the_machine() -> None:
    machine = get_machine("llvm -mcpu=x86-64-v4 -mattr=-avx512f,+avxvnni")
    assert machine.vector_bits == 256
    assert machine.vector_registers == 16
    assert machine.has("avxvnni")
    assert not machine.has("avx512bw")
    assert list(machine.tvm_target().attrs["mattr"]) == ["-avx512f", "+avxvnni"]
    assert not get_machine("llvm -mcpu=x86-64-v3 -mattr=-fma").fma
    assert get_machine("llvm -mcpu=x86-64-v3 -mattr=-fma,+fma").fma


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "no target is given"),
        ("x86-64-v5", r'unknown target "x86-64-v5"; targets: llvm, native(.|\n)*did you mean'),
        ("cortexa72", 'did you mean "cortex-a72"'),
        ("llvm -mcpu=znver33", r'unknown CPU "znver33"(.|\n)*did you mean "znver3"'),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=znver3", 'unknown CPU "znver3"'),
        ("llvm -mfoo=1", 'unknown option "-mfoo"; options: -mcpu, -mattr, -mtriple'),
        ("llvm -mcpu", 'option "-mcpu" has no value'),
        ("llvm -mattr=avx2", r'"avx2" must begin with \+ or -'),
        ("llvm -mattr=+avx22", r'unknown feature "avx22"(.|\n)*did you mean "avx2"'),
        ("llvm -mtriple=mips-linux", "supported: x86_64, aarch64, armv7"),
        ("x86-64-v3 -mtriple=aarch64-linux-gnu", 'is no CPU of "aarch64-linux-gnu"'),
        ("llvm 'a", "No closing quotation"),
    ],
)
def test_errors(words: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        get_machine(words)


def test_native_of_another_architecture() -> None:
    other = "aarch64-linux-gnu" if host.arch() == "x86_64" else "x86_64-linux-gnu"
    with pytest.raises(TargetError, match="-mcpu=native is this computer's CPU"):
        get_machine(f"llvm -mcpu=native -mtriple={other}")


def test_native_runs_here() -> None:
    machine = get_machine("native")
    assert machine == get_machine("llvm -mcpu=native")
    assert machine.runs_here()
    assert not get_machine("armv7").runs_here() or host.arch() == "arm"


@on_x86
@pytest.mark.parametrize(
    ("hidden", "cpu", "extra"),
    [
        ((), "znver5", ()),
        (("avx512vbmi2",), "x86-64-v4", ("+avx512vnni",)),
        (("avx512bw",), "x86-64-v3", ("+avx512f", "+avx512cd")),
        (("fma",), "x86-64-v2", ("+avx2", "+f16c")),
    ],
)
def test_native_believes_the_flags_not_the_name(
    monkeypatch: pytest.MonkeyPatch, hidden: tuple[str, ...], cpu: str, extra: tuple[str, ...]
) -> None:
    whole = machines._used_features("x86_64-unknown-linux-gnu", "znver5")
    flags = frozenset(x86.FEATURES[f] for f in whole if f not in hidden)
    monkeypatch.setattr(host, "cpu_name", lambda: "znver5")
    monkeypatch.setattr(host, "_flags", lambda: flags)
    machine = get_machine("native")
    assert machine.cpu == cpu
    assert set(extra) <= set(machine.attrs)
    assert not set(hidden) & set(machine.features)
    assert machine.runs_here()
    assert not get_machine("llvm -mcpu=znver5").runs_here() or not hidden


def test_tables_name_real_cpus() -> None:
    for cpu in x86.CACHES:
        assert get_machine(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}").l1_bytes
    for cpu in set(arm.CACHES) - {"cortex-a7"}:
        assert get_machine(f"llvm -mtriple=aarch64-linux-gnu -mcpu={cpu}").l1_bytes


def test_hard_float_abi() -> None:
    machine = get_machine("armv7")
    assert machine.abi == "hard"
    assert machine.tvm_target().attrs["mfloat-abi"] == "hard"


def test_machine_is_plain_data() -> None:
    machine = Machine("name", "riscv64-unknown-linux-gnu", "generic-rv64", abi="lp64d")
    assert machine.arch == "riscv64"
    assert isinstance(machine.tvm_target(), tvm.target.Target)
    assert not machine.runs_here()
    assert hash(machine) == hash(Machine("name", machine.triple, machine.cpu, abi="lp64d"))
