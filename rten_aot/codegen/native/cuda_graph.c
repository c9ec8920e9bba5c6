/* Runs that repeat: what the host program asks of the GPU is recorded as a graph, which then takes
 * one call in place of one for each kernel. An option, since it costs the time and memory of
 * recording. */
#ifdef RTEN_CUDA
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

static size_t key_length(void) {
  const rten_model_desc *desc = &rten_aot_desc;
  return (size_t)(desc->num_inputs + desc->num_outputs + desc->num_input_symbols) + 1;
}

int32_t rten_cuda_want_graphs(rten_cuda_graph *graph) {
  graph->key = calloc(2 * key_length(), sizeof *graph->key);
  if (graph->key != NULL) return RTEN_AOT_OK;
  return rten_error(RTEN_AOT_OUT_OF_MEMORY, "out of memory for a model handle");
}

static void drop(rten_cuda_graph *graph) {
  if (graph->recorded != NULL) (void)rten_cuda.destroy_recorded(graph->recorded);
  graph->recorded = NULL;
  graph->repeats = false;
}

void rten_cuda_free_graph(rten_cuda_graph *graph) {
  drop(graph);
  free(graph->key);
  graph->key = NULL;
}

/* Whether the run has the addresses and sizes of the one before. Of these alone what it asks of the
 * GPU depends, unless it looks at what the GPU computes. */
static bool is_same(rten_aot_model *model, const uint8_t *workspace) {
  const rten_model_desc *desc = &rten_aot_desc;
  uint64_t *key = model->cuda.graph.key, *last = key + key_length(), *next = key;
  for (int32_t i = 0; i < desc->num_inputs; ++i) *next++ = (uintptr_t)model->in[i];
  for (int32_t i = 0; i < desc->num_outputs; ++i) *next++ = (uintptr_t)model->out[i];
  for (int32_t i = 0; i < desc->num_input_symbols; ++i) *next++ = (uint64_t)model->syms[i];
  *next = (uintptr_t)workspace;
  bool same = memcmp(key, last, key_length() * sizeof *key) == 0;
  memcpy(last, key, key_length() * sizeof *key);
  return same;
}

static int32_t call_main(rten_aot_model *model, uint8_t *workspace) {
  return rten_aot_desc.main(model->in, model->out, model->syms, workspace, model->offsets,
                            (const uint8_t *)model->cuda.device->weights);
}

static int32_t record(rten_aot_model *model, uint8_t *workspace) {
  rten_cuda_part *part = &model->cuda;
  static const char *const PLACE = "the recording of a graph";
  CUgraph made = NULL;
  if (!rten_cuda_good(rten_cuda.begin_capture(part->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                      PLACE))
    return 0;
  int32_t result = call_main(model, workspace);
  (void)rten_cuda_good(rten_cuda.end_capture(part->stream, &made), PLACE);
  if (made != NULL && part->error == CUDA_SUCCESS)
    (void)rten_cuda_good(rten_cuda.instantiate(&part->graph.recorded, made, 0), PLACE);
  if (made != NULL) (void)rten_cuda.destroy_graph(made);
  return result;
}

int32_t rten_cuda_main(rten_aot_model *model, uint8_t *workspace) {
  rten_cuda_part *part = &model->cuda;
  rten_cuda_graph *graph = &part->graph;
  if (graph->key == NULL || part->error != CUDA_SUCCESS) return call_main(model, workspace);
  if (!is_same(model, workspace)) drop(graph);
  if (!graph->repeats) {
    graph->repeats = true;
    return call_main(model, workspace);
  }
  int32_t result = graph->recorded == NULL ? record(model, workspace) : 0;
  if (part->error == CUDA_SUCCESS)
    (void)rten_cuda_good(rten_cuda.launch_graph(graph->recorded, part->stream), NULL);
  else
    drop(graph);
  return result;
}

void rten_device_differs(void) { rten_current->cuda.graph.repeats = false; }

#endif
