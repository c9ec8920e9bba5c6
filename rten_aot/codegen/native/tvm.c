/* What objects made by TVM expect of its runtime (tvm/runtime/c_backend_api.h). */
#include "runtime.h"

static void *allocate(int device_type, int device_id, uint64_t bytes, int code, int bits) {
  (void)device_type, (void)device_id, (void)code, (void)bits;
  rten_block block = {NULL, 0};
  if (bytes <= INT64_MAX && rten_reserve(&block, (int64_t)bytes)) return block.data;
  rten_aot_fail(RTEN_FAIL_MEMORY, -1, bytes <= INT64_MAX ? (int64_t)bytes : INT64_MAX);
  return NULL;
}

static int release(int device_type, int device_id, void *data) {
  (void)device_type, (void)device_id;
  rten_block block = {data, 0};
  rten_release(&block);
  return 0;
}

/* TVM's objects define these three as weak null pointers wherever they use them. */
RTEN_HIDDEN int (*__TVMBackendParallelLaunch)(rten_parallel_lambda, void *, int) = rten_launch;
RTEN_HIDDEN void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = allocate;
RTEN_HIDDEN int (*__TVMBackendFreeWorkspace)(int, int, void *) = release;

/* Called by failed assertions of TVM's own; the kernel then returns -1 and the run fails. */
RTEN_HIDDEN void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts,
                                                   int32_t num_parts) {
  (void)kind, (void)parts, (void)num_parts;
}
