/* What a run does on the GPU: memory, copies, launches, and what went wrong with them. */
#ifdef RTEN_CUDA
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

enum { MOST_BLOCKS_X = INT32_MAX, MOST_BLOCKS = 65535 };

static CUdeviceptr address_of(const void *data) { return (CUdeviceptr)data; }

static void release_pinned(rten_block *block) {
  if (block->data != NULL) (void)rten_cuda.free_host(block->data);
  *block = (rten_block){NULL, 0};
}

bool rten_cuda_reserve_pinned(rten_block *block, int64_t bytes) {
  enum { PORTABLE = 1 };
  size_t wanted = bytes > 0 ? (size_t)bytes : 1;
  if (wanted <= block->bytes) return true;
  release_pinned(block);
  if (rten_cuda.allocate_host(&block->data, wanted, PORTABLE) != CUDA_SUCCESS) {
    block->data = NULL;
    return false;
  }
  block->bytes = wanted;
  return true;
}

/* ---- handles ------------------------------------------------------------------------------- */

/* With the context current. */
static int32_t start(rten_cuda_part *part) {
  CUresult error = CUDA_SUCCESS;
  part->module = part->device->module;
  if (rten_cuda_desc.can_fail) {
    int32_t code = rten_cuda_load(part->device, &part->module);
    if (code != 0) return code;
  }
  if (part->stream == NULL) {
    /* One that waits for the default stream, on which a caller may have made the inputs. */
    error = rten_cuda.create_stream(&part->stream, 0);
    part->own_stream = error == CUDA_SUCCESS;
  }
  if (error == CUDA_SUCCESS) return RTEN_AOT_OK;
  return rten_cuda_error(RTEN_AOT_UNSUPPORTED_DEVICE, error, "no stream can be made");
}

int32_t rten_device_create(rten_aot_model *model, const rten_aot_options *options) {
  rten_cuda_part *part = &model->cuda;
  rten_cuda_device *device;
  int32_t code = rten_cuda_retain(options->device_id, &device);
  if (code != 0) return code;
  part->device = device;
  part->process = rten_process();
  part->stream = options->stream;
  const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
  part->stepwise = blocking != NULL && strcmp(blocking, "1") == 0;
  model->arena.on_device = true;
  for (int32_t i = 0; i < RTEN_CUDA_MAX_ARGUMENTS; ++i) part->arguments[i] = &part->values[i];
  if (options->flags & RTEN_AOT_CUDA_GRAPH) code = rten_cuda_want_graphs(&part->graph);
  if (code == 0) code = start(part);
  CUcontext context;
  (void)rten_cuda.pop_context(&context);
  return code;
}

void rten_device_destroy(rten_aot_model *model) {
  rten_cuda_part *part = &model->cuda;
  CUcontext context;
  rten_arena_free(&part->host_arena);
  /* Of a forked process the driver knows nothing. */
  if (part->device == NULL || part->process != rten_process()) return;
  if (rten_cuda.push_context(part->device->context) == CUDA_SUCCESS) {
    for (int32_t i = 0; i < rten_aot_desc.num_inputs; ++i) rten_device_release(&model->in_stage[i]);
    for (int32_t i = 0; i < rten_aot_desc.num_outputs; ++i) rten_device_release(&model->out_own[i]);
    for (int32_t i = 0; i < rten_aot_desc.num_outputs; ++i) release_pinned(&model->out_host[i]);
    rten_device_release(&model->workspace);
    rten_arena_free(&model->arena);
#ifdef RTEN_PROFILE
    rten_cuda_free_timings(part);
#endif
    rten_cuda_free_graph(&part->graph);
    if (part->own_stream) (void)rten_cuda.destroy_stream(part->stream);
    if (rten_cuda_desc.can_fail) rten_cuda_unload(&part->module);
    (void)rten_cuda.pop_context(&context);
  }
  rten_cuda_release(part->device);
}

/* ---- failures ------------------------------------------------------------------------------ */

/* Only the first one counts: those after it are its consequences. */
bool rten_cuda_good(CUresult error, const char *place) {
  rten_cuda_part *part = &rten_current->cuda;
  if (error == CUDA_SUCCESS) return true;
  if (part->error == CUDA_SUCCESS) {
    part->error = error;
    part->place = place;
    rten_aot_fail(RTEN_FAIL_DEVICE, -1, error);
  }
  return false;
}

