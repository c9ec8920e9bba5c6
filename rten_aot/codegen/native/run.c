/* One run of a model, and what generated code calls while it lasts. */
#include <string.h>

#include "runtime.h"

_Thread_local rten_aot_model *rten_current;

static int32_t place_buffers(rten_aot_model *model) {
  const rten_model_desc *desc = &rten_aot_desc;
  if (desc->workspace_bytes >= 0) {
    model->workspace_needed = desc->workspace_bytes;
    if (desc->offsets != NULL && desc->num_buffers > 0)
      memcpy(model->offsets, desc->offsets, (size_t)desc->num_buffers * sizeof *model->offsets);
    return RTEN_AOT_OK;
  }
  model->workspace_needed = rten_place(desc->buffers, model->sizes, desc->num_buffers,
                                       model->offsets, model->placement);
  if (model->workspace_needed < 0)
    return rten_error(RTEN_AOT_OUT_OF_MEMORY, "out of memory: results of this size cannot exist");
  return RTEN_AOT_OK;
}

/* Everything that depends on the input symbols alone. */
static int32_t prepare(rten_aot_model *model) {
  const rten_model_desc *desc = &rten_aot_desc;
  size_t bound_bytes = (size_t)desc->num_input_symbols * sizeof *model->bound;
  if (model->prepared && (bound_bytes == 0 || memcmp(model->syms, model->bound, bound_bytes) == 0))
    return RTEN_AOT_OK;
  model->prepared = false;
  if (bound_bytes > 0) memcpy(model->syms, model->bound, bound_bytes);
  for (int32_t i = 0; i < desc->num_buffers; ++i) model->sizes[i] = desc->buffers[i].bytes;
  int32_t failed = 0;
  if (desc->prepare != NULL) failed = desc->prepare(model->syms, model->sizes, model->computed);
  if (failed != 0) return rten_check_error(RTEN_AOT_BAD_ARGUMENT, (int64_t)failed - 1);
  for (int32_t i = 0; i < desc->num_outputs; ++i) {
    int32_t code = desc->outputs[i].dynamic ? 0 : rten_resolve_output(model, i);
    if (code != 0) return code;
  }
  int32_t code = place_buffers(model);
  model->prepared = code == 0;
  return code;
}

static int32_t take_workspace(rten_aot_model *model, uint8_t **workspace) {
  int64_t needed = model->workspace_needed;
  if (model->caller_workspace != NULL) {
    *workspace = model->caller_workspace;
    if ((uint64_t)needed <= model->caller_workspace_bytes) return RTEN_AOT_OK;
    return rten_error(RTEN_AOT_BAD_ARGUMENT,
                      "the workspace has %llu bytes, inputs of these shapes need %lld",
                      (unsigned long long)model->caller_workspace_bytes, (long long)needed);
  }
  if (!rten_device_reserve(&model->workspace, needed))
    return rten_error(RTEN_AOT_OUT_OF_MEMORY, "out of memory: %lld bytes for intermediate results",
                      (long long)needed);
  *workspace = model->workspace.data;
  return RTEN_AOT_OK;
}

static int32_t call_main(rten_aot_model *model, uint8_t *workspace) {
#ifdef RTEN_CUDA
  rten_device_start();
  return rten_cuda_main(model, workspace);
#else
  return rten_aot_desc.main(model->in, model->out, model->syms, workspace, model->offsets,
                            rten_aot_desc.weights);
#endif
}

static int32_t run(rten_aot_model *model, const DLTensor *inputs, DLTensor *outputs) {
  uint8_t *workspace = NULL;
  int32_t code = rten_bind_inputs(model, inputs);
  if (code == 0) code = prepare(model);
  if (code == 0) code = take_workspace(model, &workspace);
  if (code == 0) code = rten_take_outputs(model, outputs);
  if (code != 0) return code;
  atomic_store_explicit(&model->failure.claimed, 0, memory_order_relaxed);
  atomic_store_explicit(&model->failure.kind, 0, memory_order_relaxed);
  code = rten_stage_inputs(model, inputs);
  if (code != 0) return code;
  rten_arena_reset(&model->arena);
  model->runs += 1;
  int32_t result = call_main(model, workspace);
  if (atomic_load_explicit(&model->failure.kind, memory_order_acquire) != 0)
    return rten_failure_error(&model->failure);
  if (result != 0)
    return rten_error(RTEN_AOT_RUN_FAILED, "the model failed at run time (%d)", (int)result);
  return rten_give_outputs(model, outputs);
}

