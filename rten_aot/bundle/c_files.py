"""The C example of a bundle, and the CMake file that builds it."""

from __future__ import annotations

from rten_aot.bundle.kit import Kit, Tensor

_TYPES = {
    "float32": ("float", "kDLFloat, 32"),
    "int32": ("int32_t", "kDLInt, 32"),
    "int8": ("int8_t", "kDLInt, 8"),
    "uint8": ("uint8_t", "kDLUInt, 8"),
}
"""C's name of a data type, and DLPack's code and bits."""


def example(kit: Kit) -> str:
    """A C99 program that runs the model once on zeros and prints what comes out."""
    inputs = f"inputs, {len(kit.inputs)}" if kit.inputs else "NULL, 0"
    outputs = f"outputs, {len(kit.outputs)}" if kit.outputs else "NULL, 0"
    prints = "".join(
        f"  print({_string(tensor.name)}, &outputs[{i}]);\n" for i, tensor in enumerate(kit.outputs)
    )
    return f"""\
/* Runs {kit.library} once, on zeros, and prints what comes out. Made by {kit.maker}.
 *
{_list("inputs", kit.inputs)}{_list("outputs", kit.outputs)} *
 *   cc example.c -I. -L. -l{kit.name} -Wl,-rpath,'$ORIGIN' -o example && ./example
 */
#include <stdio.h>

#include "{kit.prefix}.h"
{_sizes(kit)}{_PRINTING if kit.outputs else ""}
static int fail(void) {{
  fprintf(stderr, "%s\\n", {kit.prefix}_error());
  return 1;
}}

int main(void) {{
{"".join(map(_memory, kit.inputs))}{_tensors(kit)}
  rten_aot_model *model;
  if ({kit.prefix}_create(NULL, &model) != RTEN_AOT_OK) return fail();
  if ({kit.prefix}_run(model, {inputs}, {outputs}) != RTEN_AOT_OK) return fail();
{prints}\
  {kit.prefix}_destroy(model);
  return 0;
}}
"""


def cmake(kit: Kit) -> str:
    """A CMake file with the library as a target, and the example where it is built by itself."""
    target = f"rten_{kit.name}"
    return f"""\
# Gives a project the library as a target:
#
#   add_subdirectory(path/to/this/folder)
#   target_link_libraries(your_program PRIVATE {target})
#
# Built by itself, it makes the example. Made by {kit.maker}.
cmake_minimum_required(VERSION 3.13)
project({target} LANGUAGES C)

add_library({target} SHARED IMPORTED GLOBAL)
set_target_properties({target} PROPERTIES
  IMPORTED_LOCATION "${{CMAKE_CURRENT_SOURCE_DIR}}/{kit.library}"
  INTERFACE_INCLUDE_DIRECTORIES "${{CMAKE_CURRENT_SOURCE_DIR}}")

if(CMAKE_SOURCE_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR)
  add_executable(example example.c)
  target_link_libraries(example PRIVATE {target})
endif()
"""


_PRINTING = """
static double element(const DLTensor *tensor, int64_t index) {
  if (tensor->dtype.code == kDLFloat) return ((const float *)tensor->data)[index];
  if (tensor->dtype.bits == 32) return ((const int32_t *)tensor->data)[index];
  if (tensor->dtype.code == kDLUInt) return ((const uint8_t *)tensor->data)[index];
  return ((const int8_t *)tensor->data)[index];
}

static void print(const char *name, const DLTensor *tensor) {
  int64_t count = 1;
  printf("%s [", name);
  for (int32_t i = 0; i < tensor->ndim; ++i) {
    printf("%s%lld", i > 0 ? ", " : "", (long long)tensor->shape[i]);
    count *= tensor->shape[i];
  }
  printf("]");
  for (int64_t i = 0; i < count && i < 8; ++i) printf(" %.6g", element(tensor, i));
  puts(count > 8 ? " ..." : "");
}
"""


def _list(title: str, tensors: tuple[Tensor, ...]) -> str:
    lines = [tensor.line for tensor in tensors] or ["none"]
    return f" * {title}:\n" + "".join(f" *   {line}\n" for line in lines)


def _sizes(kit: Kit) -> str:
    lines = [
        f"#ifndef {name}\n#define {name} 1 /* {what} */\n#endif\n"
        for name, what in kit.free.items()
    ]
    head = "\n/* Sizes that the model leaves open; cc -DNAME=2 gives others. */\n"
    return "".join([head, *lines]) if lines else ""


def _memory(tensor: Tensor) -> str:
    """The elements and the shape of an input."""
    name, sizes = tensor.identifier, tensor.sizes
    count = "1" if 0 in sizes else " * ".join(map(str, sizes)) or "1"
    shape = f"  int64_t shape_{name}[] = {{{', '.join(map(str, sizes))}}};\n" if sizes else ""
    return f"""\
  /* Your data goes here: {tensor.line} */
  static {_TYPES[tensor.dtype][0]} in_{name}[{count}];
{shape}"""


def _tensors(kit: Kit) -> str:
    rows = "".join(
        f"      {{in_{t.identifier}, {{kDLCPU, 0}}, {len(t.sizes)}, {{{_TYPES[t.dtype][1]}, 1}}, "
        f"{f'shape_{t.identifier}' if t.sizes else 'NULL'}, NULL, 0}},\n"
        for t in kit.inputs
    )
    inputs = f"  DLTensor inputs[] = {{\n{rows}  }};\n" if kit.inputs else ""
    outputs = f"""\
  /* No data: the model points them at memory of its own. */
  DLTensor outputs[{len(kit.outputs)}] = {{{{0}}}};
"""
    return inputs + (outputs if kit.outputs else "")


def _string(text: str) -> str:
    """A C string literal; what is not ASCII is written as UTF-8 in octal."""
    plain = {chr(code) for code in range(32, 127)} - set('"\\?')
    return '"' + "".join(c if c in plain else _octal(c) for c in text) + '"'


def _octal(char: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in char.encode())
