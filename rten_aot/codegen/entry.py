"""The tables of a model as C text; ``native/rten_aot_internal.h`` describes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, tirx

from rten_aot.codegen.host import Site
from rten_aot.codegen.program import Planned, Program
from rten_aot.codegen.sizes import free_sizes

_WIDEST_ELEMENT = 4
"""Bytes: kernels ask no more of the caller's memory than that elements are aligned."""
_WIDEST_ACCESS = 16
"""Bytes that a GPU's kernels load and store at once."""


@dataclass(frozen=True)
class Interface:
    """What the tables say besides the program: names, features and metadata."""

    inputs: Sequence[str]
    outputs: Sequence[str]
    nodes: Sequence[tuple[str, str]]
    size_names: Mapping[str, str]
    """Names of dimensions for messages, by the name of the size variable."""
    size_texts: Mapping[str, str]
    """The same, with words for those that have no name."""
    cpu: str
    features: Sequence[str]
    metadata: Mapping[str, Any]


@dataclass(frozen=True)
class Version:
    """What the tables say of a program that is made for one CPU."""

    program: Program
    interface: Interface
    workspace: int | None
    """The number of bytes if the buffers' offsets are compiled in, else None."""
    sites: Sequence[Site] | None = None
    """The steps that the program times, None if it times none."""
    prefix: str = ""
    """What the names of its functions begin with."""


def model_source(versions: Sequence[Version]) -> str:
    """The text of model.c for a program in one version, or in several, the best first.

    Several are for the macro RTEN_LEVELS. They differ in their functions, in what these need of
    the workspace and the CPU, and in their metadata's target.
    """
    program, interface = versions[0].program, versions[0].interface
    tables = _Tables()
    inputs = tables.tensors("input", interface.inputs, program.input_types, program, {})
    outputs = tables.tensors(
        "output", interface.outputs, program.output_types, program, program.dynamic_dims
    )
    symbols = tables.strings(
        "symbols", [interface.size_names.get(v.name, "") for v in program.sizes]
    )
    buffers = [
        tables.array("rten_buffer_spec", f"{v.prefix}buffers", map(_buffer, _placed(v)))
        for v in versions
    ]
    nodes = tables.array(
        "rten_node_spec", "nodes", (f"{{{_text(n)}, {_text(o)}}}" for n, o in interface.nodes)
    )
    checks = tables.checks(program, interface.size_texts)
    features = [
        tables.strings(f"{v.prefix}features", list(v.interface.features), terminated=True)
        for v in versions
    ]
    shared = {
        "inputs": inputs,
        "num_inputs": str(len(program.input_types)),
        "outputs": outputs,
        "num_outputs": str(len(program.output_types)),
        "symbols": symbols,
        "num_symbols": str(program.slots),
        "num_input_symbols": str(len(program.sizes)),
        "nodes": nodes,
        "num_nodes": str(len(interface.nodes)),
        "checks": checks,
        "num_checks": str(len(program.checks)),
        "io_alignment": str(_alignment(interface)),
        "weights": "rten_aot_weights" if program.weight_bytes else "NULL",
    }
    own = [
        {**_own_fields(v), "buffers": b, "features": f}
        for v, b, f in zip(versions, buffers, features, strict=True)
    ]
    declaration = (
        "extern const uint8_t rten_aot_weights[] RTEN_HIDDEN;\n" if program.weight_bytes else ""
    )
    return f"""#include "rten_aot_internal.h"

{declaration}{"".join(map(_functions, versions))}{"".join(tables.text)}
{_descriptors(versions, [{**shared, **fields} for fields in own])}"""


def _alignment(interface: Interface) -> int:
    """Bytes that addresses of inputs and outputs are multiples of."""
    of_gpu = interface.metadata["target"]["kind"] == "cuda"
    return _WIDEST_ACCESS if of_gpu else _WIDEST_ELEMENT


def _placed(version: Version) -> list[Planned]:
    """The buffers that the runtime places."""
    return version.program.buffers if version.workspace is None else []


def _own_fields(version: Version) -> dict[str, str]:
    """The fields that differ from version to version, but for tables."""
    program, workspace = version.program, version.workspace
    needs_prepare = bool(program.sizes or program.checks)
    fields = {
        "cpu": _text(version.interface.cpu),
        "num_buffers": str(len(_placed(version))),
        "workspace_bytes": "-1" if workspace is None else str(workspace),
        "prepare": f"{version.prefix}call_prepare" if needs_prepare else "NULL",
        "main": f"{version.prefix}call_main",
    }
    if version.sites is not None:
        fields["num_steps"] = str(len(version.sites))
    return fields


def _functions(version: Version) -> str:
    """The functions that unpack arrays and call the program's."""
    program, prefix = version.program, version.prefix
    arguments = [
        *(f"in[{i}]" for i in range(len(program.input_types))),
        *(f"out[{i}]" for i in range(len(program.output_types))),
        "syms",
        "workspace",
        "offsets",
        "weights",
    ]
    types = [
        *["const void *"] * len(program.input_types),
        *["void *"] * len(program.output_types),
        "int64_t *",
        "uint8_t *",
        "const int64_t *",
        "const uint8_t *",
    ]
    return f"""RTEN_HIDDEN int32_t {prefix}rten_main({", ".join(types)});
RTEN_HIDDEN int32_t {prefix}rten_prepare(int64_t *, int64_t *, int64_t *, int64_t *);

static int32_t {prefix}call_main(const void *const *in, void *const *out, int64_t *syms,
                         uint8_t *workspace, const int64_t *offsets, const uint8_t *weights) {{
  (void)in; (void)out;
  return {prefix}rten_main({", ".join(arguments)});
}}

static inline int32_t {prefix}call_prepare(int64_t *syms, int64_t *sizes, int64_t *out_dims) {{
  int64_t failed_check = 0;
  {prefix}rten_prepare(syms, sizes, out_dims, &failed_check);
  return (int32_t)failed_check;
}}

"""


