"""WebAssembly, as a machine with vectors of 128 bits and one thread."""

from __future__ import annotations

from rten_aot.targets.architecture import Architecture, Named, VectorUnit

_NAMED = {
    "wasm32": Named(
        "WebAssembly with SIMD, one thread: browsers, Node.js, wasmtime",
        "generic",
        "https://webassembly.github.io/spec/core",
    ),
}

WASM32 = Architecture(
    name="wasm32",
    first="wasm32",
    triple="wasm32-unknown-wasi",
    baseline="generic",
    named=_NAMED,
    caches={"generic": (32, 256)},
    # Whoever loads a module checks what is in it.
    features={},
    # Registers are those of the machine under it: 16 on x86-64.
    vector_unit=lambda features: VectorUnit(128, 16, fma=False),
    attrs=("+simd128",),
)
