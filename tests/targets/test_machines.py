"""From the words of --target to machines."""

from __future__ import annotations

import platform

import pytest
import tvm
from tvm.target import codegen

from rten_aot.errors import TargetError
from rten_aot.options import LIBCS, Libc
from rten_aot.targets import Machine, descriptions, get_machine, host, machines, names
from rten_aot.targets.architecture import Architecture
from rten_aot.targets.machines import ARCHITECTURES
from rten_aot.targets.x86.target import X86_64

on_x86 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the features of the host are those of x86-64"
)


@pytest.mark.parametrize("name", names())
def test_every_name_gives_a_machine(name: str) -> None:
    machine = get_machine(name)
    assert machine == get_machine(name)
    assert machine.tvm_target().attrs["mcpu"] == (machine.scheduled_as or machine.cpu)
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
        ("riscv64", 64, 16, True),
        ("riscv64v", 128, 32, True),
        ("wasm32", 128, 16, False),
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
    assert get_machine("cortex-a72").accumulator_rows(2) == 14
    assert get_machine("cortex-a53").accumulator_rows(2) == 8


def test_in_order_cores() -> None:
    """Another CPU's order of instructions brings none of its features, and takes none away."""
    machine = get_machine("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a55 -mattr=-lse")
    assert machine.in_order
    assert machine.cpu == "cortex-a55"
    assert machine.features == ("dotprod", "fullfp16", "rcpc", "rdm")
    target = machine.tvm_target()
    assert target.attrs["mcpu"] == "cortex-a53"
    used = {str(feature) for feature in codegen.llvm_get_cpu_features(target)}
    assert {"slow-paired-128", *machine.features} <= used
    assert "lse" not in used
    assert not machine.groups_loads
    assert get_machine("raspberry-pi-3").groups_loads
    assert not get_machine("cortex-a76").in_order
    assert not get_machine("llvm -mtriple=armv7-linux-gnueabihf -mcpu=cortex-a53").in_order


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
        ("rasperry-pi-4", 'did you mean "raspberry-pi-4"'),
        ("llvm -mcpu=znver33", r'unknown CPU "znver33"(.|\n)*did you mean "znver3"'),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=znver3", 'unknown CPU "znver3"'),
        ("llvm -mfoo=1", 'unknown option "-mfoo"; options: -mcpu, -mattr, -mtriple'),
        ("llvm -mcpu", 'option "-mcpu" has no value'),
        ("x86-64-v3 -mcpu=znver2 -mcpu=znver3", 'option "-mcpu" is given twice'),
        (
            "x86-64-v3 -mattr=-sse2",
            '-mattr=-sse2 is without the feature "sse2", which all code for',
        ),
        ("x86-64-v3 -mattr=-64bit", 'is without the feature "64bit"'),
        ("aarch64 -mattr=-neon", 'is without the feature "neon"'),
        ("aarch64 -mattr=-fp-armv8", 'is without the feature "fp-armv8"'),
        ("armv7 -mattr=-vfp2", 'is without the feature "vfp2"'),
        ("riscv64 -mattr=-f", 'is without the feature "d"'),
        ("x86-64-v2 -mcpu=pentium", '-mcpu: CPU "pentium" is without the feature "64bit"'),
        ("riscv64 -mcpu=rocket-rv32", '-mcpu: CPU "rocket-rv32" is without the feature "64bit"'),
        ("armv7 -mcpu=cortex-m4", '-mcpu: CPU "cortex-m4" is without the feature "aclass"'),
        ("llvm -mattr=avx2", r'"avx2" must begin with \+ or -'),
        ("llvm -mattr=+avx22", r'unknown feature "avx22"(.|\n)*did you mean "avx2"'),
        ("llvm -mtriple=mips-linux", "supported: x86_64, aarch64, armv7, riscv64, wasm32"),
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
    whole = machines._used_features(X86_64, X86_64.triple, "znver5")
    flags = frozenset(X86_64.features[f] for f in whole if f not in hidden)
    monkeypatch.setattr(host, "cpu_name", lambda: "znver5")
    monkeypatch.setattr(host, "_flags", lambda: flags)
    machine = get_machine("native")
    assert machine.cpu == cpu
    assert set(extra) <= set(machine.attrs)
    assert not set(hidden) & set(machine.features)
    assert machine.runs_here()
    assert not get_machine("llvm -mcpu=znver5").runs_here() or not hidden


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda a: a.name)
def test_tables_name_real_cpus(architecture: Architecture) -> None:
    """LLVM refuses a name that it does not know; each architecture's baseline is in the table."""
    assert architecture.baseline in architecture.caches
    for cpu, (l1, l2) in architecture.caches.items():
        machine = get_machine(f"llvm -mtriple={architecture.triple} -mcpu={cpu}")
        assert (machine.l1_bytes, machine.l2_bytes) == (l1 * 1024, l2 * 1024)
    for level in architecture.levels:
        assert get_machine(f"llvm -mtriple={architecture.triple} -mcpu={level}").cpu == level


