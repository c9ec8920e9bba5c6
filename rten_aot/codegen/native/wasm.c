/* WebAssembly in the place of an operating system: one thread, no processes. A module imports nothing,
 * so that nothing differs from run to run either. */
#ifdef __wasm__
#include "runtime.h"

int32_t rten_process(void) { return 1; }

uint64_t rten_fresh_seed(const void *handle) {
  static uint64_t handles;
  (void)handle;
  return ++handles;
}

int32_t rten_choose_threads(int32_t asked, int32_t *threads) {
  (void)asked;
  *threads = 1;
  return RTEN_AOT_OK;
}

int rten_launch(rten_parallel_lambda lambda, void *data, int num_task) {
  rten_parallel_env env = {NULL, 1};
  (void)num_task;
  return lambda(0, &env, data);
}

int32_t rten_task_count(void) { return 1; }

void rten_pool_retain(void) {}
void rten_pool_release(void) {}
void rten_pool_after_fork(void) {}

#endif
