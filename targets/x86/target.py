"""Tables of x86-64 machines.

Cache sizes are those of the vendors' optimisation manuals: the smallest of the CPUs that a level
stands for, or of the named microarchitecture.
"""

from __future__ import annotations

from rten_aot.targets.architecture import Architecture, CacheSizes, Named, VectorUnit

_LEVELS = "https://gitlab.com/x86-psABIs/x86-64-ABI"

_NAMED = {
    "x86-64-v2": Named(
        "SSE4.2: Intel from Nehalem (2008), AMD from Bulldozer (2011) on", "x86-64-v2", _LEVELS
    ),
    "x86-64-v3": Named(
        "AVX2 and FMA: Intel from Haswell (2013), AMD from Excavator (2015) on",
        "x86-64-v3",
        _LEVELS,
    ),
    "x86-64-v4": Named(
        "AVX-512: Intel Xeon from Skylake-SP (2017), AMD from Zen 4 (2022) on", "x86-64-v4", _LEVELS
    ),
}

_CACHES: dict[str, CacheSizes] = {
    "x86-64": (32, 256),
    "x86-64-v2": (32, 256),
    "x86-64-v3": (32, 256),
    "x86-64-v4": (32, 1024),
    "haswell": (32, 256),
    "broadwell": (32, 256),
    "skylake": (32, 256),
    "skylake-avx512": (32, 1024),
    "cascadelake": (32, 1024),
    "cooperlake": (32, 1024),
    "icelake-client": (48, 512),
    "icelake-server": (48, 1280),
    "tigerlake": (48, 1280),
    "sapphirerapids": (48, 2048),
    "emeraldrapids": (48, 2048),
    "graniterapids": (48, 2048),
    "alderlake": (32, 1280),
    "raptorlake": (32, 2048),
    "znver1": (32, 512),
    "znver2": (32, 512),
    "znver3": (32, 512),
    "znver4": (32, 1024),
    "znver5": (48, 1024),
}

# Without those that need intrinsics (aes, sha and the like), which some CPUs of a name were sold
# without.
_FEATURES = {
    "adx": "adx",
    "avx": "avx",
    "avx2": "avx2",
    "avx512bf16": "avx512_bf16",
    "avx512bitalg": "avx512_bitalg",
    "avx512bw": "avx512bw",
    "avx512cd": "avx512cd",
    "avx512dq": "avx512dq",
    "avx512f": "avx512f",
    "avx512fp16": "avx512_fp16",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vl": "avx512vl",
    "avx512vnni": "avx512_vnni",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avxifma": "avx_ifma",
    "avxneconvert": "avx_ne_convert",
    "avxvnni": "avx_vnni",
    "avxvnniint8": "avx_vnni_int8",
    "bmi": "bmi1",
    "bmi2": "bmi2",
    "cx16": "cx16",
    "f16c": "f16c",
    "fma": "fma",
    "fma4": "fma4",
    "gfni": "gfni",
    "lzcnt": "abm",
    "movbe": "movbe",
    "popcnt": "popcnt",
    "prfchw": "3dnowprefetch",
    "sahf": "lahf_lm",
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "sse4a": "sse4a",
    "ssse3": "ssse3",
    "tbm": "tbm",
    "xop": "xop",
}


def _vector_unit(features: frozenset[str]) -> VectorUnit:
    fma, halves = "fma" in features, "f16c" in features
    if {"avx512f", "avx512vl", "avx512bw", "avx512dq"} <= features:
        return VectorUnit(512, 32, fma, halves)
    # AVX alone has no vectors of 256 bits for integers.
    return VectorUnit(256 if "avx2" in features else 128, 16, fma, halves)


X86_64 = Architecture(
    name="x86_64",
    first="x86_64|amd64",
    triple="x86_64-unknown-linux-gnu",
    # CPUs from about 2009 on. Without SSE4.1 rounding is a library call.
    baseline="x86-64-v2",
    named=_NAMED,
    caches=_CACHES,
    features=_FEATURES,
    needed=("64bit", "sse", "sse2"),
    vector_unit=_vector_unit,
    levels=("x86-64-v4", "x86-64-v3", "x86-64-v2", "x86-64"),
)
