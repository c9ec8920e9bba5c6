/* What the operating system tells besides: its environment, which process this is, and something that
 * differs from run to run. */
#ifndef __wasm__ /* which has wasm.c */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "runtime.h"

int32_t rten_process(void) { return (int32_t)getpid(); }

uint64_t rten_fresh_seed(const void *handle) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * 1000000007u ^ (uint64_t)now.tv_nsec << 20 ^
         (uint64_t)(uintptr_t)handle ^ (uint64_t)getpid() << 40;
}

int32_t rten_choose_threads(int32_t asked, int32_t *threads) {
  *threads = asked;
  if (asked > 0) return RTEN_AOT_OK;
  const char *text = getenv("RTEN_AOT_NUM_THREADS");
  if (text == NULL || text[0] == '\0') {
    *threads = rten_usable_cores();
    return RTEN_AOT_OK;
  }
  char *end;
  long value = strtol(text, &end, 10);
  if (*end != '\0' || value < 1 || value > RTEN_MAX_THREADS)
    return rten_error(RTEN_AOT_BAD_ARGUMENT,
                      "RTEN_AOT_NUM_THREADS is \"%.40s\", expected a number from 1 to %d", text,
                      RTEN_MAX_THREADS);
  *threads = (int32_t)value;
  return RTEN_AOT_OK;
}

#endif
