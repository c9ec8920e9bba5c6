/* What the files of the native runtime share with each other. */
#ifndef RTEN_AOT_RUNTIME_H_
#define RTEN_AOT_RUNTIME_H_

#include <string.h>

/* The only symbols that a library exports: all else is compiled with -fvisibility=hidden. */
#pragma GCC visibility push(default)
#include "../../include/rten_aot.h"
#pragma GCC visibility pop
#include "rten_aot_internal.h"

/* Sizes beyond this are refused before they meet arithmetic that could overflow. */
#define RTEN_MAX_BYTES (sizeof(size_t) == 8 ? (int64_t)1 << 62 : (int64_t)1 << 30)

static inline int64_t rten_round_up(int64_t bytes) {
  return (bytes + RTEN_ALIGNMENT - 1) & ~(int64_t)(RTEN_ALIGNMENT - 1);
}

/* Memory that grows and is reused from run to run. */
typedef struct {
  void *data;
  size_t bytes;
} rten_block;

/* Memory of sizes that are known only in the middle of a run: blocks never move, and a reset
 * keeps what was allocated for the next run. */
typedef struct {
  rten_block *blocks;
  int32_t num_blocks;
  int32_t capacity;
  size_t used; /* of the last block */
  bool on_device;
} rten_arena;

#ifdef RTEN_CUDA
#include "cuda.h"
#endif

/* The first failure of a run. */
typedef struct {
  _Atomic int32_t kind; /* 0 = none; written last */
  _Atomic int32_t claimed;
  int32_t node;
  int64_t value;
} rten_failure;

struct rten_aot_model {
  _Atomic int32_t running; /* process id of the run in progress, 0 = none */
  int32_t num_threads;
  uint64_t seed;
  uint64_t runs;

  int64_t *syms;      /* num_symbols */
  int64_t *bound;     /* num_input_symbols: input symbols of this run, checked against syms */
  int32_t *bound_by;  /* num_input_symbols: input that set it, -1 = none yet */
  int64_t *sizes;     /* num_buffers */
  int64_t *offsets;   /* num_buffers */
  int64_t *computed;  /* out_dims of rten_prepare */
  int64_t *out_dims;  /* final dimensions, all outputs one after another */
  int32_t *out_first; /* num_outputs: where an output's dimensions start in the two above */
  void *placement;    /* scratch of rten_place */
  bool prepared;      /* everything above is right for syms */
  int64_t workspace_needed;

  const void **in;
  void **out;
  int64_t *out_bytes;   /* num_outputs, of the current run */
  rten_block *in_stage; /* copies of inputs that are not aligned */
  rten_block *out_own;  /* outputs that the model owns, and copies of unaligned ones */
#ifdef RTEN_CUDA
  rten_block *out_host; /* copies of those that the caller wants to see in the host's memory */
  rten_cuda_part cuda;
#endif

  rten_block workspace;
  void *caller_workspace;
  uint64_t caller_workspace_bytes;
  rten_arena arena;
  rten_failure failure;

#ifdef RTEN_PROFILE
  rten_aot_step *steps; /* num_steps */
  int64_t step_began;
  int64_t run_nanoseconds;
#endif
};

/* The handle whose run the calling thread works for; NULL outside of runs. */
extern _Thread_local rten_aot_model *rten_current RTEN_HIDDEN;

