/* Runs a model once on tensors in a file, and writes what it answers to another.
 * Usage: program IN OUT NUMBER_OF_OUTPUTS. The file of inputs holds, for each: dtype code, bits, rank, sizes (int64
 * each), then the elements; so does that of the outputs. */
#include <stdio.h>
#include <stdlib.h>

#include "rten_aot.h"

static int64_t bytes_of(const DLTensor *t) {
  int64_t count = t->dtype.bits / 8;
  for (int i = 0; i < t->ndim; ++i) count *= t->shape[i];
  return count;
}

static int read_tensor(FILE *file, DLTensor *t) {
  *t = (DLTensor){0};
  int64_t head[3];
  if (fread(head, sizeof(int64_t), 3, file) != 3) return 0;
  t->device.device_type = kDLCPU;
  t->dtype = (DLDataType){(uint8_t)head[0], (uint8_t)head[1], 1};
  t->ndim = (int32_t)head[2];
  t->shape = calloc((size_t)t->ndim + 1, sizeof(int64_t));
  if (fread(t->shape, sizeof(int64_t), (size_t)t->ndim, file) != (size_t)t->ndim) exit(2);
  size_t size = (size_t)bytes_of(t);
  t->data = malloc(size);
  if (fread(t->data, 1, size, file) != size) exit(2);
  return 1;
}

static void write_tensor(FILE *file, const DLTensor *t) {
  int64_t head[3] = {t->dtype.code, t->dtype.bits, t->ndim};
  fwrite(head, sizeof(int64_t), 3, file);
  fwrite(t->shape, sizeof(int64_t), (size_t)t->ndim, file);
  fwrite(t->data, 1, (size_t)bytes_of(t), file);
}

static int fail(void) {
  fprintf(stderr, "%s\n", rten_aot_error());
  return 1;
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  int num_inputs = 0, num_outputs = atoi(argv[3]);
  DLTensor *inputs = NULL, *outputs = calloc((size_t)num_outputs, sizeof *outputs);
  FILE *in = fopen(argv[1], "rb");
  for (;; ++num_inputs) {
    inputs = realloc(inputs, ((size_t)num_inputs + 1) * sizeof *inputs);
    if (!read_tensor(in, &inputs[num_inputs])) break;
  }
  fclose(in);
  rten_aot_options options = {0};
  options.struct_size = sizeof options;
  options.num_threads = 2;
  rten_aot_model *model;
  if (rten_aot_create(&options, &model) != RTEN_AOT_OK) return fail();
  for (int turn = 0; turn < 2; ++turn)
    if (rten_aot_run(model, inputs, num_inputs, outputs, num_outputs) != RTEN_AOT_OK) return fail();
  FILE *out = fopen(argv[2], "wb");
  for (int i = 0; i < num_outputs; ++i) write_tensor(out, &outputs[i]);
  fclose(out);
  rten_aot_destroy(model);
  return 0;
}
