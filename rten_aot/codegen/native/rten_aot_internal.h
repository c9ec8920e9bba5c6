/* What the generated model.c and the native runtime know of each other, and what the runtime's
 * own files share. Everything here is hidden in the finished library.
 *
 * A compiled model is
 *   - model.o, ...   rten_main, rten_prepare and the kernels, by TVM;
 *   - weights.o      the symbol rten_aot_weights (codegen/elf.py), when there are weights;
 *   - model.c        the tables below, generated as text by codegen/entry.py;
 *   - *.c            beside this header: the native runtime.
 *
 * model.c defines exactly one symbol, `const rten_model_desc rten_aot_desc` (those of RTEN_LEVELS
 * below in a library for several CPUs). For a model
 * y[batch, 4] = relu(x[batch, 4] + w) it reads:
 *
 *   #include "rten_aot_internal.h"
 *
 *   extern const uint8_t rten_aot_weights[] RTEN_HIDDEN;
 *   RTEN_HIDDEN int32_t rten_main(const void *, void *, int64_t *, uint8_t *, const int64_t *,
 *                                 const uint8_t *);
 *   RTEN_HIDDEN int32_t rten_prepare(int64_t *, int64_t *, int64_t *);
 *
 *   static int32_t call_main(const void *const *in, void *const *out, int64_t *syms,
 *                            uint8_t *workspace, const int64_t *offsets, const uint8_t *weights) {
 *     return rten_main(in[0], out[0], syms, workspace, offsets, weights);
 *   }
 *   static const int64_t in0[] = {RTEN_DIM_SYMBOL(0), 4};
 *   static const int64_t out0[] = {RTEN_DIM_SYMBOL(0), 4};
 *   static const rten_tensor_spec inputs[] = {{"x", in0, 2, 2, 32, 0}};
 *   static const rten_tensor_spec outputs[] = {{"y", out0, 2, 2, 32, 0}};
 *   static const char *const symbols[] = {"batch"};
 *   static const rten_buffer_spec buffers[] = {{-1, 0, 1}};
 *   static const rten_node_spec nodes[] = {{"add_1", "Add"}, {"relu_1", "Relu"}};
 *   static const char *const features[] = {"avx2", "fma", NULL};
 *   RTEN_HIDDEN const rten_model_desc rten_aot_desc = {
 *       .abi = RTEN_DESC_ABI, .metadata = "{...}", .cpu = "x86-64-v3", .features = features,
 *       .inputs = inputs, .num_inputs = 1, .outputs = outputs, .num_outputs = 1,
 *       .symbols = symbols, .num_symbols = 1, .num_input_symbols = 1,
 *       .buffers = buffers, .num_buffers = 1, .workspace_bytes = -1,
 *       .nodes = nodes, .num_nodes = 2, .weights = rten_aot_weights,
 *       .prepare = rten_prepare, .main = call_main};
 *
 * Arrays of length zero are not C: leave such a field out (NULL).
 */
#ifndef RTEN_AOT_INTERNAL_H_
#define RTEN_AOT_INTERNAL_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RTEN_HIDDEN __attribute__((visibility("hidden")))
#define RTEN_DESC_ABI 1
#ifndef RTEN_ALIGNMENT /* of the runtime's memory, in bytes; kernels need that of their elements */
#define RTEN_ALIGNMENT 64
#endif

/* ---- tables of the generated model.c ------------------------------------------------------- */

/* An entry of rten_tensor_spec.dims is a fixed size (>= 0), or one of these two. */
#define RTEN_DIM_SYMBOL(k) (-1 - (int64_t)(k)) /* the value of syms[k] */
#define RTEN_DIM_COMPUTED INT64_MIN            /* outputs only: rten_prepare puts it in out_dims */

typedef struct {
  const char *name;
  const int64_t *dims; /* ndim entries; may be NULL when ndim is 0 */
  int32_t ndim;
  uint8_t dtype_code; /* 0 int, 1 uint, 2 float (DLPack) */
  uint8_t dtype_bits;
  /* Outputs only. 0: the size is known after rten_prepare; rten_main gets a pointer to write to.
     1: the size is known only when rten_main has run. Its out[] entry is NULL; rten_main calls
     rten_aot_set_output(index, pointer) with memory from rten_aot_alloc, and has stored every
     RTEN_DIM_SYMBOL of dims in syms. RTEN_DIM_COMPUTED is not allowed. */
  uint8_t dynamic;
} rten_tensor_spec;

/* A planned buffer of the workspace. first and last are call indices, both inclusive: two buffers
 * may share memory when their ranges do not meet. */
typedef struct {
  int64_t bytes; /* -1: rten_prepare writes it in sizes[] */
  int32_t first;
  int32_t last;
} rten_buffer_spec;

typedef struct {
  const char *name; /* "" = unnamed */
  const char *op;
} rten_node_spec;

