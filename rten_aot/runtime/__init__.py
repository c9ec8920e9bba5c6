"""Load and run compiled models. Needs NumPy only; imports nothing else of this package."""

from rten_aot.runtime.device import DeviceArray
from rten_aot.runtime.errors import InputError, ModelLoadError, ModelRunError
from rten_aot.runtime.model import Model, Profile, StepTimes, TensorInfo, load

__all__ = [
    "DeviceArray",
    "InputError",
    "Model",
    "ModelLoadError",
    "ModelRunError",
    "Profile",
    "StepTimes",
    "TensorInfo",
    "load",
]
