/* The tensors of a call: checks, binding of symbols, copies for alignment, results. */
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

/* A valid address for tensors of zero elements. */
static _Alignas(RTEN_ALIGNMENT) const char nothing[RTEN_ALIGNMENT];

static const char *data_of(const DLTensor *tensor) {
  return (const char *)tensor->data + tensor->byte_offset;
}

/* False when the product overflows what memory can hold or a dimension is negative. */
static bool tensor_bytes(const int64_t *dims, int32_t ndim, int bits, int64_t *bytes) {
  int64_t product = bits / 8;
  bool empty = false;
  for (int32_t i = 0; i < ndim; ++i) {
    if (dims[i] < 0) return false;
    if (dims[i] == 0) empty = true;
  }
  for (int32_t i = 0; i < ndim && !empty; ++i)
    if (__builtin_mul_overflow(product, dims[i], &product) || product > RTEN_MAX_BYTES)
      return false;
  *bytes = empty ? 0 : product;
  return true;
}

static bool is_aligned(const void *data) {
  int32_t alignment = rten_aot_desc.io_alignment > 0 ? rten_aot_desc.io_alignment : RTEN_ALIGNMENT;
  return ((uintptr_t)data & (uintptr_t)(alignment - 1)) == 0;
}

/* Steps along dimensions of one element, and all steps of an empty tensor, mean nothing. */
static bool is_compact(const DLTensor *tensor) {
  if (tensor->strides == NULL) return true;
  for (int32_t i = 0; i < tensor->ndim; ++i)
    if (tensor->shape[i] == 0) return true;
  int64_t step = 1;
  for (int32_t i = tensor->ndim - 1; i >= 0; --i) {
    if (tensor->shape[i] != 1 && tensor->strides[i] != step) return false;
    if (__builtin_mul_overflow(step, tensor->shape[i], &step)) return false;
  }
  return true;
}

/* What is checked alike for inputs and for outputs that the caller provides. */
static int32_t check_form(const rten_aot_model *model, const char *kind,
                          const rten_tensor_spec *spec, const DLTensor *tensor) {
  enum { SHOWN = 64 }; /* a number that is garbage must not lead far beyond the shape */
  rten_text want = {{0}, 0}, got = {{0}, 0};
  int32_t code = rten_device_accepts(model, kind, spec->name, tensor);
  if (code != 0) return code;
  DLDataType type = tensor->dtype;
  if (type.code != spec->dtype_code || type.bits != spec->dtype_bits || type.lanes != 1)
    return rten_error(RTEN_AOT_BAD_ARGUMENT, "%s \"%s\": expected %s, got %s", kind, spec->name,
                      rten_dtype_text(&want, spec->dtype_code, spec->dtype_bits, 1),
                      rten_dtype_text(&got, type.code, type.bits, type.lanes));
  if (tensor->ndim != spec->ndim) {
    rten_shape_text(&want, spec->dims, spec->ndim);
    if (tensor->ndim > 0 && tensor->ndim <= SHOWN && tensor->shape != NULL) {
      rten_append(&got, " ");
      rten_shape_text(&got, tensor->shape, tensor->ndim);
    }
    return rten_error(RTEN_AOT_BAD_ARGUMENT, "%s \"%s\": expected %d dimension%s %s, got %d%s",
                      kind, spec->name, (int)spec->ndim, spec->ndim == 1 ? "" : "s", want.text,
                      (int)tensor->ndim, got.text);
  }
  if (tensor->ndim > 0 && tensor->shape == NULL)
    return rten_error(RTEN_AOT_BAD_ARGUMENT, "%s \"%s\": shape is NULL", kind, spec->name);
  for (int32_t i = 0; i < tensor->ndim; ++i)
    if (tensor->shape[i] < 0)
      return rten_error(RTEN_AOT_BAD_ARGUMENT, "%s \"%s\": dimension %d is negative (%lld)", kind,
                        spec->name, (int)i, (long long)tensor->shape[i]);
  if (!is_compact(tensor))
    return rten_error(RTEN_AOT_BAD_ARGUMENT,
                      "%s \"%s\": strides are not compact (row-major without gaps)", kind,
                      spec->name);
  return RTEN_AOT_OK;
}

static int32_t check_data(const char *kind, const rten_tensor_spec *spec, const DLTensor *tensor) {
  int64_t bytes;
  if (!tensor_bytes(tensor->shape, tensor->ndim, spec->dtype_bits, &bytes))
    return rten_error(RTEN_AOT_BAD_ARGUMENT, "%s \"%s\": the shape is too large", kind, spec->name);
  if (tensor->data == NULL && bytes > 0)
    return rten_error(RTEN_AOT_BAD_ARGUMENT, "%s \"%s\": data is NULL", kind, spec->name);
  if ((uintptr_t)data_of(tensor) % (spec->dtype_bits / 8) != 0 && bytes > 0)
    return rten_error(RTEN_AOT_BAD_ARGUMENT, "%s \"%s\": data is not aligned to its elements", kind,
                      spec->name);
  return RTEN_AOT_OK;
}

