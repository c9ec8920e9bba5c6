"""Other tools' view of a model: as ONNX, for viewers and as a second opinion by ONNX Runtime.

The modules here need the packages of the extra ``verify``.
"""