int32_t rten_cuda_run_error(const rten_aot_model *model) {
  const rten_cuda_part *part = &model->cuda;
  const char *hint = part->place == NULL && !part->stepwise
                         ? " (with CUDA_LAUNCH_BLOCKING=1 in the environment, which kernel)"
                         : "";
  rten_text what = {{0}, 0};
  rten_append(&what, "on the GPU, in %s%s", part->place != NULL ? part->place : "a kernel", hint);
  return rten_cuda_error(RTEN_AOT_RUN_FAILED, part->error, what.text);
}

/* Waits for all that was asked of the GPU; a fault of a kernel shows here. */
static bool drained(void) {
  return rten_cuda_good(rten_cuda.wait_for_stream(rten_current->cuda.stream), NULL);
}

void rten_device_failed(void) {
  rten_cuda_part *part = &rten_current->cuda;
  rten_cuda_failure failure = {0, 0, 0, 0};
  if (!rten_cuda_desc.can_fail || part->error != CUDA_SUCCESS) return;
  if (!rten_cuda_good(
          rten_cuda.copy_to_host(&failure, part->module.failure, sizeof failure, part->stream),
          "a copy to the host") ||
      !drained())
    return;
  if (failure.claimed != 0) rten_aot_fail(failure.kind, failure.node, failure.value);
}

/* ---- runs ---------------------------------------------------------------------------------- */

int32_t rten_device_begin(rten_aot_model *model) {
  rten_cuda_part *part = &model->cuda;
  if (part->process != rten_process())
    return rten_error(RTEN_AOT_UNSUPPORTED_DEVICE,
                      "a GPU cannot be used in a process forked from one that uses it; start the "
                      "process anew");
  CUresult error = rten_cuda.push_context(part->device->context);
  if (error != CUDA_SUCCESS)
    return rten_cuda_error(RTEN_AOT_RUN_FAILED, error, "the GPU cannot be used");
  part->error = CUDA_SUCCESS;
  part->place = NULL;
  part->waits = part->own_stream;
#ifdef RTEN_PROFILE
  part->waits = true;
  part->num_timings = 0;
#endif
  rten_arena_reset(&part->host_arena);
  return RTEN_AOT_OK;
}

void rten_device_start(void) {
  rten_cuda_part *part = &rten_current->cuda;
  if (rten_cuda_desc.can_fail)
    (void)rten_cuda_good(
        rten_cuda.set_bytes(part->module.failure, 0, sizeof(rten_cuda_failure), part->stream),
        "the record of failures");
}

int32_t rten_device_finish(void) {
  const rten_cuda_part *part = &rten_current->cuda;
  rten_device_failed();
  if (part->waits) (void)drained();
  if (atomic_load_explicit(&rten_current->failure.kind, memory_order_acquire) != 0)
    return rten_failure_error(&rten_current->failure);
#ifdef RTEN_PROFILE
  rten_cuda_take_timings(rten_current);
#endif
  return RTEN_AOT_OK;
}

int32_t rten_device_end(rten_aot_model *model, int32_t code) {
  CUcontext context;
  /* An allocation may have failed for another reason than the one that it was taken for. */
  if (code != 0 && model->cuda.error != CUDA_SUCCESS) code = rten_cuda_run_error(model);
  /* What was asked for before the failure may still use the caller's memory. */
  if (code != 0) (void)rten_cuda.wait_for_stream(model->cuda.stream);
  (void)rten_cuda.pop_context(&context);
  return code;
}

/* ---- memory -------------------------------------------------------------------------------- */

bool rten_device_reserve(rten_block *block, int64_t bytes) {
  if (bytes < 0 || bytes > RTEN_MAX_BYTES) return false;
  size_t wanted = bytes > 0 ? (size_t)bytes : 1;
  if (wanted <= block->bytes) return true;
  rten_device_release(block);
  CUdeviceptr address = 0;
  CUresult error = rten_cuda.allocate(&address, wanted);
  if (error != CUDA_SUCCESS) {
    if (error != CUDA_ERROR_OUT_OF_MEMORY) (void)rten_cuda_good(error, "an allocation");
    return false;
  }
  *block = (rten_block){(void *)address, wanted};
  return true;
}