def _descriptors(versions: Sequence[Version], fields: Sequence[Mapping[str, str]]) -> str:
    metadata = [v.interface.metadata for v in versions]
    if len(versions) == 1:
        body = _descriptor(metadata[0], fields[0])
        return f"RTEN_HIDDEN const rten_model_desc rten_aot_desc = {body};\n"
    chosen = [
        _descriptor(_of_level(facts, version.interface.cpu), f)
        for facts, version, f in zip(metadata, versions, fields, strict=True)
    ]
    every = "".join(f"{body},\n" for body in (*chosen, _descriptor(metadata[-1], fields[-1])))
    return f"""RTEN_HIDDEN const rten_model_desc rten_aot_levels[] = {{
{every}}};
RTEN_HIDDEN const int32_t rten_aot_num_levels = {len(versions)};
RTEN_HIDDEN _Atomic(const rten_model_desc *) rten_aot_level = &rten_aot_levels[{len(versions)}];
"""


def _of_level(metadata: Mapping[str, Any], level: str) -> dict[str, Any]:
    """Metadata that says which level is in use."""
    return {**metadata, "target": {**metadata["target"], "level": level}}


def _descriptor(metadata: Mapping[str, Any], fields: Mapping[str, str]) -> str:
    text = _text(json.dumps(metadata, sort_keys=True, ensure_ascii=False))
    every = {"abi": "RTEN_DESC_ABI", "metadata": text, **fields}
    return "{\n" + "".join(f"    .{name} = {value},\n" for name, value in every.items()) + "}"


class _Tables:
    def __init__(self) -> None:
        self.text: list[str] = []

    def array(self, kind: str, name: str, items: Iterable[str]) -> str:
        rows = list(items)
        if not rows:
            return "NULL"
        lines = "".join(f"    {row},\n" for row in rows)
        self.text.append(f"static const {kind} {name}[] = {{\n{lines}}};\n")
        return name

    def strings(self, name: str, items: Sequence[str], *, terminated: bool = False) -> str:
        rows = [_text(i) for i in items] + (["NULL"] if terminated else [])
        return self.array("char *const", name, rows)

    def checks(self, program: Program, names: Mapping[str, str]) -> str:
        """Messages, each with the sizes of inputs whose values it is to tell."""
        rows = []
        for index, check in enumerate(program.checks):
            own = free_sizes(check.condition)
            sizes = [
                f"{{{_text(names.get(var.name, var.name))}, {symbol}}}"
                for symbol, var in enumerate(program.sizes)
                if var in own
            ]
            table = self.array("rten_size_spec", f"check{index}", sizes)
            rows.append(f"{{{_text(check.message)}, {table}, {len(sizes)}}}")
        return self.array("rten_check_spec", "checks", rows)

    def tensors(
        self,
        kind: str,
        names: Sequence[str],
        types: Sequence[relax.TensorType],
        program: Program,
        dynamic: Mapping[int, Sequence[int | None]],
    ) -> str:
        rows = []
        for index, (name, ty) in enumerate(zip(names, types, strict=True)):
            slots = dynamic.get(index, [None] * len(ty.shape.values))
            dims = [_dim(d, slot, program) for d, slot in zip(ty.shape.values, slots, strict=True)]
            table = self.array("int64_t", f"{kind}{index}", dims)
            dtype = np.dtype(str(ty.dtype))
            code = {"i": 0, "u": 1, "f": 2}[dtype.kind]
            rows.append(
                f"{{{_text(name)}, {table}, {len(dims)}, {code}, {dtype.itemsize * 8}, "
                f"{int(index in dynamic)}}}"
            )
        return self.array("rten_tensor_spec", f"{kind}s", rows)


def _dim(dim: tirx.Expr, slot: int | None, program: Program) -> str:
    if slot is not None:
        return f"RTEN_DIM_SYMBOL({slot})"
    if isinstance(dim, tirx.IntImm):
        return f"INT64_C({int(dim.value)})"
    for index, var in enumerate(program.sizes):
        if var.same_as(dim):
            return f"RTEN_DIM_SYMBOL({index})"
    return "RTEN_DIM_COMPUTED"


def _buffer(buffer: Planned) -> str:
    size = int(buffer.size.value) if isinstance(buffer.size, tirx.IntImm) else -1
    return f"{{INT64_C({size}), {buffer.first}, {buffer.last}}}"


def _text(text: str) -> str:
    """A C string literal of the UTF-8 bytes."""
    out = []
    for byte in text.encode():
        char = chr(byte)
        if char in '"\\?':  # a question mark could begin a trigraph
            out.append("\\" + char)
        elif 32 <= byte < 127:
            out.append(char)
        else:
            out.append(f"\\{byte:03o}")
    return '"' + "".join(out) + '"'
