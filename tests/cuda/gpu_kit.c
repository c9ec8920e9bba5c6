/* Runs a model on a real GPU where there is nothing but its library: checks its answers and times
 * it.
 *
 *   program LIBRARY.so IN WANT SECONDS
 *
 * IN and WANT hold tensors as run_raw.c reads them. Prints the largest difference, as a part of the
 * largest value of its output, and the median milliseconds of a run with inputs in the host's
 * memory and outputs left on the GPU: kernel by kernel, then as a graph. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "rten_aot.h"

enum { MOST_TENSORS = 64, MOST_RUNS = 100000 };

typedef struct {
  int32_t (*create)(const rten_aot_options *, rten_aot_model **);
  int32_t (*run)(rten_aot_model *, const DLTensor *, int32_t, DLTensor *, int32_t);
  const char *(*error)(void);
  void (*destroy)(rten_aot_model *);
} functions;

static int64_t count_of(const DLTensor *t) {
  int64_t count = 1;
  for (int i = 0; i < t->ndim; ++i) count *= t->shape[i];
  return count;
}

static void must(int good, const char *what) {
  if (good) return;
  fprintf(stderr, "%s\n", what);
  exit(1);
}

static int32_t read_tensors(const char *path, DLTensor *tensors) {
  FILE *file = fopen(path, "rb");
  must(file != NULL, path);
  int64_t head[3];
  int32_t number = 0;
  for (; fread(head, sizeof(int64_t), 3, file) == 3; ++number) {
    DLTensor *t = &tensors[number];
    *t = (DLTensor){0};
    t->device.device_type = kDLCPU;
    t->dtype = (DLDataType){(uint8_t)head[0], (uint8_t)head[1], 1};
    t->ndim = (int32_t)head[2];
    t->shape = calloc((size_t)t->ndim + 1, sizeof(int64_t));
    must(fread(t->shape, sizeof(int64_t), (size_t)t->ndim, file) == (size_t)t->ndim, path);
    size_t bytes = (size_t)count_of(t) * t->dtype.bits / 8;
    t->data = malloc(bytes + 1);
    must(fread(t->data, 1, bytes, file) == bytes, path);
  }
  fclose(file);
  return number;
}

static double value(const DLTensor *t, int64_t i) {
  if (t->dtype.code == kDLFloat) return ((const float *)t->data)[i];
  if (t->dtype.bits == 32) return ((const int32_t *)t->data)[i];
  return t->dtype.code == kDLUInt ? ((const uint8_t *)t->data)[i] : ((const int8_t *)t->data)[i];
}

static double difference(const DLTensor *got, const DLTensor *want) {
  double scale = 0.01, largest = 0;
  must(count_of(got) == count_of(want), "the result has another size");
  for (int64_t i = 0; i < count_of(want); ++i) {
    double error = fabs(value(got, i) - value(want, i));
    if (fabs(value(want, i)) > scale) scale = fabs(value(want, i));
    if (!(error <= largest)) largest = error;
  }
  return largest / scale;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

static int rising(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(const functions *f, uint32_t flags, const DLTensor *in, int32_t num_in,
                     int32_t num_out, double seconds) {
  static double times[MOST_RUNS];
  DLTensor out[MOST_TENSORS] = {{0}};
  rten_aot_options options = {.struct_size = sizeof options, .flags = flags};
  rten_aot_model *model;
  must(f->create(&options, &model) == RTEN_AOT_OK, f->error());
  for (int32_t i = 0; i < num_out; ++i) out[i].device.device_type = kDLCUDA;
  double end = now() + seconds * 1e3;
  int count = -5; /* the first runs take memory, and record */
  while (count < MOST_RUNS && (count < 10 || now() < end)) {
    double began = now();
    must(f->run(model, in, num_in, out, num_out) == RTEN_AOT_OK, f->error());
    if (count++ >= 0) times[count - 1] = now() - began;
  }
  f->destroy(model);
  qsort(times, (size_t)count, sizeof *times, rising);
  return times[count / 2];
}

int main(int argc, char **argv) {
  must(argc == 5, "usage: program LIBRARY.so IN WANT SECONDS");
  void *library = dlopen(argv[1], RTLD_NOW);
  must(library != NULL, dlerror());
  functions f;
  *(void **)&f.create = dlsym(library, "rten_aot_create");
  *(void **)&f.run = dlsym(library, "rten_aot_run");
  *(void **)&f.error = dlsym(library, "rten_aot_error");
  *(void **)&f.destroy = dlsym(library, "rten_aot_destroy");
  DLTensor in[MOST_TENSORS], want[MOST_TENSORS], out[MOST_TENSORS] = {{0}};
  int32_t num_in = read_tensors(argv[2], in), num_out = read_tensors(argv[3], want);
  rten_aot_model *model;
  must(f.create(NULL, &model) == RTEN_AOT_OK, f.error());
  double largest = 0;
  for (int turn = 0; turn < 2; ++turn) {
    must(f.run(model, in, num_in, out, num_out) == RTEN_AOT_OK, f.error());
    for (int32_t i = 0; i < num_out; ++i) {
      double error = difference(&out[i], &want[i]);
      if (!(error <= largest)) largest = error;
    }
  }
  f.destroy(model);
  double plain = median(&f, 0, in, num_in, num_out, atof(argv[4]));
  double graph = median(&f, RTEN_AOT_CUDA_GRAPH, in, num_in, num_out, atof(argv[4]));
  printf("%s difference %.2g, %.3f ms, %.3f ms as a graph\n", argv[1], largest, plain, graph);
  return largest <= 1e-4 ? 0 : 1;
}
