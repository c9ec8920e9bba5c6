"""Hostile files: truncated, mutated, or built to explode. The only way out is ModelFormatError."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import flatbuffers
import pytest

import rten_aot
from rten_aot.errors import ModelFormatError
from rten_aot.format import read_model, read_model_bytes, schema_generated
from tests.support.rten_writer import container, encode

MUTATIONS = 20_000
INTERESTING = (0, 1, 2, 3, 4, 7, 8, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, 2**31, 2**32 - 1)


@contextmanager
def bounded_memory(file_size: int) -> Iterator[None]:
    """The promise to users: at most twice the file and 50 MB."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 2 * file_size + 50_000_000


def survives(data: bytes) -> bool:
    """Whether ``data`` is a model; any exception but a ModelFormatError escapes."""
    try:
        read_model_bytes(data)
    except ModelFormatError:
        return False
    return True


@pytest.mark.parametrize("name", ["branches-v1", "branches-v2", "quantized-v2"])
def test_every_truncation(real_models: Mapping[str, Path], name: str) -> None:
    data = real_models[name].read_bytes()
    assert survives(data)
    for length in range(len(data)):
        assert not survives(data[:length]), f"readable when cut to {length} bytes"


def test_truncated_files_on_disk(real_models: Mapping[str, Path], tmp_path: Path) -> None:
    data = real_models["cnn-v2"].read_bytes()
    path = tmp_path / "cut.rten"
    for length in range(0, len(data), 41):
        path.write_bytes(data[:length])
        with pytest.raises(ModelFormatError):
            read_model(path)