typedef struct {
  const char *name; /* for messages: "batch", or "x.shape[1]" of a size that has no name */
  int32_t symbol;   /* its value is syms[symbol] */
} rten_size_spec;

typedef struct {
  const char *message;
  const rten_size_spec *sizes; /* those of inputs that the condition is on */
  int32_t num_sizes;
} rten_check_spec;

/* From bound input symbols (syms[0 .. num_input_symbols)) computes the other symbols that are
 * known before the run, sizes[num_buffers] in bytes (every entry, fixed ones too) and out_dims:
 * the dimensions of all outputs one after another, of which only the RTEN_DIM_COMPUTED ones are
 * read. Returns 0, or 1 + index of the failed check. sizes that overflow int64 must come out
 * negative or above 2^62, so that the run is refused as too large. */
typedef int32_t (*rten_prepare_fn)(int64_t *syms, int64_t *sizes, int64_t *out_dims);

/* Unpacks the arrays and calls rten_main. Buffer i of the workspace is at workspace + offsets[i].
 * Pointers are aligned (io_alignment for in/out, 64 bytes for the others) and never NULL but for
 * out[] of dynamic outputs and for weights of a model that has none. Returns 0. */
typedef int32_t (*rten_main_fn)(const void *const *in, void *const *out, int64_t *syms,
                                uint8_t *workspace, const int64_t *offsets,
                                const uint8_t *weights);

typedef struct {
  uint32_t abi;         /* RTEN_DESC_ABI */
  const char *metadata; /* JSON; a C string literal */
  const char *cpu;      /* for the message when a feature is missing, e.g. "x86-64-v3" */
  /* NULL-terminated LLVM feature names the code needs, e.g. "avx2"; NULL = none. Names the
     runtime does not know (cpu.c) are not checked: tuning flags need not be left out. */
  const char *const *features;

  const rten_tensor_spec *inputs;
  int32_t num_inputs;
  const rten_tensor_spec *outputs;
  int32_t num_outputs;

  /* syms[]: first the symbols that are dimensions of inputs, then derived ones, then those that
     rten_main sets. */
  const char *const *symbols; /* num_input_symbols names for messages; "" = unnamed */
  int32_t num_symbols;
  int32_t num_input_symbols;

  const rten_buffer_spec *buffers;
  int32_t num_buffers;
  /* Placed at compile time: offsets[num_buffers] and their total. Otherwise NULL and -1: the
     runtime places the buffers (placement.c) whenever the input symbols change. A static model
     whose rten_main has its offsets baked in may give num_buffers = 0 and workspace_bytes >= 0. */
  const int64_t *offsets;
  int64_t workspace_bytes;

  const rten_node_spec *nodes; /* graph nodes, by the index that rten_aot_fail gets */
  int32_t num_nodes;
  const rten_check_spec *checks; /* rten_prepare's, then those of rten_main */
  int32_t num_checks;

  int32_t io_alignment;   /* of in[] and out[] pointers, a power of two; 0 = 64 */
  const uint8_t *weights; /* rten_aot_weights or NULL */
  rten_prepare_fn prepare; /* NULL: no derived symbols, sizes, computed dims or checks */
  rten_main_fn main;
#ifdef RTEN_PROFILE /* a library with --profile: its C text is compiled with this macro */
  int32_t num_steps; /* that rten_main times */
#endif
} rten_model_desc;

#ifdef RTEN_LEVELS /* a library for several CPUs: its C text is compiled with this macro */
/* A descriptor for each level, the best first; then the one of the time before rten_aot_create has
 * chosen a level, which is that of the last level but for the metadata. They agree in all but
 * metadata, cpu, features, functions and what these need of the workspace. */
extern const rten_model_desc rten_aot_levels[] RTEN_HIDDEN;
extern const int32_t rten_aot_num_levels RTEN_HIDDEN;
extern _Atomic(const rten_model_desc *) rten_aot_level RTEN_HIDDEN;
#define rten_aot_desc (*atomic_load_explicit(&rten_aot_level, memory_order_relaxed))
#else
extern const rten_model_desc rten_aot_desc RTEN_HIDDEN;
#endif

#ifdef RTEN_CUDA /* a library for NVIDIA GPUs: its C text is compiled with this macro */
/* In it, rten_main and its callees get device addresses in in[], out[], workspace and weights, and
 * from rten_aot_alloc and rten_aot_kept; rten_aot_copy copies on the device. Kernels are launched
 * by stubs that call the functions below; other kernels run on the CPU, on memory of the host. */
typedef struct {
  int32_t arch;   /* 80 for sm_80 */
  int32_t is_ptx; /* text, with a NUL at its end: for `arch` and all later ones */
  const void *data;
  int64_t bytes;
} rten_cuda_image;

