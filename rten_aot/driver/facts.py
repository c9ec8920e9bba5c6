"""What a library says of itself: its metadata, and the names in its messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

import tvm
from tvm import tirx

import rten_aot
from rten_aot.codegen.build import Code
from rten_aot.codegen.entry import Interface
from rten_aot.codegen.host import Site
from rten_aot.codegen.nvrtc import Image
from rten_aot.format.graph import Model
from rten_aot.importer import ImportedModel, TensorSpec
from rten_aot.targets.base import Machine
from rten_aot.targets.common.choices import Decisions
from rten_aot.targets.cuda.target import Gpu


def interface(
    model: Model,
    imported: ImportedModel,
    machine: Machine,
    code: Code,
    decisions: Mapping[str, Decisions],
    shared: Mapping[str, Any],
    code_bytes: int,
    images: Sequence[Image],
) -> Interface:
    """What the tables say of a level; ``shared`` holds what they say of all levels."""
    facts = facts_of(imported.inputs, imported.outputs, machine, code, code_bytes)
    if isinstance(machine, Gpu):
        facts["target"] |= {"kind": "cuda", "archs": list(machine.archs)}
        facts["kernels"] = _resources(images)
    facts["target"]["levels"] = shared["levels"]
    facts["sizes"]["workspace"] = shared["workspace"]
    facts["model"] = {
        "sha256": model.sha256,
        "format": model.format,
        "weights": shared["weights"],
        "metadata": dict(model.metadata),
    }
    if code.sites is not None:
        facts["profile"] = [
            _site_facts(site, imported.nodes, decisions.get(site.kernel)) for site in code.sites
        ]
    return Interface(
        [t.name for t in imported.inputs],
        [t.name for t in imported.outputs],
        imported.nodes,
        imported.size_names,
        imported.size_texts,
        machine.name,
        machine.features,
        facts,
    )


def _site_facts(
    site: Site, nodes: Sequence[tuple[str, str]], decisions: Decisions | None
) -> dict[str, Any]:
    """A timed step; its work is left out where only a run tells it."""
    facts: dict[str, Any] = {
        "kernel": site.kernel,
        "nodes": [{"name": nodes[i][0], "op": nodes[i][1]} for i in site.nodes],
    }
    for key, size in (("flops", site.work.flops), ("bytes", site.work.bytes)):
        if isinstance(size, tirx.IntImm):
            facts[key] = int(size.value)
    if decisions is not None and decisions.key is not None:
        facts["problem"] = decisions.key
        facts["choice"] = decisions.choice.fields
    return facts


def facts_of(
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    machine: Machine,
    code: Code,
    code_bytes: int,
) -> dict[str, Any]:
    """The artifact's metadata, but for the model's own."""

    def tensors(specs: Sequence[TensorSpec]) -> list[dict[str, Any]]:
        return [{"name": t.name, "dtype": t.dtype, "shape": list(t.shape)} for t in specs]

    return {
        "abi": 1,
        "model": {},
        "inputs": tensors(inputs),
        "outputs": tensors(outputs),
        "target": {
            "kind": "llvm",
            "triple": machine.triple,
            "cpu": machine.cpu,
            "features": list(machine.features),
            "levels": [],
            "archs": [],
        },
        "sizes": {
            "weights": code.program.weight_bytes,
            "code": code_bytes,
            "workspace": code.workspace,
        },
        "versions": {
            "rten_aot": rten_aot.__version__,
            "tvm": tvm.__version__,
            "ziglang": metadata.version("ziglang"),
        },
    }


def _resources(images: Sequence[Image]) -> dict[str, dict[str, dict[str, int]]]:
    """What each of a GPU's kernels uses, by its name and then the architecture."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for image in images:
        if not image.is_ptx:
            for name, used in image.kernels.items():
                found.setdefault(name, {})[f"sm_{image.arch}"] = dataclasses.asdict(used)
    return found
