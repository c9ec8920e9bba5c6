"""The README of a bundle: what its files are, and the commands to run the model."""

from __future__ import annotations

import shlex

from rten_aot.bundle.kit import Kit, plain
from rten_aot.bundle.python_files import LOADER


def readme(kit: Kit) -> str:
    """The text, in Markdown."""
    target, sizes = kit.metadata["target"], kit.metadata["sizes"]
    workspace = sizes["workspace"]
    memory = "what the inputs' shapes need" if workspace is None else f"{workspace:,} bytes"
    content = f"{sizes['code']:,} bytes of code, {sizes['weights']:,} bytes of weights"
    return f"""\
# {kit.library}

A model, compiled by {kit.maker} for {target["triple"]}. {_cpu(kit)}
{_gpu(kit)}Copy the folder to the machine that is to run it; nothing of it needs to be installed.

| file | what it is |
|---|---|
| `{kit.library}` | the model: {content} |
| `{kit.prefix}.h` | its C interface |
| `example.c`, `CMakeLists.txt` | a C program for the inputs and outputs below |
| `{LOADER}` | a loader for Python 3.10 or later with NumPy |
| `example.py` | a Python program for the inputs and outputs below |

```
{_tensors(kit)}```
{_open_sizes(kit)}
## C

```sh
cc example.c -I. -L. -l{kit.name} -Wl,-rpath,'$ORIGIN' -o example && ./example
cmake -B build && cmake --build build && build/example
```

## Python

```sh
python3 example.py
python3 {LOADER} describe {kit.library}
python3 {LOADER} run {kit.library}{_option(kit)} --output y.npz
python3 {LOADER} time {kit.library} --threads 1 --seconds 5
```

## What to know

- Threads: the physical cores that the process may use, unless `num_threads`, `--threads` or
  `RTEN_AOT_NUM_THREADS` says otherwise.
- Memory: {_weights(kit)}. Intermediate results take
  {memory}.
- Several models in one C program: their functions must differ in name. These begin with
  `{kit.prefix}_`; `rten-aot compile --symbol-prefix` gives others. In Python any number goes.
- Errors: C functions return a code, and `{kit.prefix}_error()` the text; Python raises
  `ModelLoadError`, `InputError` or `ModelRunError`.
"""


def _cpu(kit: Kit) -> str:
    target = kit.metadata["target"]
    if target["levels"]:
        levels = ", ".join(target["levels"])
        return f"It takes the first of these that the CPU can run: {levels}."
    features = ", ".join(target["features"])
    return f"Its CPU must have the features {features}." if features else "Any such CPU will do."


def _gpu(kit: Kit) -> str:
    if kit.metadata["target"].get("kind") != "cuda":
        return ""
    archs = ", ".join(kit.metadata["target"]["archs"])
    return (
        f"It runs on NVIDIA GPUs: {archs}, and later ones. That takes NVIDIA's driver, no CUDA "
        "toolkit.\n"
    )


def _weights(kit: Kit) -> str:
    if kit.metadata["target"].get("kind") == "cuda":
        return "weights are copied to the GPU once, for all handles there"
    return "weights are pages of the file, read when they are first used"


def _tensors(kit: Kit) -> str:
    lines = []
    for title, tensors in (("inputs", kit.inputs), ("outputs", kit.outputs)):
        lines += [f"{title}:", *(f"  {tensor.line}" for tensor in tensors)]
    return "".join(f"{line}\n" for line in lines)


def _open_sizes(kit: Kit) -> str:
    if not kit.free:
        return ""
    names = ", ".join(f"{name} ({what})" for name, what in kit.free.items())
    first = next(iter(kit.free))
    shapes = " ".join(
        f"--shape {shlex.quote(plain(t.name) + '=' + ','.join(map(_size, t.sizes)))}"
        for t in kit.inputs
        if not all(isinstance(size, int) for size in t.sizes)
    )
    return f"""
The examples take 1 for sizes that the model leaves open: {names}.
Change them at the top of `example.py` and `example.c`, or compile with `-D{first}=2`; in CMake,
`cmake -B build -DCMAKE_C_FLAGS=-D{first}=2`. `run` and `time` below, without `--input`, take
`{shapes}`.
"""


def _size(size: int | str) -> str:
    return str(size) if isinstance(size, int) else "…"


def _option(kit: Kit) -> str:
    """An option for each input."""
    files = [f"{tensor.name}=x{index}.npy" for index, tensor in enumerate(kit.inputs)]
    return "".join(f" --input {shlex.quote(file)}" for file in files)
