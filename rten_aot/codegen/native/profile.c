/* What libraries compiled with --profile have besides: how long the steps of rten_main took, and
 * what the machine can do at best. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime.h"

#ifdef RTEN_PROFILE

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#ifndef RTEN_CUDA /* which has its own, in cuda_profile.c */
int32_t rten_aot_begin_step(void) {
  rten_current->step_began = now_ns();
  return 0;
}

int32_t rten_aot_end_step(int32_t step, int64_t flops, int64_t bytes) {
  int64_t end = now_ns();
  rten_aot_step *entry = &rten_current->steps[step];
  entry->calls += 1;
  entry->nanoseconds += end - rten_current->step_began;
  entry->flops += flops;
  entry->bytes += bytes;
  return 0;
}
#endif

int64_t rten_run_begins(void) { return now_ns(); }

void rten_run_ends(rten_aot_model *model, int64_t began) {
  model->run_nanoseconds += now_ns() - began;
}

int32_t rten_aot_profile(rten_aot_model *model, rten_aot_step *steps, int32_t num_steps,
                         int64_t *run_nanoseconds) {
  const int32_t count = rten_aot_desc.num_steps;
  if (model == NULL) return rten_error(RTEN_AOT_BAD_ARGUMENT, "model is NULL");
  if (num_steps != count)
    return rten_error(RTEN_AOT_BAD_ARGUMENT, "expected room for %d steps, got %d", (int)count,
                      (int)num_steps);
  if (steps == NULL && count > 0) return rten_error(RTEN_AOT_BAD_ARGUMENT, "steps is NULL");
  size_t size = (size_t)count * sizeof *steps;
  if (size > 0) {
    memcpy(steps, model->steps, size);
    memset(model->steps, 0, size);
  }
  if (run_nanoseconds != NULL) *run_nanoseconds = model->run_nanoseconds;
  model->run_nanoseconds = 0;
  return RTEN_AOT_OK;
}

#ifndef RTEN_CUDA
/* ---- peaks --------------------------------------------------------------------------------- */

/* Enough independent sums to hide the latency of a multiply-add on two units, and few enough for
 * the registers of every architecture. */
enum { SUMS = 12, ROUNDS = 1 << 18, REPEATS = 20 };

/* A thread copies whole vectors, over and over until enough bytes have been moved to be timed. */
enum { FLOATS = 16, LEAST_BYTES = 1 << 25, MOST_BYTES = 1 << 30 };

/* A machine's vectors: ROUNDS * SUMS multiply-adds of them, which the compiler contracts where the
 * target has such an instruction, and a copy that it cannot take for memcpy. */
#define VECTOR_WORK(BITS, TARGET)                                                        \
  typedef float vector_##BITS __attribute__((vector_size((BITS) / 8)));                  \
  TARGET static float multiply_adds_##BITS(float start) {                                \
    vector_##BITS sums[SUMS], factor = {0}, term = {0};                                  \
    factor += 0.5f + start;                                                              \
    term += 1.0f + start;                                                                \
    for (int i = 0; i < SUMS; ++i) sums[i] = term * (float)i;                            \
    for (int round = 0; round < ROUNDS; ++round)                                         \
      for (int i = 0; i < SUMS; ++i) sums[i] = sums[i] * factor + term;                  \
    for (int i = 1; i < SUMS; ++i) sums[0] += sums[i];                                   \
    return sums[0][0];                                                                   \
  }                                                                                      \
  TARGET static void copy_##BITS(float *to, const float *from, int64_t floats, float factor) { \
    for (int64_t i = 0; i < floats; i += (BITS) / 32)                                    \
      *(vector_##BITS *)(to + i) = *(const vector_##BITS *)(from + i) * factor;          \
  }

typedef struct {
  int32_t lanes;
  float (*multiply_adds)(float start);
  void (*copy)(float *to, const float *from, int64_t floats, float factor);
} vector_unit;

