"""The files that go with a library to the machine that runs it: examples, loader, README.

They are made of the library's metadata alone; no TVM.
"""

from rten_aot.bundle.folder import new_files, texts
from rten_aot.bundle.kit import library_name

__all__ = ["library_name", "new_files", "texts"]
