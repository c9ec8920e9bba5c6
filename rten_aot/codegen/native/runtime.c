/* Handles: options, creation, destruction. */
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

const char *rten_aot_metadata(void) { return rten_aot_desc.metadata; }

static int32_t read_options(const rten_aot_options *given, rten_aot_options *options) {
  static const rten_aot_options zero;
  enum { BAD = RTEN_AOT_BAD_ARGUMENT, MAX_SIZE = 4096 };
  *options = zero;
  if (given == NULL) return RTEN_AOT_OK;
  uint32_t size = given->struct_size;
  if (size == 0) {
    /* No version of this struct was ever smaller than this one. */
    if (memcmp(given, &zero, sizeof zero) == 0) return RTEN_AOT_OK;
    return rten_error(BAD, "options: struct_size is 0; set it to sizeof(rten_aot_options)");
  }
  if (size < sizeof zero.struct_size || size > MAX_SIZE)
    return rten_error(BAD, "options: struct_size %u is not sizeof(rten_aot_options)", size);
  memcpy(options, given, size < sizeof *options ? size : sizeof *options);
  for (uint32_t i = sizeof *options; i < size; ++i)
    if (((const char *)given)[i] != 0)
      return rten_error(BAD, "options: a field is set that this artifact does not know");
  if (options->num_threads < 0 || options->num_threads > RTEN_MAX_THREADS)
    return rten_error(BAD, "options: num_threads is %d, expected 0 to %d", options->num_threads,
                      RTEN_MAX_THREADS);
#ifdef RTEN_CUDA
  if (options->device_id < 0)
    return rten_error(BAD, "options: device_id is %d, expected 0 or more", options->device_id);
#else
  if (options->device_id != 0)
    return rten_error(BAD, "options: device_id is %d, but this artifact runs on the CPU (device 0)",
                      options->device_id);
  if (options->stream != NULL)
    return rten_error(BAD, "options: a stream is set, but this artifact runs on the CPU");
#endif
#ifdef RTEN_CUDA
  /* The names of the default streams, in which graphs cannot be recorded. */
  bool is_default = options->stream == (void *)1 || options->stream == (void *)2;
  if ((options->flags & RTEN_AOT_CUDA_GRAPH) && is_default)
    return rten_error(BAD, "options: graphs need another stream than the default one");
  if ((options->flags & ~(uint32_t)RTEN_AOT_CUDA_GRAPH) != 0)
    return rten_error(BAD, "options: flags are 0x%x, but only 0x%x is defined", options->flags,
                      (unsigned)RTEN_AOT_CUDA_GRAPH);
#else
  if (options->flags != 0)
    return rten_error(BAD, "options: flags are 0x%x, but none are defined", options->flags);
#endif
  if ((uintptr_t)options->workspace % RTEN_ALIGNMENT != 0)
    return rten_error(BAD, "options: workspace is not aligned to %d bytes", RTEN_ALIGNMENT);
  if (options->workspace == NULL && options->workspace_bytes > 0)
    return rten_error(BAD, "options: workspace is NULL, but workspace_bytes is %llu",
                      (unsigned long long)options->workspace_bytes);
  if (options->workspace != NULL && rten_aot_desc.workspace_bytes > 0 &&
      options->workspace_bytes < (uint64_t)rten_aot_desc.workspace_bytes)
    return rten_error(BAD, "options: the workspace has %llu bytes, the model needs %lld",
                      (unsigned long long)options->workspace_bytes,
                      (long long)rten_aot_desc.workspace_bytes);
  return RTEN_AOT_OK;
}

/* One allocation for every array of a handle: cut_arrays goes over it twice, to measure and to
 * cut. */
typedef struct {
  char *base;
  size_t used;
} cutter;

static void *cut(cutter *memory, int64_t count, size_t size) {
  size_t at = memory->used;
  memory->used += ((size_t)count * size + 15) & ~(size_t)15;
  return memory->base != NULL ? memory->base + at : NULL;
}

