/* A model written by hand, in the place of TVM's objects and the generated model.c: it does
 * everything that generated code may do, and what `mode` asks for on top.
 *
 * y = relu(x + w); picked = x[index]; rows = the rows of x with a positive sum; facts = what the
 * run looked like from inside. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "rten_aot_internal.h"

#ifdef __wasm__ /* where waiting needs the help of whoever loads the module */
#define usleep(microseconds) ((void)(microseconds))
#endif
#ifndef FEATURES
#define FEATURES NULL
#endif
#ifndef BIAS
#define BIAS 0
#endif
#ifndef IO_ALIGNMENT
#define IO_ALIGNMENT 0
#endif

enum { BATCH, COUNT, FOUND, NUM_SYMS };
enum { NORMAL, NESTED, DIVIDE, EXHAUST, MISFIT, SLOW, FORGET, BLOCKS, STOP, RAW_FAILURE, NAMELESS };

typedef struct {
  void *sync_handle;
  int32_t num_task;
} parallel_env;
typedef int (*parallel_lambda)(int, parallel_env *, void *);
/* As in an object of TVM. */
__attribute__((weak)) RTEN_HIDDEN int (*__TVMBackendParallelLaunch)(parallel_lambda, void *, int);

#ifdef WEIGHTS_OBJECT
extern const uint8_t rten_aot_weights[] RTEN_HIDDEN;
#else
static const float rten_aot_weights[] = {1, 2, 3, -4};
#endif

typedef struct {
  const float *x;
  const float *w;
  float *y;
  int64_t rows;
  int32_t mode;
  _Atomic int32_t tasks;
  _Atomic int32_t nested;
} relu_args;

static int nested_task(int task, parallel_env *env, void *data) {
  (void)task;
  atomic_fetch_add((_Atomic int32_t *)data, env->num_task);
  return 0;
}

static int relu_task(int task, parallel_env *env, void *data) {
  relu_args *args = data;
  int64_t chunk = (args->rows + env->num_task - 1) / env->num_task;
  int64_t end = (task + 1) * chunk < args->rows ? (task + 1) * chunk : args->rows;
  atomic_fetch_add(&args->tasks, 1);
  if (args->mode == NESTED) __TVMBackendParallelLaunch(nested_task, &args->nested, 0);
  if (args->mode == SLOW) usleep(30000);
  if (args->mode == RAW_FAILURE) return -1;
  for (int64_t row = task * chunk; row < end; ++row) {
    if (args->mode == DIVIDE) rten_aot_fail(RTEN_FAIL_DIVISION, 1, 0);
    for (int64_t i = 4 * row; i < 4 * row + 4; ++i)
      args->y[i] = fmaxf(args->x[i] + args->w[i % 4] + BIAS, 0);
  }
  return 0;
}

static void gather(const float *x, int64_t rows, const int32_t *index, int64_t count, float *out) {
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = index[i] < 0 ? index[i] + rows : index[i];
    if (at < 0 || at >= rows) {
      rten_aot_fail(RTEN_FAIL_INDEX, 0, index[i]);
      continue;
    }
    memcpy(out + 4 * i, x + 4 * at, 4 * sizeof *out);
  }
}

/* Buffers that live at the same time must not share memory. */
static int check_buffers(uint8_t *workspace, const int64_t *offsets, int64_t batch) {
  size_t sizes[3] = {(size_t)batch * 16, (size_t)batch * 16, 100};
  memset(workspace + offsets[0], 1, sizes[0]);
  memset(workspace + offsets[1], 2, sizes[1]);
  for (size_t i = 0; i < sizes[0]; ++i)
    if (workspace[(size_t)offsets[0] + i] != 1) return 0;
  memset(workspace + offsets[2], 3, sizes[2]);
  for (size_t i = 0; i < sizes[1]; ++i)
    if (workspace[(size_t)offsets[1] + i] != 2) return 0;
  return ((uintptr_t)(workspace + offsets[0]) | (uintptr_t)(workspace + offsets[1]) |
          (uintptr_t)(workspace + offsets[2])) % 64 == 0;
}

static int check_blocks(void) {
  uint8_t *blocks[40];
  int64_t bytes = 1000;
  for (int i = 0; i < 40; ++i, bytes += bytes / 4) {
    blocks[i] = rten_aot_alloc(bytes);
    if (blocks[i] == NULL || (uintptr_t)blocks[i] % 64 != 0) return 0;
    memset(blocks[i], i, (size_t)bytes);
  }
  bytes = 1000;
  for (int i = 0; i < 40; ++i, bytes += bytes / 4)
    if (blocks[i][0] != i || blocks[i][bytes - 1] != i) return 0;
  return rten_aot_alloc(0) != NULL;
}

