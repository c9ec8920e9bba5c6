/* What TIR cannot say: copies of 64-bit sizes on any machine, and addresses that a branch of the host
 * program leaves for what follows it. */
#include <string.h>

#include "rten_aot_internal.h"

#ifndef RTEN_CUDA /* which has its own, in cuda_run.c */
int32_t rten_aot_copy(void *to, const void *from, int64_t bytes) {
  memcpy(to, from, (size_t)bytes);
  return 0;
}
#endif

int32_t rten_aot_keep(int64_t *syms, int32_t slot, void *address) {
  syms[slot] = (int64_t)(intptr_t)address;
  return 0;
}

void *rten_aot_kept(const int64_t *syms, int32_t slot) { return (void *)(intptr_t)syms[slot]; }