/* error.c */
RTEN_HIDDEN int32_t rten_error(int32_t code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
RTEN_HIDDEN int32_t rten_failure_error(const rten_failure *failure);
/* With the values in rten_current->syms. */
RTEN_HIDDEN int32_t rten_check_error(int32_t code, int64_t check);

/* A bounded text; what does not fit is cut. */
typedef struct {
  char text[256];
  size_t length;
} rten_text;
RTEN_HIDDEN void rten_append(rten_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "(1, 3, 5)"; symbols by their names, unnamed ones as "?". */
RTEN_HIDDEN const char *rten_shape_text(rten_text *text, const int64_t *dims, int32_t ndim);
RTEN_HIDDEN const char *rten_dtype_text(rten_text *text, int code, int bits, int lanes);

/* memory.c */
RTEN_HIDDEN bool rten_reserve(rten_block *block, int64_t bytes); /* contents are lost */
RTEN_HIDDEN void rten_release(rten_block *block);
RTEN_HIDDEN void *rten_arena_alloc(rten_arena *arena, int64_t bytes); /* NULL: out of memory */
RTEN_HIDDEN void rten_arena_reset(rten_arena *arena);
RTEN_HIDDEN void rten_arena_free(rten_arena *arena);

/* cuda_run.c, cuda_tensors.c: where a model's memory is that of a device. Sizes in bytes. */
#ifdef RTEN_CUDA
RTEN_HIDDEN bool rten_device_reserve(rten_block *block, int64_t bytes); /* contents are lost */
RTEN_HIDDEN void rten_device_release(rten_block *block);
/* The handle's part there; these return 0 or the code of rten_error. */
RTEN_HIDDEN int32_t rten_device_create(rten_aot_model *model, const rten_aot_options *options);
RTEN_HIDDEN void rten_device_destroy(rten_aot_model *model);
/* Around a run, whose code goes in and comes out of the end; within, before rten_main, whatever may
 * fail on the device being recorded by rten_current; and the wait for all results. */
RTEN_HIDDEN int32_t rten_device_begin(rten_aot_model *model);
RTEN_HIDDEN int32_t rten_device_end(rten_aot_model *model, int32_t code);
RTEN_HIDDEN void rten_device_start(void);
RTEN_HIDDEN int32_t rten_device_finish(void);
/* Takes over a failure that kernels have recorded. */
RTEN_HIDDEN void rten_device_failed(void);
RTEN_HIDDEN int32_t rten_cuda_run_error(const rten_aot_model *model);
/* rten_main; and what it does if another run of the same shapes may do otherwise. */
RTEN_HIDDEN int32_t rten_cuda_main(rten_aot_model *model, uint8_t *workspace);
RTEN_HIDDEN void rten_device_differs(void);
/* Whether a tensor may be where it is (0 or the code of rten_error), and whether kernels reach it. */
RTEN_HIDDEN int32_t rten_device_accepts(const rten_aot_model *model, const char *kind,
                                        const char *name, const DLTensor *tensor);
RTEN_HIDDEN bool rten_device_reaches(const DLTensor *tensor);
/* Copies from and to a tensor's data. */
RTEN_HIDDEN void rten_device_put(void *to, const DLTensor *from, const void *data, int64_t bytes);
RTEN_HIDDEN void rten_device_get(const DLTensor *to, void *data, const void *from, int64_t bytes);
/* Memory of the host that the GPU copies to and from at its full speed; contents are lost. */
RTEN_HIDDEN bool rten_cuda_reserve_pinned(rten_block *block, int64_t bytes);
/* From the host, and to it without waiting for the copy. */
RTEN_HIDDEN void rten_cuda_send(void *device, const void *host, int64_t bytes);
RTEN_HIDDEN void rten_cuda_fetch(void *host, const void *device, int64_t bytes);
/* An output that the model owns: has it copied to where the caller sees it, and tells where. */
RTEN_HIDDEN int32_t rten_device_show(rten_aot_model *model, int32_t index, const DLTensor *tensor);
RTEN_HIDDEN void rten_device_describe(const rten_aot_model *model, int32_t index,
                                      DLTensor *tensor);
#else /* The host's memory is the model's. */
#define rten_device_reserve rten_reserve
#define rten_device_release rten_release
static inline int32_t rten_device_create(rten_aot_model *model, const rten_aot_options *options) {
  (void)model, (void)options;
  return RTEN_AOT_OK;
}
static inline int32_t rten_device_begin(rten_aot_model *model) {
  (void)model;
  return RTEN_AOT_OK;
}
static inline int32_t rten_device_end(rten_aot_model *model, int32_t code) {
  (void)model;
  return code;
}
static inline int32_t rten_device_finish(void) { return RTEN_AOT_OK; }
static inline void rten_device_differs(void) {}
static inline int32_t rten_device_accepts(const rten_aot_model *model, const char *kind,
                                          const char *name, const DLTensor *tensor) {
  (void)model;
  if (tensor->device.device_type == kDLCPU || tensor->device.device_type == kDLCUDAHost)
    return RTEN_AOT_OK;
  return rten_error(RTEN_AOT_BAD_ARGUMENT,
                    "%s \"%s\": expected memory of the CPU (device type 1), got device type %d",
                    kind, name, (int)tensor->device.device_type);
}
static inline bool rten_device_reaches(const DLTensor *tensor) {
  (void)tensor;
  return true;
}
static inline void rten_device_put(void *to, const DLTensor *from, const void *data,
                                   int64_t bytes) {
  (void)from;
  memcpy(to, data, (size_t)bytes);
}
static inline void rten_device_get(const DLTensor *to, void *data, const void *from,
                                   int64_t bytes) {
  (void)to;
  memcpy(data, from, (size_t)bytes);
}
static inline int32_t rten_device_show(rten_aot_model *model, int32_t index,
                                       const DLTensor *tensor) {
  (void)model, (void)index, (void)tensor;
  return RTEN_AOT_OK;
}
static inline void rten_device_describe(const rten_aot_model *model, int32_t index,
                                        DLTensor *tensor) {
  tensor->data = model->out[index];
  tensor->device = (DLDevice){kDLCPU, 0};
}
#endif

/* A block of an arena, where that arena's memory is. */
static inline bool rten_reserve_in(const rten_arena *arena, rten_block *block, int64_t bytes) {
  return arena->on_device ? rten_device_reserve(block, bytes) : rten_reserve(block, bytes);
}
static inline void rten_release_in(const rten_arena *arena, rten_block *block) {
  if (arena->on_device)
    rten_device_release(block);
  else
    rten_release(block);
}

/* placement.c */
RTEN_HIDDEN size_t rten_placement_bytes(int32_t num_buffers);
/* Fills offsets; the total, or -1 when it overflows. */
RTEN_HIDDEN int64_t rten_place(const rten_buffer_spec *buffers, const int64_t *sizes,
                               int32_t num_buffers, int64_t *offsets, void *scratch);

/* tensors.c: each returns 0 or the code of rten_error. */
RTEN_HIDDEN int32_t rten_bind_inputs(rten_aot_model *model, const DLTensor *inputs);
RTEN_HIDDEN int32_t rten_stage_inputs(rten_aot_model *model, const DLTensor *inputs);
RTEN_HIDDEN int32_t rten_take_outputs(rten_aot_model *model, const DLTensor *outputs);
RTEN_HIDDEN int32_t rten_resolve_output(rten_aot_model *model, int32_t index);
RTEN_HIDDEN int32_t rten_give_outputs(rten_aot_model *model, DLTensor *outputs);

/* cpu.c */
RTEN_HIDDEN int32_t rten_check_cpu(const char *const *features, const char *cpu);
#ifdef RTEN_LEVELS
/* Makes rten_aot_desc that of the first level whose features this CPU has, if there is one. */
RTEN_HIDDEN void rten_choose_level(void);
#endif
/* threads.c: logical processors, and physical cores, that this process may keep busy. */
RTEN_HIDDEN int32_t rten_usable_processors(void);
RTEN_HIDDEN int32_t rten_usable_cores(void);
#define RTEN_MAX_THREADS 1024

/* system.c: the threads of a handle that asks for so many (0: for the default), which gives 0 or the
 * code of rten_error; a number of this process that is not 0; a seed. */
RTEN_HIDDEN int32_t rten_choose_threads(int32_t asked, int32_t *threads);
RTEN_HIDDEN int32_t rten_process(void);
RTEN_HIDDEN uint64_t rten_fresh_seed(const void *handle);

#ifdef RTEN_PROFILE
/* profile.c: the time that rten_run_ends wants back. */
RTEN_HIDDEN int64_t rten_run_begins(void);
RTEN_HIDDEN void rten_run_ends(rten_aot_model *model, int64_t began);
#endif

/* pool.c */
typedef struct { /* TVM's tvm/runtime/c_backend_api.h */
  void *sync_handle;
  int32_t num_task;
} rten_parallel_env;
typedef int (*rten_parallel_lambda)(int task, rten_parallel_env *env, void *data);
/* Calls lambda with the tasks 0 .. env->num_task - 1, at most num_task of them unless that is 0,
 * and returns when all are done; 0 when all returned 0. */
RTEN_HIDDEN int rten_launch(rten_parallel_lambda lambda, void *data, int num_task);
RTEN_HIDDEN int32_t rten_task_count(void); /* env->num_task of the calling lambda */
RTEN_HIDDEN void rten_pool_retain(void);
RTEN_HIDDEN void rten_pool_release(void); /* the last one joins the workers */
RTEN_HIDDEN void rten_pool_after_fork(void);

#endif /* RTEN_AOT_RUNTIME_H_ */
