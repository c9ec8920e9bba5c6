/* What libraries compiled with --profile have besides, on a GPU: how long the steps took there, and
 * what it can do at best. */
#if defined(RTEN_CUDA) && defined(RTEN_PROFILE)
#include <stdlib.h>

#include "runtime.h"

/* ---- steps --------------------------------------------------------------------------------- */

/* Events are read in the end of a run only: nothing waits in between, so that they tell how long
 * the GPU took, not how long it takes to ask for a step. */
static bool one_more(rten_cuda_part *part) {
  if (part->num_timings < part->room_for_timings) return true;
  int32_t room = part->room_for_timings > 0 ? 2 * part->room_for_timings : 64;
  rten_cuda_timing *timings = realloc(part->timings, (size_t)room * sizeof *timings);
  if (timings == NULL) return false;
  part->timings = timings;
  for (int32_t i = part->room_for_timings; i < room; ++i) {
    rten_cuda_timing made = {NULL, NULL, 0, 0, 0};
    if (rten_cuda.create_event(&made.begin, 0) != CUDA_SUCCESS) return false;
    if (rten_cuda.create_event(&made.end, 0) != CUDA_SUCCESS) {
      (void)rten_cuda.destroy_event(made.begin);
      return false;
    }
    timings[i] = made;
    part->room_for_timings = i + 1;
  }
  return true;
}

int32_t rten_aot_begin_step(void) {
  rten_cuda_part *part = &rten_current->cuda;
  if (!one_more(part)) return rten_aot_fail(RTEN_FAIL_MEMORY, -1, sizeof(rten_cuda_timing));
  rten_cuda_timing *timing = &part->timings[part->num_timings];
  (void)rten_cuda_good(rten_cuda.record_event(timing->begin, part->stream), "an event");
  return 0;
}

int32_t rten_aot_end_step(int32_t step, int64_t flops, int64_t bytes) {
  rten_cuda_part *part = &rten_current->cuda;
  if (part->num_timings == part->room_for_timings) return 0;
  rten_cuda_timing *timing = &part->timings[part->num_timings++];
  timing->step = step;
  timing->flops = flops;
  timing->bytes = bytes;
  (void)rten_cuda_good(rten_cuda.record_event(timing->end, part->stream), "an event");
  return 0;
}

void rten_cuda_take_timings(rten_aot_model *model) {
  rten_cuda_part *part = &model->cuda;
  for (int32_t i = 0; i < part->num_timings; ++i) {
    const rten_cuda_timing *timing = &part->timings[i];
    float milliseconds = 0;
    if (rten_cuda.elapsed(&milliseconds, timing->begin, timing->end) != CUDA_SUCCESS) continue;
    rten_aot_step *entry = &model->steps[timing->step];
    entry->calls += 1;
    entry->nanoseconds += (int64_t)(milliseconds * 1e6f);
    entry->flops += timing->flops;
    entry->bytes += timing->bytes;
  }
}

void rten_cuda_free_timings(rten_cuda_part *part) {
  for (int32_t i = 0; i < part->room_for_timings; ++i) {
    (void)rten_cuda.destroy_event(part->timings[i].begin);
    (void)rten_cuda.destroy_event(part->timings[i].end);
  }
  free(part->timings);
}

/* ---- peaks --------------------------------------------------------------------------------- */

/* Multiply-adds that a multiprocessor begins in a cycle ("Throughput of native arithmetic
 * instructions" in NVIDIA's CUDA programming guide). */
static int32_t lanes_of(int32_t major, int32_t minor) {
  return major < 8 || (major == 8 && minor == 0) ? 64 : 128;
}

static CUresult compute_peak(CUdevice device, double *per_second) {
  static const int attributes[] = {
      CU_DEVICE_ATTRIBUTE_CLOCK_RATE, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
      CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR};
  int values[4];
  for (int32_t i = 0; i < 4; ++i) {
    CUresult error = rten_cuda.device_attribute(&values[i], attributes[i], device);
    if (error != CUDA_SUCCESS) return error;
  }
  *per_second = values[0] * 1e3 * values[1] * lanes_of(values[2], values[3]) * 2;
  return CUDA_SUCCESS;
}

/* The best of several rounds of copies from one half of the memory to the other. */
static CUresult time_copies(const rten_cuda_part *part, const rten_cuda_timing *timing,
                            CUdeviceptr memory, size_t half, double *per_second) {
  enum { ROUNDS = 10, LEAST_BYTES = 1 << 30 };
  size_t copies = LEAST_BYTES / half + 1;
  *per_second = 0;
  for (int32_t round = 0; round < ROUNDS; ++round) {
    CUresult error = rten_cuda.record_event(timing->begin, part->stream);
    for (size_t i = 0; i < copies && error == CUDA_SUCCESS; ++i)
      error = rten_cuda.copy_on_device(memory + half, memory, half, part->stream);
    if (error == CUDA_SUCCESS) error = rten_cuda.record_event(timing->end, part->stream);
    if (error == CUDA_SUCCESS) error = rten_cuda.wait_for_event(timing->end);
    float milliseconds = 0;
    if (error == CUDA_SUCCESS) error = rten_cuda.elapsed(&milliseconds, timing->begin, timing->end);
    if (error != CUDA_SUCCESS) return error;
    double rate = 2e3 * (double)half * (double)copies / ((double)milliseconds + 1e-6);
    if (rate > *per_second) *per_second = rate;
  }
  return CUDA_SUCCESS;
}

static CUresult memory_peak(rten_cuda_part *part, size_t half, double *per_second) {
  CUdeviceptr memory = 0;
  part->num_timings = 0;
  if (!one_more(part)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult error = rten_cuda.allocate(&memory, 2 * half);
  if (error != CUDA_SUCCESS) return error;
  error = time_copies(part, &part->timings[0], memory, half, per_second);
  CUresult freed = rten_cuda.free(memory);
  return error != CUDA_SUCCESS ? error : freed;
}

int32_t rten_aot_peak(rten_aot_model *model, int64_t bytes, double *per_second) {
  if (model == NULL || per_second == NULL)
    return rten_error(RTEN_AOT_BAD_ARGUMENT, "%s is NULL", model == NULL ? "model" : "per_second");
  CUresult error;
  int32_t code = rten_device_begin(model);
  if (code != 0) return code;
  if (bytes <= 0)
    error = compute_peak(model->cuda.device->device, per_second);
  else
    error = memory_peak(&model->cuda, (size_t)bytes / 2 + 1, per_second);
  if (error != CUDA_SUCCESS)
    code = rten_cuda_error(RTEN_AOT_RUN_FAILED, error, "the GPU's best cannot be measured");
  return rten_device_end(model, code);
}

#endif