void rten_device_release(rten_block *block) {
  if (block->data != NULL) (void)rten_cuda.free(address_of(block->data));
  *block = (rten_block){NULL, 0};
}

const void *rten_cuda_host_weights(void) { return rten_aot_desc.weights; }

void *rten_cuda_host_alloc(int64_t bytes) {
  rten_device_differs();
  void *data = rten_arena_alloc(&rten_current->cuda.host_arena, bytes);
  if (data == NULL) rten_aot_fail(RTEN_FAIL_MEMORY, -1, bytes);
  return data;
}

/* ---- copies -------------------------------------------------------------------------------- */

int32_t rten_aot_copy(void *to, const void *from, int64_t bytes) {
  const rten_cuda_part *part = &rten_current->cuda;
  if (bytes > 0 && part->error == CUDA_SUCCESS)
    (void)rten_cuda_good(
        rten_cuda.copy_on_device(address_of(to), address_of(from), (size_t)bytes, part->stream),
        "a copy");
  return 0;
}

/* Of memory that the driver does not know, it takes a copy before it returns. */
void rten_cuda_send(void *device, const void *host, int64_t bytes) {
  const rten_cuda_part *part = &rten_current->cuda;
  if (bytes > 0 && part->error == CUDA_SUCCESS)
    (void)rten_cuda_good(
        rten_cuda.copy_to_device(address_of(device), host, (size_t)bytes, part->stream),
        "a copy to the GPU");
}

int32_t rten_cuda_upload(void *device, const void *host, int64_t bytes) {
  rten_device_differs();
  rten_cuda_send(device, host, bytes);
  return 0;
}

int32_t rten_cuda_download(void *host, const void *device, int64_t bytes) {
  const rten_cuda_part *part = &rten_current->cuda;
  rten_device_differs();
  if (bytes > 0 && part->error == CUDA_SUCCESS &&
      rten_cuda_good(rten_cuda.copy_to_host(host, address_of(device), (size_t)bytes, part->stream),
                     "a copy to the host"))
    (void)drained();
  return 0;
}

void rten_cuda_fetch(void *host, const void *device, int64_t bytes) {
  rten_cuda_part *part = &rten_current->cuda;
  if (bytes <= 0 || part->error != CUDA_SUCCESS) return;
  part->waits = true;
  (void)rten_cuda_good(
      rten_cuda.copy_to_host(host, address_of(device), (size_t)bytes, part->stream),
      "a copy to the host");
}

int32_t rten_cuda_host_copy(void *to, const void *from, int64_t bytes) {
  if (bytes > 0) memcpy(to, from, (size_t)bytes);
  return 0;
}

/* ---- launches ------------------------------------------------------------------------------ */

int32_t rten_cuda_pointer(int32_t index, void *address) {
  rten_current->cuda.values[index] = address_of(address);
  return 0;
}

int32_t rten_cuda_size(int32_t index, int64_t value) {
  rten_current->cuda.values[index] = (uint64_t)value;
  return 0;
}

int32_t rten_cuda_launch(int32_t kernel, int64_t grid_x, int64_t grid_y, int64_t grid_z,
                         int64_t block_x, int64_t block_y, int64_t block_z, int64_t shared_bytes) {
  rten_cuda_part *part = &rten_current->cuda;
  const char *name = rten_cuda_desc.kernels[kernel];
  CUfunction function = part->module.functions[kernel];
  if (grid_x <= 0 || grid_y <= 0 || grid_z <= 0 || part->error != CUDA_SUCCESS) return 0;
  if (grid_x > MOST_BLOCKS_X || grid_y > MOST_BLOCKS || grid_z > MOST_BLOCKS) {
    (void)rten_cuda_good(CUDA_ERROR_INVALID_VALUE, name);
    return 0;
  }
  if (shared_bytes > 0 &&
      !rten_cuda_good(
          rten_cuda.set_function_attribute(
              function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared_bytes),
          name))
    return 0;
  if (rten_cuda_good(
          rten_cuda.launch(function, (unsigned)grid_x, (unsigned)grid_y, (unsigned)grid_z,
                           (unsigned)block_x, (unsigned)block_y, (unsigned)block_z,
                           (unsigned)shared_bytes, part->stream, part->arguments, NULL),
          name) &&
      part->stepwise)
    (void)rten_cuda_good(rten_cuda.wait_for_stream(part->stream), name);
  return 0;
}

#endif