VECTOR_WORK(128, )
#if defined(__x86_64__)
VECTOR_WORK(256, __attribute__((target("avx2,fma"))))
VECTOR_WORK(512, __attribute__((target("avx512f"))))
#endif

static bool uses(const char *feature) {
  const char *const *features = rten_aot_desc.features;
  for (; features != NULL && *features != NULL; ++features)
    if (strcmp(*features, feature) == 0) return true;
  return false;
}

/* The widest vectors that the library's own code may use. */
static vector_unit widest(void) {
#if defined(__x86_64__)
  if (uses("avx512f")) return (vector_unit){16, multiply_adds_512, copy_512};
  if (uses("fma")) return (vector_unit){8, multiply_adds_256, copy_256};
#endif
  (void)uses;
  return (vector_unit){4, multiply_adds_128, copy_128};
}

typedef struct {
  vector_unit unit;
  float *memory;
  int64_t floats; /* of one thread: as many to read as to write */
  int64_t passes;
  _Atomic int64_t total;
  volatile float one; /* what the compiler must not know */
} peak_work;

static int compute_task(int task, rten_parallel_env *env, void *data) {
  (void)task, (void)env;
  peak_work *work = data;
  /* The sum is above zero, but the compiler must make it to know. */
  bool made = work->unit.multiply_adds(work->one - 1) > 0;
  atomic_fetch_add(&work->total, made ? (int64_t)ROUNDS * SUMS * work->unit.lanes * 2 : 0);
  return 0;
}

static int copy_task(int task, rten_parallel_env *env, void *data) {
  (void)env;
  peak_work *work = data;
  const float *from = work->memory + 2 * task * work->floats;
  for (int64_t pass = 0; pass < work->passes; ++pass)
    work->unit.copy((float *)from + work->floats, from, work->floats, work->one);
  atomic_fetch_add(&work->total, work->passes * work->floats * 2 * (int64_t)sizeof(float));
  return 0;
}

/* What the best of several launches does in a second. */
static double best_rate(rten_aot_model *model, rten_parallel_lambda task, peak_work *work) {
  double best = 0;
  rten_current = model;
  for (int repeat = 0; repeat <= REPEATS; ++repeat) {
    work->total = 0;
    int64_t began = now_ns();
    (void)rten_launch(task, work, 0);
    double rate = (double)work->total * 1e9 / (double)(now_ns() - began + 1);
    if (repeat > 0 && rate > best) best = rate; /* the first one touches memory and wakes threads */
  }
  rten_current = NULL;
  return best;
}

int32_t rten_aot_peak(rten_aot_model *model, int64_t bytes, double *per_second) {
  if (model == NULL || per_second == NULL)
    return rten_error(RTEN_AOT_BAD_ARGUMENT, "%s is NULL", model == NULL ? "model" : "per_second");
  peak_work work = {.unit = widest(), .one = 1};
  if (bytes <= 0) {
    *per_second = best_rate(model, compute_task, &work);
    return RTEN_AOT_OK;
  }
  int64_t threads = model->num_threads;
  work.floats = (bytes / (int64_t)sizeof(float) / threads / 2 / FLOATS + 1) * FLOATS;
  int64_t floats = 2 * threads * work.floats;
  work.passes = LEAST_BYTES / (floats * (int64_t)sizeof(float)) + 1;
  rten_block block = {NULL, 0};
  if (bytes > MOST_BYTES || !rten_reserve(&block, floats * (int64_t)sizeof(float)))
    return rten_error(RTEN_AOT_OUT_OF_MEMORY, "out of memory: %lld bytes to measure with",
                      (long long)bytes);
  work.memory = block.data;
  for (int64_t i = 0; i < floats; ++i) work.memory[i] = 1.0f;
  *per_second = best_rate(model, copy_task, &work);
  rten_release(&block);
  return RTEN_AOT_OK;
}
#endif

#endif /* RTEN_PROFILE */