static void cut_arrays(rten_aot_model *model, cutter *memory) {
  const rten_model_desc *desc = &rten_aot_desc;
  int32_t out_dims = 0;
  for (int32_t i = 0; i < desc->num_outputs; ++i) out_dims += desc->outputs[i].ndim;
  model->syms = cut(memory, desc->num_symbols, sizeof(int64_t));
  model->bound = cut(memory, desc->num_input_symbols, sizeof(int64_t));
  model->bound_by = cut(memory, desc->num_input_symbols, sizeof(int32_t));
  model->sizes = cut(memory, desc->num_buffers, sizeof(int64_t));
  model->offsets = cut(memory, desc->num_buffers, sizeof(int64_t));
  model->placement = cut(memory, 1, rten_placement_bytes(desc->num_buffers));
  model->computed = cut(memory, out_dims, sizeof(int64_t));
  model->out_dims = cut(memory, out_dims, sizeof(int64_t));
  model->out_first = cut(memory, desc->num_outputs, sizeof(int32_t));
  model->out_bytes = cut(memory, desc->num_outputs, sizeof(int64_t));
  model->in = cut(memory, desc->num_inputs, sizeof(void *));
  model->out = cut(memory, desc->num_outputs, sizeof(void *));
  model->in_stage = cut(memory, desc->num_inputs, sizeof(rten_block));
  model->out_own = cut(memory, desc->num_outputs, sizeof(rten_block));
#ifdef RTEN_CUDA
  model->out_host = cut(memory, desc->num_outputs, sizeof(rten_block));
#endif
#ifdef RTEN_PROFILE
  model->steps = cut(memory, desc->num_steps, sizeof(rten_aot_step));
#endif
}

static rten_aot_model *new_model(void) {
  rten_aot_model measure;
  cutter memory = {NULL, 0};
  (void)cut(&memory, 1, sizeof measure);
  cut_arrays(&measure, &memory);
  memory.base = calloc(1, memory.used);
  if (memory.base == NULL) return NULL;
  memory.used = 0;
  rten_aot_model *model = cut(&memory, 1, sizeof *model);
  cut_arrays(model, &memory);
  int32_t first = 0;
  for (int32_t i = 0; i < rten_aot_desc.num_outputs; ++i) {
    model->out_first[i] = first;
    first += rten_aot_desc.outputs[i].ndim;
  }
  return model;
}

int32_t rten_aot_create(const rten_aot_options *given, rten_aot_model **out) {
  if (out == NULL) return rten_error(RTEN_AOT_BAD_ARGUMENT, "out is NULL");
  *out = NULL;
  rten_aot_options options;
  int32_t threads;
#ifdef RTEN_LEVELS
  rten_choose_level();
#endif
  int32_t code = read_options(given, &options);
  if (code == 0) code = rten_check_cpu(rten_aot_desc.features, rten_aot_desc.cpu);
  if (code == 0) code = rten_choose_threads(options.num_threads, &threads);
  if (code != 0) return code;
  rten_aot_model *model = new_model();
  if (model == NULL) return rten_error(RTEN_AOT_OUT_OF_MEMORY, "out of memory for a model handle");
  model->num_threads = threads;
  model->seed = options.seed != 0 ? options.seed : rten_fresh_seed(model);
  model->caller_workspace = options.workspace;
  model->caller_workspace_bytes = options.workspace_bytes;
  rten_pool_retain();
  code = rten_device_create(model, &options);
  if (code == 0)
    *out = model;
  else
    rten_aot_destroy(model);
  return code;
}

void rten_aot_destroy(rten_aot_model *model) {
  if (model == NULL) return;
#ifdef RTEN_CUDA
  rten_device_destroy(model);
#else
  for (int32_t i = 0; i < rten_aot_desc.num_inputs; ++i) rten_release(&model->in_stage[i]);
  for (int32_t i = 0; i < rten_aot_desc.num_outputs; ++i) rten_release(&model->out_own[i]);
  rten_release(&model->workspace);
  rten_arena_free(&model->arena);
#endif
  free(model);
  rten_pool_release();
}