def mutate(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """One of the ways in which files go wrong, or are made to."""
    out = bytearray(data)
    at = rng.randrange(len(out))
    word = at & ~3 if at + 4 <= len(out) else 0
    match rng.randrange(7):
        case 0:
            for _ in range(rng.randint(1, 8)):
                out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
        case 1:
            out[at] = rng.choice(INTERESTING) & 255
        case 2:
            struct.pack_into("<I", out, word, rng.choice(INTERESTING))
        case 3:
            # An offset or a length that is wrong, but not by much.
            (old,) = struct.unpack_from("<I", out, word)
            struct.pack_into("<I", out, word, (old + rng.randint(-64, 64)) % 2**32)
        case 4:
            struct.pack_into("<H", out, word, rng.choice(INTERESTING) & 65535)
        case 5:
            start, size = rng.randrange(len(other)), rng.randint(1, 64)
            out[at : at + size] = other[start : start + size]
        case 6:
            size = rng.randint(1, 64)
            if rng.random() < 0.5:
                del out[at : at + size]
            else:
                out[at:at] = rng.randbytes(size)
    return bytes(out)


def test_mutations(real_models: Mapping[str, Path]) -> None:
    files = [path.read_bytes() for path in real_models.values()]
    rng = random.Random(20240229)
    readable = 0
    for number in range(MUTATIONS):
        data = mutate(files[number % len(files)], rng.choice(files), rng)
        while rng.random() < 0.3:
            data = mutate(data, rng.choice(files), rng)
        # Watching the memory makes reading several times slower.
        with bounded_memory(len(data)) if number % 20 == 0 else nullcontext():
            readable += survives(data)
    # Mutations that always or never break a file would test nothing.
    assert MUTATIONS // 20 < readable < MUTATIONS // 2


def bomb(kind: str) -> bytes:
    """A small file that describes far more objects than it has bytes."""
    sg: Any = schema_generated
    builder = flatbuffers.Builder(1 << 16)

    def offsets(start: str, target: int, count: int) -> int:
        getattr(sg, start)(builder, count)
        for _ in range(count):
            builder.PrependUOffsetTRelative(target)
        return int(builder.EndVector())

    def node(name: int, tag: int, body: int) -> int:
        sg.NodeStart(builder)
        sg.NodeAddName(builder, name)
        sg.NodeAddDataType(builder, tag)
        sg.NodeAddData(builder, body)
        return int(sg.NodeEnd(builder))

    def graph(nodes: int) -> int:
        sg.GraphStart(builder)
        sg.GraphAddNodes(builder, nodes)
        return int(sg.GraphEnd(builder))

    def operator(op: int, tag: int, attrs: int, inputs: int) -> int:
        sg.OperatorNodeStart(builder)
        sg.OperatorNodeAddType(builder, op)
        sg.OperatorNodeAddAttrsType(builder, tag)
        sg.OperatorNodeAddAttrs(builder, attrs)
        sg.OperatorNodeAddInputs(builder, inputs)
        return int(sg.OperatorNodeEnd(builder))

    name = builder.CreateString("é" * (10_000 if kind == "names" else 1))
    ints = offsets("OperatorNodeStartInputsVector", 0, 0)
    sg.ValueNodeStart(builder)
    body = node(name, sg.NodeKind.ValueNode, sg.ValueNodeEnd(builder))
    match kind:
        case "nodes" | "names":
            nodes = offsets("GraphStartNodesVector", body, 200_000)
        case "attributes":
            axes = offsets("TransposeAttrsStartPermVector", name, 100_000)
            sg.TransposeAttrsStart(builder)
            sg.TransposeAttrsAddPerm(builder, axes)
            attrs = sg.TransposeAttrsEnd(builder)
            tag = sg.OperatorAttrs.TransposeAttrs
            op = operator(sg.OperatorType.Transpose, tag, attrs, ints)
            nodes = offsets("GraphStartNodesVector", node(name, 1, op), 1000)
        case "operators":
            tag = sg.OperatorAttrs.GeluAttrs
            sg.GeluAttrsStart(builder)
            op = operator(sg.OperatorType.Gelu, tag, sg.GeluAttrsEnd(builder), ints)
            nodes = offsets("GraphStartNodesVector", node(name, 1, op), 200_000)
        case _:
            nodes = offsets("GraphStartNodesVector", body, 1)
            for _ in range(30 if kind == "branches" else 40):
                branch = graph(nodes)
                sg.IfAttrsStart(builder)
                sg.IfAttrsAddThenBranch(builder, branch)
                sg.IfAttrsAddElseBranch(builder, branch)
                attrs = sg.IfAttrsEnd(builder)
                op = operator(sg.OperatorType.If, sg.OperatorAttrs.IfAttrs, attrs, ints)
                nodes = offsets("GraphStartNodesVector", node(name, 1, op), 1)
    outermost = graph(nodes)
    sg.ModelStart(builder)
    sg.ModelAddSchemaVersion(builder, 1)
    sg.ModelAddGraph(builder, outermost)
    builder.Finish(sg.ModelEnd(builder), b"RTEN")
    return bytes(builder.Output())


READ_AND_MEASURE = """
import resource, sys
from rten_aot.errors import ModelFormatError
from rten_aot.format import read_model

def peak():
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

before = peak()
try:
    read_model(sys.argv[1])
except ModelFormatError as err:
    print(err)
print(peak() - before)
"""

TOO_LARGE = "the structure is too large for a file of this size"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("nodes", TOO_LARGE),
        ("names", TOO_LARGE),
        ("attributes", TOO_LARGE),
        ("operators", TOO_LARGE),
        ("branches", TOO_LARGE),
        ("depth", "graphs are nested more than 32 deep"),
    ],
)
def test_bombs(kind: str, message: str, tmp_path: Path) -> None:
    data = bomb(kind)
    assert len(data) < 1_000_000
    path = tmp_path / "bomb.rten"
    path.write_bytes(data)
    # A process of its own: only there the greatest memory use so far tells something.
    child = subprocess.run(
        [sys.executable, "-c", READ_AND_MEASURE, path],
        env={**os.environ, "PYTHONPATH": str(Path(rten_aot.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    error, grown = child.stdout.splitlines()[0], int(child.stdout.splitlines()[-1])
    assert message in error
    assert grown <= 2 * len(data) + 50_000_000


def test_nested_branches_up_to_the_limit() -> None:
    graph: dict[str, Any] = {}
    for _ in range(32):
        attrs = ("IfAttrs", {"then_branch": graph, "else_branch": {}})
        graph = {"nodes": [{"data": ("OperatorNode", {"type": "If", "attrs": attrs})}]}
    assert survives(encode({"schema_version": 1, "graph": graph}))


def test_weights_are_not_copied(tmp_path: Path) -> None:
    size = 100_000_000
    node = {
        "name": "w",
        "data": ("ConstantNode", {"shape": [size // 4], "dtype": "Float32", "data_offset": 0}),
    }
    path = tmp_path / "large.rten"
    with path.open("wb") as file:
        file.write(container(encode({"schema_version": 1, "graph": {"nodes": [node]}})))
        file.truncate(file.tell() + size)
    tracemalloc.start()
    try:
        model = read_model(path)
        assert len(model.graph.nodes) == 1
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
