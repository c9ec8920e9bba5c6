/* The C interface of a model that rten-aot compiled to a shared library. C99 and C++.
 *
 *   rten_aot_model *model;
 *   if (rten_aot_create(NULL, &model) != 0) { puts(rten_aot_error()); return 1; }
 *   DLTensor out = {0};                       // data == NULL: the model owns the memory
 *   if (rten_aot_run(model, &in, 1, &out, 1) != 0) puts(rten_aot_error());
 *   rten_aot_destroy(model);
 *
 * Every function may be called from any thread. Several handles may run at the same time; one
 * handle runs one call at a time. The library never aborts, prints or exits.
 */
#ifndef RTEN_AOT_H_
#define RTEN_AOT_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Tensors are DLPack's (https://dmlc.github.io/dlpack); its own header may come first. */
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_

#ifdef __cplusplus
typedef enum : int32_t {
#else
typedef enum {
#endif
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3,
  kDLCUDAManaged = 13
} DLDeviceType;

typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;

typedef enum { kDLInt = 0U, kDLUInt = 1U, kDLFloat = 2U } DLDataTypeCode;

typedef struct {
  uint8_t code; /* a DLDataTypeCode */
  uint8_t bits;
  uint16_t lanes; /* always 1 here */
} DLDataType;

typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides; /* in elements; NULL = compact, row-major */
  uint64_t byte_offset;
} DLTensor;

#endif /* DLPACK_DLPACK_H_ */

#ifndef RTEN_AOT_TYPES_
#define RTEN_AOT_TYPES_

/* What the functions return. The text of a failure is rten_aot_error(). */
enum {
  RTEN_AOT_OK = 0,
  RTEN_AOT_BAD_ARGUMENT = 1,
  RTEN_AOT_UNSUPPORTED_DEVICE = 2, /* the CPU or driver cannot run this artifact */
  RTEN_AOT_OUT_OF_MEMORY = 3,
  RTEN_AOT_RUN_FAILED = 4 /* the model failed at run time, e.g. an index out of range */
};

/* rten_aot_options.flags. */
enum {
  /* GPU artifacts: runs that repeat the addresses and shapes of the run before are recorded as a
     CUDA graph and replayed. It pays where kernels are short; each change is recorded anew. */
  RTEN_AOT_CUDA_GRAPH = 1
};

typedef struct rten_aot_model rten_aot_model;

/* NULL or all zero means defaults; otherwise set struct_size = sizeof(rten_aot_options). */
typedef struct {
  uint32_t struct_size;
  /* 0 = RTEN_AOT_NUM_THREADS if set, else the physical cores this process may use. */
  int32_t num_threads;
  int32_t device_id; /* GPU artifacts; 0 on CPUs */
  uint32_t flags;    /* GPU artifacts: RTEN_AOT_CUDA_GRAPH; 0 on CPUs */
  /* Of random operators; 0 = a different one for every handle (in WebAssembly, the same ones for
     every instance of a module). */
  uint64_t seed;
  /* GPU artifacts: the CUstream to work in. A run that uses no memory of the host, of a model that
     reads nothing there, then returns before its results are ready. NULL = one of the handle's
     own, whose runs wait for their results; NULL on CPUs. */
  void *stream;
  /* Memory for intermediate results, 64-byte aligned, used by this handle alone while it lives;
     its size is "sizes"."workspace" of the metadata. On GPUs it is there. NULL = the library
     allocates. */
  void *workspace;
  uint64_t workspace_bytes;
} rten_aot_options;

/* What rten_aot_profile tells about one step, summed over its calls. */
typedef struct {
  int64_t calls;
  int64_t nanoseconds;
  int64_t flops; /* of sums of products, two for each term: convolutions, matrix products */
  int64_t bytes; /* of operands and results, each counted once for a call */
} rten_aot_step;

#endif /* RTEN_AOT_TYPES_ */

/* A JSON text that describes the model: inputs, outputs, target, sizes. Never NULL. For several
 * CPUs, "target"."levels" names them; after rten_aot_create "target"."level" is the one in use. */
const char *rten_aot_metadata(void);

/* Makes a handle. Fails with RTEN_AOT_UNSUPPORTED_DEVICE when the CPU lacks a needed feature, or
 * when there is no NVIDIA driver, no such GPU, or no code for it. */
int32_t rten_aot_create(const rten_aot_options *options, rten_aot_model **out);

/* Runs the model. Tensors come in the metadata's order.
 *
 * Inputs: dtype, rank, fixed dimensions and dimensions of one name are checked; strides must be
 * NULL or compact; data may be NULL for zero elements.
 * Outputs: where data is NULL the model sets every field; data and shape then belong to the model
 * until this handle's next run, to which the struct may be passed again as it is. Otherwise dtype
 * and shape must be right and the result is written to data; that memory must overlap no input
 * and no other output. A failed run leaves the structs as they were (memory given by the caller
 * may be partly written).
 * GPU artifacts: each tensor may be in the host's memory or (kDLCUDA, kDLCUDAManaged) on the
 * handle's GPU, where it is used in place if it is 16-byte aligned. Where an output's data is NULL
 * its device type says where the model is to leave it: on the GPU for kDLCUDA, else on the host.
 * Handles for GPUs cannot be used in a forked child. */
int32_t rten_aot_run(rten_aot_model *model, const DLTensor *inputs, int32_t num_inputs,
                     DLTensor *outputs, int32_t num_outputs);

/* The message of the calling thread's last failure; never NULL, valid until its next failure. */
const char *rten_aot_error(void);

/* Frees a handle (NULL is fine). The last one also ends the worker threads, so that the library
 * may be unloaded. */
void rten_aot_destroy(rten_aot_model *model);

/* ---- Only in libraries compiled with --profile --------------------------------------------- */

/* Gives what the handle's runs since the last call of this function took: an entry for each element
 * of "profile" in the metadata, in its order, and the time of the runs as a whole (unless
 * run_nanoseconds is NULL). Those elements say what the steps are: "kernel"; "nodes", each with
 * "name" and "op"; "flops" and "bytes" of one call, where they do not depend on the inputs' shapes.
 * Not while the handle runs. */
int32_t rten_aot_profile(rten_aot_model *model, rten_aot_step *steps, int32_t num_steps,
                         int64_t *run_nanoseconds);

/* Measures what the machine can do at best with the handle's threads, in some milliseconds: single
 * precision operations in a second where bytes is 0, else the bytes that are read and written in a
 * second by copying inside so much memory. Of a GPU the operations are those that its clock and
 * number of multiprocessors stand for. Not while the handle runs. */
int32_t rten_aot_peak(rten_aot_model *model, int64_t bytes, double *per_second);

#ifdef __cplusplus
}
#endif
#endif /* RTEN_AOT_H_ */
