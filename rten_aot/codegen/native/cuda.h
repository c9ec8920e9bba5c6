/* The part of a handle that lives on a GPU, and what the runtime does there. */
#ifndef RTEN_CUDA_H_
#define RTEN_CUDA_H_

#include "cuda_driver.h"

typedef struct {
  CUmodule module;
  CUfunction *functions; /* by the index of their names in the tables */
  CUdeviceptr failure;   /* 0 unless the tables say can_fail */
} rten_cuda_module;

/* What all handles on one GPU share. */
typedef struct rten_cuda_device rten_cuda_device;
struct rten_cuda_device {
  rten_cuda_device *next;
  int32_t ordinal;
  int32_t handles;
  CUdevice device;
  CUcontext context;
  const rten_cuda_image *image;
  CUdeviceptr weights;
  rten_cuda_module module; /* unless the tables say can_fail */
};

typedef struct {
  uint64_t *key; /* of the run in progress, then of the one before; NULL: graphs are not wanted */
  /* Whether the run before asked the GPU for nothing that may differ in one of the same key. */
  bool repeats;
  CUgraphExec recorded; /* NULL: not yet */
} rten_cuda_graph;

#ifdef RTEN_PROFILE
/* A step of a run, between two events. */
typedef struct {
  CUevent begin, end;
  int32_t step;
  int64_t flops, bytes;
} rten_cuda_timing;
#endif

typedef struct {
  rten_cuda_device *device; /* NULL: nothing on the GPU yet */
  int32_t process;
  CUstream stream;
  bool own_stream;
  bool stepwise; /* waits for every kernel, to tell which one failed */
  bool waits;    /* the run in progress has to wait for the stream in its end */
  /* The device's, or the handle's own if kernels report failures: a variable of the module holds
     them, and runs of several handles must not mix theirs up. */
  rten_cuda_module module;
  rten_arena host_arena;
  CUresult error; /* the first one of the run in progress, and what met it */
  const char *place;
  rten_cuda_graph graph;
  uint64_t values[RTEN_CUDA_MAX_ARGUMENTS];
  void *arguments[RTEN_CUDA_MAX_ARGUMENTS];
#ifdef RTEN_PROFILE
  rten_cuda_timing *timings;
  int32_t num_timings; /* of the run in progress */
  int32_t room_for_timings;
#endif
} rten_cuda_part;

/* cuda_device.c: the shared things of a GPU, for one more handle; 0 or the code of rten_error. The
 * context is current afterwards, until the caller pops it. */
RTEN_HIDDEN int32_t rten_cuda_retain(int32_t ordinal, rten_cuda_device **device);
RTEN_HIDDEN void rten_cuda_release(rten_cuda_device *device);
RTEN_HIDDEN int32_t rten_cuda_load(const rten_cuda_device *device, rten_cuda_module *module);
RTEN_HIDDEN void rten_cuda_unload(rten_cuda_module *module);
/* Code of rten_error for a failed call: out of memory, or `otherwise`. */
RTEN_HIDDEN int32_t rten_cuda_error(int32_t otherwise, CUresult error, const char *what);

/* cuda_run.c: whether a call of the run in progress went well; if not, that is its failure unless
 * it has one. `place` is what met it, NULL for a kernel that ran before. */
RTEN_HIDDEN bool rten_cuda_good(CUresult error, const char *place);

/* cuda_graph.c: rten_main, or what was recorded of it. */
RTEN_HIDDEN int32_t rten_cuda_want_graphs(rten_cuda_graph *graph);
RTEN_HIDDEN void rten_cuda_free_graph(rten_cuda_graph *graph);

#ifdef RTEN_PROFILE
/* cuda_profile.c */
RTEN_HIDDEN void rten_cuda_take_timings(rten_aot_model *model);
RTEN_HIDDEN void rten_cuda_free_timings(rten_cuda_part *part);
#endif

#endif /* RTEN_CUDA_H_ */