def test_names_belong_to_one_architecture() -> None:
    named = [name for architecture in ARCHITECTURES for name in architecture.named]
    assert len(set(named)) == len(named)


@pytest.mark.parametrize(
    ("name", "cpu", "l1", "l2"),
    [
        ("raspberry-pi-3", "cortex-a53", 32, 128),
        ("raspberry-pi-4", "cortex-a72", 32, 256),
        ("raspberry-pi-5", "cortex-a76", 64, 512),
        ("raspberry-pi-32", "cortex-a7", 32, 128),
        ("jetson-orin", "cortex-a78ae", 64, 256),
        ("graviton2", "neoverse-n1", 64, 1024),
        ("graviton3", "neoverse-v1", 64, 1024),
        ("rockchip-rk3588", "cortex-a76", 64, 512),
        ("beagleplay", "cortex-a53", 32, 128),
    ],
)
def test_boards(name: str, cpu: str, l1: int, l2: int) -> None:
    machine = get_machine(name)
    assert (machine.cpu, machine.l1_bytes, machine.l2_bytes) == (cpu, l1 * 1024, l2 * 1024)
    assert machine.name == name


def test_boards_without_cryptography_are_not_asked_for_it() -> None:
    """LLVM's Cortex-A53 and A72 have it; those of the Raspberry Pi were built without."""
    assert get_machine("raspberry-pi-3").features == get_machine("raspberry-pi-4").features == ()
    assert not {"aes", "sha2", "crc"} & set(get_machine("raspberry-pi-5").features)
    assert not {"aes", "sha", "pclmul"} & set(get_machine("llvm -mcpu=znver3").features)


def test_the_upper_registers_are_not_asked_for() -> None:
    """64-bit kernels do not tell 32-bit programs of them; they come with NEON."""
    features = get_machine("raspberry-pi-32").features
    assert "neon" in features
    assert "d32" not in features


def test_a_board_is_a_start() -> None:
    machine = get_machine("raspberry-pi-4 -mcpu=cortex-a76 -mattr=-dotprod")
    assert (machine.cpu, machine.l1_bytes) == ("cortex-a76", 64 * 1024)
    assert machine.name == "cortex-a76 -dotprod"
    assert "dotprod" not in machine.features
    assert get_machine("riscv64 -mattr=+v").vector_bits == 128
    assert get_machine("riscv64v -mattr=-v").vector_bits == 64
    assert get_machine("raspberry-pi-4 -mtriple=aarch64-linux-musl").triple == "aarch64-linux-musl"


@pytest.mark.parametrize(
    ("target", "libc", "triple"),
    [
        ("x86-64-v3", "musl", "x86_64-unknown-linux-musl"),
        ("raspberry-pi-32", "musl", "armv7-unknown-linux-musleabihf"),
        ("riscv64", "glibc", "riscv64-unknown-linux-gnu"),
        ("llvm -mtriple=aarch64-linux-musl", "glibc", "aarch64-linux-gnu"),
    ],
)
def test_c_library(target: str, libc: Libc, triple: str) -> None:
    machine = get_machine(target, libc=libc)
    assert machine.triple == triple
    assert machine.features == get_machine(target).features
    assert not get_machine("native", libc="musl").runs_here()


@pytest.mark.parametrize("libc", LIBCS)
def test_no_choice_of_c_library(libc: Libc) -> None:
    with pytest.raises(
        TargetError, match='--libc: "wasm32-unknown-wasi" is no Linux with a choice'
    ):
        get_machine("wasm32", libc=libc)


def test_abis() -> None:
    machine = get_machine("armv7")
    assert machine.abi == "hard"
    assert machine.tvm_target().attrs["mfloat-abi"] == "hard"
    assert get_machine("llvm -mtriple=armv7-linux-gnueabi").abi is None
    for name in ("riscv64", "riscv64v", "llvm -mtriple=riscv64-linux-gnu -mcpu=sifive-u74"):
        assert get_machine(name).tvm_target().attrs["mabi"] == "lp64d"


def test_machine_is_plain_data() -> None:
    machine = Machine("name", "riscv64-unknown-linux-gnu", "generic-rv64", abi="lp64d")
    assert machine.arch == "riscv64"
    assert isinstance(machine.tvm_target(), tvm.target.Target)
    assert not machine.runs_here()
    assert hash(machine) == hash(Machine("name", machine.triple, machine.cpu, abi="lp64d"))
