"""From a ``Graph`` to a Relax module of ``rten.*`` operators in ONNX's order of axes."""

from rten_aot.importer.signature import TensorSpec
from rten_aot.importer.translate import ImportedFunction, ImportedModel, import_model

__all__ = ["ImportedFunction", "ImportedModel", "TensorSpec", "import_model"]
