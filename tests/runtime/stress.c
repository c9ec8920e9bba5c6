/* Many threads that make, run and destroy handles of fake_model.c at the same time, for runs under
 * sanitizers. Exits with 0 when every result was right. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rten_aot.h"

enum { THREADS = 5, HANDLES = 6, RUNS = 40, DIVIDE = 2, EXHAUST = 3, STOP = 8 };

static const float weights[] = {1, 2, 3, -4};

static DLTensor tensor(void *data, int code, int bits, int64_t *shape, int ndim) {
  DLTensor result = {data, {kDLCPU, 0}, ndim, {(uint8_t)code, (uint8_t)bits, 1}, shape, NULL, 0};
  return result;
}

static int check(const DLTensor *out, const float *x, int64_t batch) {
  const float *y = out[0].data;
  int64_t positive = 0;
  for (int64_t i = 0; i < 4 * batch; ++i)
    if (y[i] != fmaxf(x[i] + weights[i % 4], 0)) return 1;
  for (int64_t row = 0; row < batch; ++row) positive += x[4 * row] > 0;
  return out[2].shape[0] != positive || ((const int32_t *)out[3].data)[2] != 1;
}

static int run(rten_aot_model *model, int64_t batch, int32_t mode, int shift, int own) {
  int64_t x_shape[] = {batch, 4}, index_shape[] = {2}, batch_shape[] = {batch};
  int32_t index[] = {0, -1};
  /* Allocations of the exact size, so that a step beyond is seen. */
  char *memory = malloc((size_t)batch * 16 + (size_t)shift);
  float *x = (float *)(memory + shift), *y = malloc((size_t)batch * 16);
  uint8_t *scale = calloc((size_t)batch, 1);
  for (int64_t i = 0; i < 4 * batch; ++i) x[i] = (float)(i % 7 + 1) * (i / 4 % 2 ? -1.0f : 1.0f);
  DLTensor in[] = {tensor(x, kDLFloat, 32, x_shape, 2), tensor(index, kDLInt, 32, index_shape, 1),
                   tensor(&mode, kDLInt, 32, NULL, 0), tensor(scale, kDLUInt, 8, batch_shape, 1)};
  DLTensor out[4];
  memset(out, 0, sizeof out);
  if (own) out[0] = tensor(y, kDLFloat, 32, x_shape, 2);
  int code = rten_aot_run(model, in, 4, out, 4);
  int wanted = mode == EXHAUST ? 3 : mode == DIVIDE || mode == STOP ? 4 : 0;
  int failed = code != wanted || (code != 0 && rten_aot_error()[0] == 0) ||
               (code == 0 && check(out, x, batch));
  if (failed) fprintf(stderr, "code %d: %s\n", code, rten_aot_error());
  free(memory);
  free(y);
  free(scale);
  return failed;
}

static void *work(void *argument) {
  static const int32_t modes[] = {0, 0, 1, DIVIDE, 0, EXHAUST, 0, STOP};
  int self = *(int *)argument, failed = 0;
  for (int h = 0; h < HANDLES; ++h) {
    rten_aot_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.num_threads = 1 + (self + h) % 4;
    rten_aot_model *model;
    if (rten_aot_create(&options, &model) != 0) return argument;
    for (int r = 0; r < RUNS; ++r)
      failed |= run(model, 1 + (r * 13 + self * 5 + h) % 60, modes[r % 8], r % 3 * 4, r % 2);
    rten_aot_destroy(model);
  }
  return failed ? argument : NULL;
}

static rten_aot_model *shared;

/* One handle in two threads: whoever comes second is told so. */
static void *contend(void *unused) {
  for (int i = 0; i < RUNS; ++i) {
    DLTensor in[4], out[4];
    memset(in, 0, sizeof in);
    memset(out, 0, sizeof out);
    if (rten_aot_run(shared, in, 4, out, 4) != 1) return &shared;
  }
  return unused;
}

int main(void) {
  pthread_t threads[THREADS];
  int names[THREADS];
  int failed = 0;
  for (int i = 0; i < THREADS; ++i) {
    names[i] = i;
    pthread_create(&threads[i], NULL, work, &names[i]);
  }
  for (int i = 0; i < THREADS; ++i) {
    void *result;
    pthread_join(threads[i], &result);
    failed |= result != NULL;
  }
  if (rten_aot_create(NULL, &shared) != 0) return 1;
  for (int i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, contend, NULL);
  for (int i = 0; i < 2; ++i) {
    void *result;
    pthread_join(threads[i], &result);
    failed |= result != NULL;
  }
  rten_aot_destroy(shared);
  return failed;
}