static int32_t call_main(const void *const *in, void *const *out, int64_t *syms,
                         uint8_t *workspace, const int64_t *offsets, const uint8_t *weights) {
  int64_t batch = syms[BATCH];
  relu_args args = {in[0], (const float *)weights, out[0], batch, *(const int32_t *)in[2], 0, 0};
  int32_t *facts = out[3];
  if (__TVMBackendParallelLaunch(relu_task, &args, 0) != 0) return -1;
  gather(in[0], batch, in[1], syms[COUNT], out[1]);
  memset(facts, 0, 8 * sizeof *facts);
  facts[0] = args.tasks;
  facts[1] = args.nested;
  facts[2] = check_buffers(workspace, offsets, batch);
  facts[3] = args.mode == BLOCKS ? check_blocks() : 0;
  facts[4] = (int32_t)(rten_aot_seed(0) & 0x7fffffff);
  facts[5] = (int32_t)(rten_aot_seed(1) & 0x7fffffff);
  facts[6] = (int32_t)((uintptr_t)in[0] % 64 + (uintptr_t)out[0] % 64);
  if (args.mode == EXHAUST && rten_aot_alloc(INT64_C(1) << 60) != NULL) __builtin_trap();
  if (args.mode == MISFIT) rten_aot_fail(RTEN_FAIL_SHAPE, 2, 5);
  if (args.mode == NAMELESS) rten_aot_fail(RTEN_FAIL_UNSUPPORTED, 3, 5);
  if (args.mode == STOP) {
    rten_aot_fail(RTEN_FAIL_INDEX, -1, 9);
    if (!rten_aot_failed()) __builtin_trap();
  }
  if (rten_aot_failed()) return 0;
  int32_t *found = rten_aot_alloc(batch * (int64_t)sizeof *found);
  if (rten_aot_failed()) return 0;
  syms[FOUND] = 0;
  for (int64_t row = 0; row < batch; ++row) {
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += args.x[4 * row + i];
    if (sum > 0) found[syms[FOUND]++] = (int32_t)row;
  }
  if (args.mode != FORGET) rten_aot_set_output(2, found);
  return 0;
}

static int32_t prepare(int64_t *syms, int64_t *sizes, int64_t *out_dims) {
  if (syms[COUNT] > 1000) return 1;
  sizes[0] = sizes[1] = syms[BATCH] * 16;
  sizes[2] = 100;
  out_dims[2] = syms[COUNT] * 4 / 4; /* y has two dimensions before it */
  return 0;
}

static const int64_t x_dims[] = {RTEN_DIM_SYMBOL(BATCH), 4};
static const int64_t index_dims[] = {RTEN_DIM_SYMBOL(COUNT)};
static const int64_t scale_dims[] = {RTEN_DIM_SYMBOL(BATCH)};
static const int64_t picked_dims[] = {RTEN_DIM_COMPUTED, 4};
static const int64_t rows_dims[] = {RTEN_DIM_SYMBOL(FOUND)};
static const int64_t facts_dims[] = {8};
static const rten_tensor_spec inputs[] = {
    {"x", x_dims, 2, 2, 32, 0},
    {"index", index_dims, 1, 0, 32, 0},
    {"mode", NULL, 0, 0, 32, 0},
    {"scale", scale_dims, 1, 1, 8, 0},
};
static const rten_tensor_spec outputs[] = {
    {"y", x_dims, 2, 2, 32, 0},
    {"picked", picked_dims, 2, 2, 32, 0},
    {"rows", rows_dims, 1, 0, 32, 1},
    {"facts", facts_dims, 1, 0, 32, 0},
};
static const char *const symbols[] = {"batch", ""};
static const rten_buffer_spec buffers[] = {{-1, 0, 1}, {-1, 1, 2}, {-1, 2, 3}};
static const rten_node_spec nodes[] = {
    {"pick", "Gather"}, {"enc/div", "Div"}, {"sum", "Add"}, {"", "Slice"}};
static const rten_size_spec counted[] = {{"index.shape[0]", 1}};
static const rten_check_spec checks[] = {
    {"too many indices: at most 1000 are possible", counted, 1}};
static const char *const features[] = {FEATURES, NULL};

#ifndef METADATA
#define METADATA \
  "{\"abi\":1,\"inputs\":[" \
  "{\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[\"batch\",4]}," \
  "{\"name\":\"index\",\"dtype\":\"int32\",\"shape\":[null]}," \
  "{\"name\":\"mode\",\"dtype\":\"int32\",\"shape\":[]}," \
  "{\"name\":\"scale\",\"dtype\":\"uint8\",\"shape\":[\"batch\"]}]," \
  "\"outputs\":[" \
  "{\"name\":\"y\",\"dtype\":\"float32\",\"shape\":[\"batch\",4]}," \
  "{\"name\":\"picked\",\"dtype\":\"float32\",\"shape\":[null,4]}," \
  "{\"name\":\"rows\",\"dtype\":\"int32\",\"shape\":[null]}," \
  "{\"name\":\"facts\",\"dtype\":\"int32\",\"shape\":[8]}]," \
  "\"target\":{\"kind\":\"llvm\",\"triple\":\"by-hand\",\"cpu\":\"any\"}," \
  "\"sizes\":{\"workspace\":null}}"
#endif

RTEN_HIDDEN const rten_model_desc rten_aot_desc = {
    .abi = RTEN_DESC_ABI,
    .metadata = METADATA,
    .cpu = "tomorrow",
    .features = features,
    .inputs = inputs,
    .num_inputs = 4,
    .outputs = outputs,
    .num_outputs = 4,
    .symbols = symbols,
    .num_symbols = NUM_SYMS,
    .num_input_symbols = 2,
    .buffers = buffers,
    .num_buffers = 3,
    .workspace_bytes = -1,
    .nodes = nodes,
    .num_nodes = 4,
    .checks = checks,
    .num_checks = 1,
    .io_alignment = IO_ALIGNMENT,
    .weights = (const uint8_t *)rten_aot_weights,
    .prepare = prepare,
    .main = call_main,
};