static int32_t fixed_mismatch(const rten_tensor_spec *spec, const DLTensor *tensor, int32_t axis) {
  rten_text want = {{0}, 0}, got = {{0}, 0};
  return rten_error(RTEN_AOT_BAD_ARGUMENT,
                    "input \"%s\": dimension %d is %lld, expected %lld (shape %s, expected %s)",
                    spec->name, (int)axis, (long long)tensor->shape[axis],
                    (long long)spec->dims[axis],
                    rten_shape_text(&got, tensor->shape, tensor->ndim),
                    rten_shape_text(&want, spec->dims, spec->ndim));
}

static int32_t bind(rten_aot_model *model, const DLTensor *tensor, int32_t index, int32_t axis) {
  const rten_tensor_spec *spec = &rten_aot_desc.inputs[index];
  int64_t symbol = -1 - spec->dims[axis], size = tensor->shape[axis];
  if (model->bound_by[symbol] < 0) {
    model->bound_by[symbol] = index;
    model->bound[symbol] = size;
  } else if (model->bound[symbol] != size) {
    const char *name = rten_aot_desc.symbols != NULL ? rten_aot_desc.symbols[symbol] : "";
    return rten_error(RTEN_AOT_BAD_ARGUMENT,
                      "input \"%s\": dimension %d (%s) is %lld, but %s is %lld in input \"%s\"",
                      spec->name, (int)axis, name, (long long)size, name,
                      (long long)model->bound[symbol],
                      rten_aot_desc.inputs[model->bound_by[symbol]].name);
  }
  return RTEN_AOT_OK;
}

int32_t rten_bind_inputs(rten_aot_model *model, const DLTensor *inputs) {
  for (int32_t i = 0; i < rten_aot_desc.num_input_symbols; ++i) model->bound_by[i] = -1;
  for (int32_t i = 0; i < rten_aot_desc.num_inputs; ++i) {
    const rten_tensor_spec *spec = &rten_aot_desc.inputs[i];
    int32_t code = check_form(model, "input", spec, &inputs[i]);
    for (int32_t axis = 0; axis < spec->ndim && code == 0; ++axis) {
      if (spec->dims[axis] < 0)
        code = bind(model, &inputs[i], i, axis);
      else if (spec->dims[axis] != inputs[i].shape[axis])
        code = fixed_mismatch(spec, &inputs[i], axis);
    }
    if (code == 0) code = check_data("input", spec, &inputs[i]);
    if (code != 0) return code;
  }
  return RTEN_AOT_OK;
}

int32_t rten_stage_inputs(rten_aot_model *model, const DLTensor *inputs) {
  for (int32_t i = 0; i < rten_aot_desc.num_inputs; ++i) {
    const rten_tensor_spec *spec = &rten_aot_desc.inputs[i];
    const char *data = data_of(&inputs[i]);
    int64_t bytes = 0;
    (void)tensor_bytes(inputs[i].shape, inputs[i].ndim, spec->dtype_bits, &bytes);
    if (bytes == 0) {
      data = nothing;
    } else if (!rten_device_reaches(&inputs[i]) || !is_aligned(data)) {
      if (!rten_device_reserve(&model->in_stage[i], bytes))
        return rten_error(RTEN_AOT_OUT_OF_MEMORY,
                          "out of memory: %lld bytes for a copy of input \"%s\"", (long long)bytes,
                          spec->name);
      rten_device_put(model->in_stage[i].data, &inputs[i], data, bytes);
      data = model->in_stage[i].data;
    }
    model->in[i] = data;
  }
  return RTEN_AOT_OK;
}

int32_t rten_resolve_output(rten_aot_model *model, int32_t index) {
  const rten_tensor_spec *spec = &rten_aot_desc.outputs[index];
  int64_t *dims = &model->out_dims[model->out_first[index]];
  const int64_t *computed = &model->computed[model->out_first[index]];
  for (int32_t axis = 0; axis < spec->ndim; ++axis) {
    int64_t dim = spec->dims[axis];
    dims[axis] = dim >= 0 ? dim : dim == RTEN_DIM_COMPUTED ? computed[axis] : model->syms[-1 - dim];
  }
  if (!tensor_bytes(dims, spec->ndim, spec->dtype_bits, &model->out_bytes[index])) {
    rten_text shape = {{0}, 0};
    return rten_error(RTEN_AOT_RUN_FAILED, "output \"%s\" would have the impossible shape %s",
                      spec->name, rten_shape_text(&shape, dims, spec->ndim));
  }
  return RTEN_AOT_OK;
}

