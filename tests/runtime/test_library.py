"""Files that are no compiled models, or not for this machine."""

from __future__ import annotations

import ctypes
import platform
import re
from pathlib import Path

import pytest

from rten_aot.runtime import ModelLoadError, load
from rten_aot.runtime.library import Library
from tests.runtime.fake_library import build_fake, feed


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"none\.so: there is no such file$"):
        load(tmp_path / "none.so")
    with pytest.raises(ModelLoadError, match=r": Is a directory$"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a library that rten-aot compiled$"),
        (b"text", "not a library that rten-aot compiled$"),
        (b"RTEN\2\0\0\0", r"is a model that was not compiled yet\nhint: rten-aot compile "),
        (b"\x10\0\0\0RTEN", r"is a model that was not compiled yet\nhint: rten-aot compile "),
    ],
)
def test_other_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "model.so"
    path.write_bytes(content)
    with pytest.raises(ModelLoadError, match=message):
        load(path)


def test_library_for_another_machine(fake: Path, tmp_path: Path) -> None:
    data = bytearray(fake.read_bytes())
    data[18:20] = (8).to_bytes(2, "little")
    path = tmp_path / "mips.so"
    path.write_bytes(data)
    with pytest.raises(ModelLoadError, match=r"was compiled for ELF machine 8, this is "):
        load(path)


def test_a_library_that_is_cut_short(fake: Path, tmp_path: Path) -> None:
    """The loader itself would let the process be ended by SIGBUS."""
    path, data = tmp_path / "cut.so", fake.read_bytes()
    for size in (4, 19, 20, 63, 64, 100, 1000, 5000, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(ModelLoadError, match=rf"^{re.escape(str(path))}: is cut short"):
            load(path)


def test_some_other_library() -> None:
    path = next(Path(ctypes.__file__).parents[1].glob("lib-dynload/_ctypes*.so"), None)
    if path is None:
        pytest.skip("this Python has no extension modules as files")
    with pytest.raises(ModelLoadError, match="not a library that rten-aot compiled"):
        load(path)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (r'"{\"abi\":2}"', r"has version 2 of the interface, this package knows 1\nhint: "),
        (r'"{}"', "its metadata cannot be read"),
        (r'"{\"abi\":1"', "its metadata cannot be read"),
        (r'"{\"abi\":1}"', "its metadata cannot be read"),
        (
            r'"{\"abi\":1,\"inputs\":[{\"name\":\"x\",\"dtype\":\"f9\",\"shape\":[]}]}"',
            '"x" has the data type f9',
        ),
    ],
)
def test_metadata(tmp_path: Path, metadata: str, message: str) -> None:
    path = build_fake(tmp_path, defines={"METADATA": metadata})
    with pytest.raises(ModelLoadError, match=message):
        load(path)
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_other_names_of_the_functions(tmp_path: Path) -> None:
    path = build_fake(tmp_path, symbol_prefix="face_detector")
    with load(path) as model:
        assert model.run(feed(2))["rows"].tolist() == [0]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names features of x86-64")
def test_missing_feature(tmp_path: Path) -> None:
    path = build_fake(tmp_path, defines={"FEATURES": '"sse2", "fma4", "tuning-flag", "xop"'})
    flags = Path("/proc/cpuinfo").read_text().split()
    if "fma4" in flags:
        pytest.skip("this CPU has them")
    with pytest.raises(
        ModelLoadError,
        match=r"this CPU lacks the features fma4, xop, which the artifact needs "
        r"\(compiled for tomorrow\)$",
    ):
        load(path)


# LLVM's name where it is not the one in /proc/cpuinfo without its underscores.
_X86_NAMES = {
    "pni": "sse3",
    "pclmulqdq": "pclmul",
    "bmi1": "bmi",
    "abm": "lzcnt",
    "rdrand": "rdrnd",
    "sha_ni": "sha",
    "lahf_lm": "sahf",
    "3dnowprefetch": "prfchw",
    "xgetbv1": "",
}
_X86_FEATURES = (
    "cx8 cmov mmx fxsr sse sse2 sse3 pclmul ssse3 fma cx16 sse4.1 sse4.2 movbe popcnt aes xsave "
    "avx f16c rdrnd fsgsbase bmi avx2 bmi2 avx512f avx512dq adx avx512ifma clflushopt clwb "
    "avx512cd sha avx512bw avx512vl avx512vbmi avx512vbmi2 gfni vaes vpclmulqdq avx512vnni "
    "avx512bitalg avx512vpopcntdq rdpid avx512vp2intersect amx-bf16 avx512fp16 amx-tile amx-int8 "
    "avxvnni avx512bf16 xsaveopt xsavec xsaves sahf lzcnt sse4a prfchw xop fma4 tbm"
).split()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names features of x86-64")
def test_features_are_those_of_the_kernel(tmp_path: Path) -> None:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    words = next(line for line in lines if line.startswith("flags")).split()
    flags = {_X86_NAMES.get(w, w.replace("_", "")) for w in words}
    expected = [f for f in _X86_FEATURES if f.replace("-", "").replace(".", "") not in flags]
    path = build_fake(tmp_path, defines={"FEATURES": ", ".join(f'"{f}"' for f in _X86_FEATURES)})
    with pytest.raises(ModelLoadError) as caught:
        load(path)
    missing = re.search("lacks the features? (.*), which", str(caught.value))
    assert missing is not None
    assert missing[1].split(", ") == expected


def test_close_is_final(fake: Path) -> None:
    library = Library(fake)
    assert library.metadata["abi"] == 1
    library.close()
    library.close()