typedef struct {
  const rten_cuda_image *images;
  int32_t num_images;
  const char *const *kernels; /* names, by the index that rten_cuda_launch gets */
  int32_t num_kernels;
  int64_t weight_bytes; /* of rten_model_desc.weights */
  int32_t can_fail;     /* the images have a variable rten_cuda_failure of type rten_cuda_failure */
} rten_cuda_tables;

/* The first failure of a run on the device, of which `claimed` is 0 before there is one. */
typedef struct {
  int32_t claimed;
  int32_t kind; /* RTEN_FAIL_... */
  int32_t node;
  int64_t value;
} rten_cuda_failure;

extern const rten_cuda_tables rten_cuda_desc RTEN_HIDDEN;
#endif

/* ---- functions for generated code ---------------------------------------------------------- */

/* Kinds of rten_aot_fail; rten_aot/dialect/failure.py has the same numbers. */
enum {
  RTEN_FAIL_INDEX = 1,
  RTEN_FAIL_DIVISION = 2,
  RTEN_FAIL_SHAPE = 3,
  RTEN_FAIL_UNSUPPORTED = 4,
  RTEN_FAIL_MEMORY = 5, /* of the runtime itself */
  RTEN_FAIL_CHECK = 6,  /* value: index into rten_model_desc.checks */
  RTEN_FAIL_DEVICE = 7  /* of the runtime itself */
};

/* Records a failure of the current run; the first one wins. Any thread of the run. Returns 0. */
RTEN_HIDDEN int32_t rten_aot_fail(int32_t kind, int32_t node, int64_t value);

/* 1 when the current run has failed already. Any thread of the run. rten_main then returns before
 * it uses sizes that a kernel computed, or memory that it asked for. */
RTEN_HIDDEN int32_t rten_aot_failed(void);

/* Memory until the next run, 64-byte aligned, not zeroed. When there is none, or bytes is negative,
 * the run has failed, and only then the result is NULL. Only from rten_main, outside parallel
 * loops. */
RTEN_HIDDEN void *rten_aot_alloc(int64_t bytes);

/* Maps all pages of a weight that is about to be read, on the handle's first run: one system call
 * in place of a fault for every few pages. Only from rten_main. Returns 0. */
RTEN_HIDDEN int32_t rten_aot_map(const void *data, int64_t bytes);

/* The memory of dynamic output `index`. Only from rten_main. Returns 0. */
RTEN_HIDDEN int32_t rten_aot_set_output(int32_t index, void *data);

/* memcpy, whatever the width of size_t. Returns 0. */
RTEN_HIDDEN int32_t rten_aot_copy(void *to, const void *from, int64_t bytes);

/* Leaves an address in syms[slot], and reads it from there: for branches of rten_main. */
RTEN_HIDDEN int32_t rten_aot_keep(int64_t *syms, int32_t slot, void *address);
RTEN_HIDDEN void *rten_aot_kept(const int64_t *syms, int32_t slot);

/* A seed for one random node: differs by node, run and handle; the same sequence of runs gives
 * the same seeds when options.seed is not 0. Never negative. */
RTEN_HIDDEN int64_t rten_aot_seed(int32_t node);

#ifdef RTEN_CUDA
#define RTEN_CUDA_MAX_ARGUMENTS 512

/* Arguments of the next launch, by position; then the launch, in the order of the handle's stream.
 * A grid with an empty side launches nothing. After a failure nothing is launched or copied any
 * more. Only from rten_main, as all that follow. They return 0. */
RTEN_HIDDEN int32_t rten_cuda_pointer(int32_t index, void *address);
RTEN_HIDDEN int32_t rten_cuda_size(int32_t index, int64_t value);
RTEN_HIDDEN int32_t rten_cuda_launch(int32_t kernel, int64_t grid_x, int64_t grid_y, int64_t grid_z,
                                     int64_t block_x, int64_t block_y, int64_t block_z,
                                     int64_t shared_bytes);

/* Copies between host and device; the host's memory may be used at once. */
RTEN_HIDDEN int32_t rten_cuda_upload(void *device, const void *host, int64_t bytes);
RTEN_HIDDEN int32_t rten_cuda_download(void *host, const void *device, int64_t bytes);
RTEN_HIDDEN int32_t rten_cuda_host_copy(void *to, const void *from, int64_t bytes);

/* Memory of the host: a piece until the next run, as of rten_aot_alloc; and the weights. */
RTEN_HIDDEN void *rten_cuda_host_alloc(int64_t bytes);
RTEN_HIDDEN const void *rten_cuda_host_weights(void);
#endif

#ifdef RTEN_PROFILE
/* Around every timed step of rten_main; the operations and bytes are those of this call. Only from
 * rten_main. They return 0. */
RTEN_HIDDEN int32_t rten_aot_begin_step(void);
RTEN_HIDDEN int32_t rten_aot_end_step(int32_t step, int64_t flops, int64_t bytes);
#endif

#endif /* RTEN_AOT_INTERNAL_H_ */
