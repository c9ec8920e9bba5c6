/* Graph inputs and outputs of a model that runs on a GPU: each may be there or in the host's
 * memory. */
#ifdef RTEN_CUDA
#include "runtime.h"

static bool is_on_device(const DLTensor *tensor) {
  return tensor->device.device_type == kDLCUDA || tensor->device.device_type == kDLCUDAManaged;
}

int32_t rten_device_accepts(const rten_aot_model *model, const char *kind, const char *name,
                            const DLTensor *tensor) {
  int32_t ordinal = model->cuda.device->ordinal;
  switch ((int)tensor->device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
    case kDLCUDAManaged:
      return RTEN_AOT_OK;
    case kDLCUDA:
      if (tensor->device.device_id == ordinal) return RTEN_AOT_OK;
      return rten_error(RTEN_AOT_BAD_ARGUMENT,
                        "%s \"%s\": is on GPU %d, but this handle is for GPU %d", kind, name,
                        (int)tensor->device.device_id, (int)ordinal);
    default:
      return rten_error(
          RTEN_AOT_BAD_ARGUMENT,
          "%s \"%s\": expected memory of an NVIDIA GPU or of the CPU (device types 2, "
          "13, 1 and 3), got device type %d",
          kind, name, (int)tensor->device.device_type);
  }
}

bool rten_device_reaches(const DLTensor *tensor) { return is_on_device(tensor); }

void rten_device_put(void *to, const DLTensor *from, const void *data, int64_t bytes) {
  if (is_on_device(from)) {
    (void)rten_aot_copy(to, data, bytes);
    return;
  }
  /* Of memory that the driver knows it may read after the call. */
  rten_current->cuda.waits = true;
  rten_cuda_send(to, data, bytes);
}

void rten_device_get(const DLTensor *to, void *data, const void *from, int64_t bytes) {
  if (is_on_device(to))
    (void)rten_aot_copy(data, from, bytes);
  else
    rten_cuda_fetch(data, from, bytes);
}

int32_t rten_device_show(rten_aot_model *model, int32_t index, const DLTensor *tensor) {
  if (is_on_device(tensor)) return RTEN_AOT_OK;
  int64_t bytes = model->out_bytes[index];
  rten_block *block = &model->out_host[index];
  if (!rten_cuda_reserve_pinned(block, bytes))
    return rten_error(RTEN_AOT_OUT_OF_MEMORY, "out of memory: %lld bytes for output \"%s\"",
                      (long long)bytes, rten_aot_desc.outputs[index].name);
  rten_cuda_fetch(block->data, model->out[index], bytes);
  return RTEN_AOT_OK;
}

void rten_device_describe(const rten_aot_model *model, int32_t index, DLTensor *tensor) {
  if (is_on_device(tensor)) {
    tensor->data = model->out[index];
    tensor->device = (DLDevice){kDLCUDA, model->cuda.device->ordinal};
  } else {
    tensor->data = model->out_host[index].data;
    tensor->device = (DLDevice){kDLCPU, 0};
  }
}

#endif
