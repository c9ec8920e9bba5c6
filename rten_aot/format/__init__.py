"""Reader of .rten model files: bytes to plain dataclasses, with no part of the compiler."""

from .graph import Constant, Dim, DType, Graph, Model, Node, OpNode, Value
from .reader import read_model, read_model_bytes

__all__ = [
    "Constant",
    "DType",
    "Dim",
    "Graph",
    "Model",
    "Node",
    "OpNode",
    "Value",
    "read_model",
    "read_model_bytes",
]