/* With the handle as that of the calling thread, and the device ready for it. */
static int32_t run_here(rten_aot_model *model, const DLTensor *inputs, DLTensor *outputs) {
  int32_t code = rten_device_begin(model);
  if (code != 0) return code;
  rten_aot_model *outer = rten_current;
  rten_current = model;
  code = run(model, inputs, outputs);
  rten_current = outer;
  return rten_device_end(model, code);
}

static int32_t check_call(const rten_aot_model *model, const DLTensor *inputs, int32_t num_inputs,
                          const DLTensor *outputs, int32_t num_outputs) {
  const rten_model_desc *desc = &rten_aot_desc;
  if (model == NULL) return rten_error(RTEN_AOT_BAD_ARGUMENT, "model is NULL");
  if (num_inputs != desc->num_inputs)
    return rten_error(RTEN_AOT_BAD_ARGUMENT, "expected %d input%s, got %d", (int)desc->num_inputs,
                      desc->num_inputs == 1 ? "" : "s", (int)num_inputs);
  if (num_outputs != desc->num_outputs)
    return rten_error(RTEN_AOT_BAD_ARGUMENT, "expected %d output%s, got %d", (int)desc->num_outputs,
                      desc->num_outputs == 1 ? "" : "s", (int)num_outputs);
  if ((inputs == NULL && num_inputs > 0) || (outputs == NULL && num_outputs > 0))
    return rten_error(RTEN_AOT_BAD_ARGUMENT, "%s is NULL", inputs == NULL ? "inputs" : "outputs");
  return RTEN_AOT_OK;
}

int32_t rten_aot_run(rten_aot_model *model, const DLTensor *inputs, int32_t num_inputs,
                     DLTensor *outputs, int32_t num_outputs) {
  int32_t code = check_call(model, inputs, num_inputs, outputs, num_outputs);
  if (code != 0) return code;
  /* The mark holds the process, so that a child forked in the middle of a run can use its copy. */
  int32_t self = rten_process();
  int32_t owner = atomic_load_explicit(&model->running, memory_order_relaxed);
  if (owner == self || !atomic_compare_exchange_strong_explicit(
                           &model->running, &owner, self, memory_order_acquire,
                           memory_order_relaxed))
    return rten_error(RTEN_AOT_BAD_ARGUMENT,
                      "this handle is running in another thread; make one handle per thread");
  if (owner != 0) model->prepared = false;
  rten_pool_after_fork();
#ifdef RTEN_PROFILE
  int64_t began = rten_run_begins();
  code = run_here(model, inputs, outputs);
  rten_run_ends(model, began);
#else
  code = run_here(model, inputs, outputs);
#endif
  atomic_store_explicit(&model->running, 0, memory_order_release);
  return code;
}

int32_t rten_aot_fail(int32_t kind, int32_t node, int64_t value) {
  rten_aot_model *model = rten_current;
  if (model == NULL) return 0;
  rten_failure *failure = &model->failure;
  int32_t unclaimed = 0;
  if (atomic_load_explicit(&failure->claimed, memory_order_relaxed) == 0 &&
      atomic_compare_exchange_strong(&failure->claimed, &unclaimed, 1)) {
    failure->node = node;
    failure->value = value;
    atomic_store_explicit(&failure->kind, kind > 0 ? kind : RTEN_FAIL_UNSUPPORTED,
                          memory_order_release);
  }
  return 0;
}

int32_t rten_aot_failed(void) {
  const rten_aot_model *model = rten_current;
#ifdef RTEN_CUDA
  if (atomic_load_explicit(&model->failure.claimed, memory_order_relaxed) == 0) {
    rten_device_differs();
    rten_device_failed();
  }
#endif
  return model != NULL && atomic_load_explicit(&model->failure.claimed, memory_order_relaxed) != 0;
}

void *rten_aot_alloc(int64_t bytes) {
  rten_device_differs();
  void *data = rten_arena_alloc(&rten_current->arena, bytes);
  if (data == NULL) rten_aot_fail(RTEN_FAIL_MEMORY, -1, bytes);
  return data;
}

int32_t rten_aot_set_output(int32_t index, void *data) {
  rten_current->out[index] = data;
  return 0;
}

int64_t rten_aot_seed(int32_t node) {
  const rten_aot_model *model = rten_current;
  rten_device_differs();
  /* splitmix64, https://prng.di.unimi.it/splitmix64.c */
  uint64_t z = (model != NULL ? model->seed + model->runs * UINT64_C(0xd1342543de82ef95) : 0) +
               ((uint64_t)(uint32_t)node + 1) * UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return (int64_t)((z ^ (z >> 31)) >> 1);
}