/* A struct that the model filled may come back as it was: its memory is then still the model's,
 * of whatever size the next result has. */
static bool is_own(const rten_aot_model *model, int32_t index, const DLTensor *tensor) {
  return tensor->data == NULL || tensor->shape == &model->out_dims[model->out_first[index]];
}

static int32_t check_output(const rten_aot_model *model, int32_t index, const DLTensor *tensor) {
  const rten_tensor_spec *spec = &rten_aot_desc.outputs[index];
  const int64_t *dims = &model->out_dims[model->out_first[index]];
  for (int32_t axis = 0; axis < spec->ndim; ++axis) {
    if (tensor->shape[axis] == dims[axis]) continue;
    rten_text want = {{0}, 0}, got = {{0}, 0};
    return rten_error(RTEN_AOT_BAD_ARGUMENT,
                      "output \"%s\": the result has shape %s, got memory for %s", spec->name,
                      rten_shape_text(&want, dims, spec->ndim),
                      rten_shape_text(&got, tensor->shape, tensor->ndim));
  }
  return check_data("output", spec, tensor);
}

int32_t rten_take_outputs(rten_aot_model *model, const DLTensor *outputs) {
  for (int32_t i = 0; i < rten_aot_desc.num_outputs; ++i) {
    const rten_tensor_spec *spec = &rten_aot_desc.outputs[i];
    const DLTensor *tensor = &outputs[i];
    bool own = is_own(model, i, tensor);
    model->out[i] = NULL;
    int32_t code = own ? 0 : check_form(model, "output", spec, tensor);
    if (code == 0 && !own && !spec->dynamic) code = check_output(model, i, tensor);
    if (code != 0) return code;
    if (spec->dynamic) continue;
    if (!own && rten_device_reaches(tensor) && is_aligned(data_of(tensor))) {
      model->out[i] = (void *)data_of(tensor);
      continue;
    }
    if (!rten_device_reserve(&model->out_own[i], model->out_bytes[i]))
      return rten_error(RTEN_AOT_OUT_OF_MEMORY, "out of memory: %lld bytes for output \"%s\"",
                        (long long)model->out_bytes[i], spec->name);
    model->out[i] = model->out_own[i].data;
  }
  return RTEN_AOT_OK;
}

static void describe_output(rten_aot_model *model, int32_t index, DLTensor *tensor) {
  const rten_tensor_spec *spec = &rten_aot_desc.outputs[index];
  rten_device_describe(model, index, tensor);
  tensor->ndim = spec->ndim;
  tensor->dtype = (DLDataType){spec->dtype_code, spec->dtype_bits, 1};
  tensor->shape = &model->out_dims[model->out_first[index]];
  tensor->strides = NULL;
  tensor->byte_offset = 0;
}

/* All checks come first, so that a failed run leaves the structs alone. */
int32_t rten_give_outputs(rten_aot_model *model, DLTensor *outputs) {
  for (int32_t i = 0; i < rten_aot_desc.num_outputs; ++i) {
    const rten_tensor_spec *spec = &rten_aot_desc.outputs[i];
    if (!spec->dynamic) continue;
    int32_t code = rten_resolve_output(model, i);
    if (code != 0) return code;
    if (model->out[i] == NULL && model->out_bytes[i] > 0)
      return rten_error(RTEN_AOT_RUN_FAILED, "output \"%s\" was not produced", spec->name);
    if (model->out[i] == NULL) model->out[i] = (void *)nothing;
    if (!is_own(model, i, &outputs[i]) && (code = check_output(model, i, &outputs[i])) != 0)
      return code;
  }
  for (int32_t i = 0; i < rten_aot_desc.num_outputs; ++i) {
    void *data = (void *)data_of(&outputs[i]);
    if (is_own(model, i, &outputs[i])) {
      int32_t code = rten_device_show(model, i, &outputs[i]);
      if (code != 0) return code;
    } else if (data != model->out[i] && model->out_bytes[i] > 0) {
      rten_device_get(&outputs[i], data, model->out[i], model->out_bytes[i]);
    }
  }
  int32_t code = rten_device_finish();
  for (int32_t i = 0; i < rten_aot_desc.num_outputs && code == 0; ++i)
    if (is_own(model, i, &outputs[i])) describe_output(model, i, &outputs[i]);
  return code;
}
