/* Messages: the text of a thread's last failure, and how tensors are described in it. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime.h"

static _Thread_local char message[1024];

const char *rten_aot_error(void) { return message; }

int32_t rten_error(int32_t code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  return code;
}

int32_t rten_check_error(int32_t code, int64_t check) {
  if (check < 0 || check >= rten_aot_desc.num_checks)
    return rten_error(code, "the input shapes do not fit");
  const rten_check_spec *spec = &rten_aot_desc.checks[check];
  rten_text values = {{0}, 0};
  for (int32_t i = 0; i < spec->num_sizes; ++i)
    rten_append(&values, "%s%s is %lld", i == 0 ? " (" : ", ", spec->sizes[i].name,
                (long long)rten_current->syms[spec->sizes[i].symbol]);
  return rten_error(code, "%s%s%s", spec->message, values.text, spec->num_sizes > 0 ? ")" : "");
}

int32_t rten_failure_error(const rten_failure *failure) {
  int32_t kind = atomic_load_explicit(&failure->kind, memory_order_acquire);
  if (kind == RTEN_FAIL_MEMORY)
    return rten_error(RTEN_AOT_OUT_OF_MEMORY, "out of memory: %lld bytes for results of this run",
                      (long long)failure->value);
#ifdef RTEN_CUDA
  if (kind == RTEN_FAIL_DEVICE) return rten_cuda_run_error(rten_current);
#endif
  if (kind == RTEN_FAIL_CHECK) return rten_check_error(RTEN_AOT_RUN_FAILED, failure->value);
  rten_text place = {{0}, 0};
  if (failure->node >= 0 && failure->node < rten_aot_desc.num_nodes) {
    const rten_node_spec *node = &rten_aot_desc.nodes[failure->node];
    if (node->name[0] != '\0')
      rten_append(&place, "in node \"%s\" (%s)", node->name, node->op);
    else
      rten_append(&place, "in unnamed node %d (%s)", (int)failure->node, node->op);
  } else {
    rten_append(&place, "in the model");
  }
  long long value = (long long)failure->value;
  switch (kind) {
    case RTEN_FAIL_INDEX:
      return rten_error(RTEN_AOT_RUN_FAILED, "%s: index %lld is out of range", place.text, value);
    case RTEN_FAIL_DIVISION:
      return rten_error(RTEN_AOT_RUN_FAILED, "%s: division by zero", place.text);
    case RTEN_FAIL_SHAPE:
      return rten_error(RTEN_AOT_RUN_FAILED, "%s: size %lld does not fit the other shapes",
                        place.text, value);
    default:
      return rten_error(RTEN_AOT_RUN_FAILED, "%s: value %lld is not supported at run time",
                        place.text, value);
  }
}

void rten_append(rten_text *text, const char *format, ...) {
  size_t room = sizeof text->text - text->length;
  va_list args;
  va_start(args, format);
  int wrote = vsnprintf(text->text + text->length, room, format, args);
  va_end(args);
  if (wrote < 0) return;
  text->length += (size_t)wrote < room ? (size_t)wrote : room - 1;
}

static void append_dim(rten_text *text, int64_t dim) {
  if (dim >= 0) {
    rten_append(text, "%lld", (long long)dim);
    return;
  }
  int64_t symbol = dim == RTEN_DIM_COMPUTED ? INT64_MAX : -1 - dim;
  const char *name = symbol < rten_aot_desc.num_input_symbols && rten_aot_desc.symbols != NULL
                         ? rten_aot_desc.symbols[symbol]
                         : NULL;
  rten_append(text, "%s", name != NULL && name[0] != '\0' ? name : "?");
}

const char *rten_shape_text(rten_text *text, const int64_t *dims, int32_t ndim) {
  rten_append(text, "(");
  for (int32_t i = 0; i < ndim; ++i) {
    if (i > 0) rten_append(text, ", ");
    append_dim(text, dims[i]);
  }
  rten_append(text, ndim == 1 ? ",)" : ")");
  return text->text;
}

const char *rten_dtype_text(rten_text *text, int code, int bits, int lanes) {
  static const char *const kinds[] = {"int",    "uint",    "float", "handle",
                                      "bfloat", "complex", "bool"};
  if (code == 6 && bits == 8)
    rten_append(text, "bool");
  else if (code >= 0 && (size_t)code < sizeof kinds / sizeof *kinds)
    rten_append(text, "%s%d", kinds[code], bits);
  else
    rten_append(text, "dtype code %d with %d bits", code, bits);
  if (lanes != 1) rten_append(text, "x%d", lanes);
  return text->text;
}
