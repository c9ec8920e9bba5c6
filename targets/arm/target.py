"""Tables of Arm machines, 64 and 32 bits.

Cache sizes of a CPU are those of Arm's technical reference manuals (https://developer.arm.com), for
the level 2 cache one core's share of the usual configuration; those of a board are from its source.
"""

from __future__ import annotations

from rten_aot.targets.architecture import Architecture, CacheSizes, InOrder, Named, VectorUnit

_ARM = "https://developer.arm.com"
_RASPBERRY = "https://www.raspberrypi.com/documentation/computers/processors.html"
_GRAVITON = "https://github.com/aws/aws-graviton-getting-started"

_NAMED = {
    "aarch64": Named("any 64-bit Arm CPU", "generic", _ARM),
    "cortex-a53": Named("Raspberry Pi 3, many boards", "cortex-a53", _ARM),
    "cortex-a55": Named("RK3566, RK3568", "cortex-a55", _ARM),
    "cortex-a72": Named("Raspberry Pi 4, AWS Graviton1", "cortex-a72", _ARM),
    "cortex-a76": Named("Raspberry Pi 5, RK3588", "cortex-a76", _ARM),
    "cortex-a78": Named("phones", "cortex-a78", _ARM),
    "neoverse-n1": Named("AWS Graviton2, Ampere Altra", "neoverse-n1", _ARM),
    "neoverse-v1": Named("AWS Graviton3", "neoverse-v1", _ARM),
    "neoverse-v2": Named("AWS Graviton4, NVIDIA Grace", "neoverse-v2", _ARM),
    "raspberry-pi-3": Named(
        "Raspberry Pi 3 and Zero 2 W with a 64-bit system", "cortex-a53", _RASPBERRY,
        caches=(32, 128), cores=4,
    ),
    "raspberry-pi-4": Named(
        "Raspberry Pi 4 and 400 with a 64-bit system", "cortex-a72", _RASPBERRY,
        caches=(32, 256), cores=4,
    ),
    "raspberry-pi-5": Named(
        "Raspberry Pi 5 and 500 with a 64-bit system", "cortex-a76", _RASPBERRY,
        caches=(64, 512), cores=4,
    ),
    "jetson-orin": Named(
        "the CPU of NVIDIA Jetson Orin Nano, NX and AGX", "cortex-a78ae",
        "NVIDIA Jetson AGX Orin Series Technical Brief 1.2", caches=(64, 256),
    ),
    "graviton2": Named("AWS instances such as C6g", "neoverse-n1", _GRAVITON, caches=(64, 1024)),
    "graviton3": Named("AWS instances such as C7g", "neoverse-v1", _GRAVITON, caches=(64, 1024)),
    # The big cores' caches: they do most of the work. The small ones, Cortex-A55, have all the
    # features too.
    "rockchip-rk3588": Named(
        "Rockchip RK3588 and RK3588S: Rock 5, Orange Pi 5", "cortex-a76",
        "Rockchip RK3588 datasheet 1.6, section 1.2.1", caches=(64, 512), cores=8,
    ),
    "beagleplay": Named(
        "BeaglePlay (TI AM625)", "cortex-a53", "https://www.ti.com/lit/gpn/am625",
        caches=(32, 128), cores=4,
    ),
}  # fmt: skip

_ARMV7 = {
    "armv7": Named("any 32-bit Arm CPU with NEON and VFPv4, hard float", "cortex-a7", _ARM),
    "raspberry-pi-32": Named(
        "Raspberry Pi 2, 3, 4 and Zero 2 W with a 32-bit system", "cortex-a7", _RASPBERRY,
        caches=(32, 128), cores=4,
    ),
}  # fmt: skip

_CACHES: dict[str, CacheSizes] = {
    "generic": (32, 128),
    "cortex-a53": (32, 128),
    "cortex-a55": (32, 128),
    "cortex-a72": (32, 256),
    "cortex-a76": (64, 512),
    "cortex-a78": (64, 512),
    "cortex-a78ae": (64, 256),
    "neoverse-n1": (64, 1024),
    "neoverse-n2": (64, 1024),
    "neoverse-v1": (64, 1024),
    "neoverse-v2": (64, 2048),
}

# By llvm-mca's models. Cortex-A53: results are written in order, and take four cycles from a load,
# ten from a multiply-add. So each load that follows one waits for six cycles, unless it follows
# another load. Cortex-A55: a load of two vectors holds up what follows for longer than two loads,
# and LLVM puts loads right before their uses by its description of that processor, well before
# them by that of Cortex-A53, which takes a tenth less time.
_IN_ORDER = {
    "cortex-a34": InOrder(groups_loads=True),
    "cortex-a35": InOrder(groups_loads=True),
    "cortex-a53": InOrder(groups_loads=True),
    "cortex-a55": InOrder(scheduled_as="cortex-a53", attrs=("+slow-paired-128",)),
}

_ARMV7_CACHES: dict[str, CacheSizes] = {
    "cortex-a7": (32, 128),
    "cortex-a53": (32, 128),
    "cortex-a72": (32, 256),
}

# Without those that need intrinsics (aes, sha2, crc and the like): LLVM counts them among the
# features of CPUs, such as those of the Raspberry Pi, that were built without.
_FEATURES = {
    "bf16": "bf16",
    "complxnum": "fcma",
    "dotprod": "asimddp",
    "fp16fml": "asimdhfm",
    "fullfp16": "asimdhp",
    "i8mm": "i8mm",
    "lse": "atomics",
    "rcpc": "lrcpc",
    "rdm": "asimdrdm",
    "sha3": "sha3",
    "sve": "sve",
    "sve2": "sve2",
}

# All 32 registers ("d32") come with NEON; 64-bit kernels do not tell 32-bit programs of them.
_ARMV7_FEATURES = {
    "hwdiv-arm": "idiva",
    "hwdiv": "idivt",
    "neon": "neon",
    "vfp3": "vfpv3",
    "vfp4": "vfpv4",
}

AARCH64 = Architecture(
    name="aarch64",
    first="aarch64|arm64",
    triple="aarch64-unknown-linux-gnu",
    # ARMv8-A with NEON, which every aarch64 Linux has.
    baseline="generic",
    named=_NAMED,
    caches=_CACHES,
    features=_FEATURES,
    needed=("fp-armv8", "neon"),
    vector_unit=lambda features: VectorUnit(128, 32, fma=True, halves=True),
    in_order=_IN_ORDER,
    levels=("generic",),
)

ARMV7 = Architecture(
    name="arm",
    first=r"armv7\w*",
    triple="armv7-unknown-linux-gnueabihf",
    baseline="cortex-a7",
    named=_ARMV7,
    caches=_ARMV7_CACHES,
    features=_ARMV7_FEATURES,
    needed=("aclass", "v7", "vfp2"),
    # VFPv4 brings the conversion of float16 as well, which LLVM uses number by number.
    vector_unit=lambda features: VectorUnit(
        128, 16, fma="vfp4" in features, halves="vfp4" in features
    ),
    levels=("cortex-a7",),
    abi="hard",
)
