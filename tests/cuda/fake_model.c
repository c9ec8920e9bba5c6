/* A model for GPUs as generated code would be. Of x (batch, 4), index (2) and mode ():
 *
 *   y (batch, 4) = x + weights          picked (2, 4) = y[index]
 *   sums (batch) = sums of y's rows     kept (?, 4) = rows of y with a sum above zero
 *   turned (batch) = sums from the last to the first, by the CPU
 *
 * With PLAIN it has x, y and sums alone, and its host program reads nothing of the GPU.
 *
 * IMAGES is the list of images, each the text of fake_kernels.cu. */
#include "rten_aot_internal.h"

enum { NORMAL, STRAY, DIVERGE, MISALIGN, GRID, EXHAUST, SHARED };
enum { ADD, ROW_SUMS, PICK, COUNT_ROWS, KEEP_ROWS, STRAY_KERNEL, DIVERGE_KERNEL, MISALIGN_KERNEL };
enum { ROW = 16 };

static void launch(int32_t kernel, void *const *pointers, int32_t count, int64_t size, int64_t grid,
                   int64_t block, int64_t shared) {
  for (int32_t i = 0; i < count; ++i) rten_cuda_pointer(i, pointers[i]);
  rten_cuda_size(count, size);
  rten_cuda_launch(kernel, grid, 1, 1, block, 1, 1, shared);
}
#define LAUNCH(kernel, size, grid, block, shared, ...)                                           \
  launch(kernel, (void *[]){__VA_ARGS__}, sizeof (void *[]){__VA_ARGS__} / sizeof(void *), size, \
         grid, block, shared)

static void misbehave(int32_t mode, void *memory) {
  if (mode == STRAY) LAUNCH(STRAY_KERNEL, (int64_t)1 << 33, 1, 1, 0, memory);
  if (mode == DIVERGE) LAUNCH(DIVERGE_KERNEL, 0, 1, 32, 0, NULL);
  if (mode == MISALIGN) LAUNCH(MISALIGN_KERNEL, 0, 1, 1, 0, memory);
  if (mode == GRID) LAUNCH(STRAY_KERNEL, 0, (int64_t)1 << 31, 1, 0, memory);
  if (mode == SHARED) LAUNCH(STRAY_KERNEL, 0, 1, 1, 1 << 20, memory);
  if (mode == EXHAUST) rten_aot_alloc((int64_t)1 << 50);
}

#ifdef RTEN_PROFILE
#define BEGIN_STEP rten_aot_begin_step()
#define END_STEP(step, flops, bytes) rten_aot_end_step(step, flops, bytes)
#define PROFILE "\"profile\": [{\"kernel\": \"add\"}, {\"kernel\": \"turn\"}], "
#else
#define BEGIN_STEP (void)0
#define END_STEP(step, flops, bytes) (void)0
#define PROFILE
#endif

#ifdef PLAIN
static int32_t call_main(const void *const *in, void *const *out, int64_t *syms, uint8_t *workspace,
                         const int64_t *offsets, const uint8_t *weights) {
  int64_t n = syms[0];
  (void)workspace, (void)offsets, (void)misbehave;
  LAUNCH(ADD, n, (n * 4 + 127) / 128, 128, 0, (void *)in[0], (void *)weights, out[0]);
  LAUNCH(ROW_SUMS, n, (n + 1) / 2, 64, 0, out[0], out[1]);
  return 0;
}
#define INPUTS 1
#define OUTPUTS 2
#else
#define INPUTS 3
#define OUTPUTS 5
static int32_t call_main(const void *const *in, void *const *out, int64_t *syms, uint8_t *workspace,
                         const int64_t *offsets, const uint8_t *weights) {
  void *x = (void *)in[0], *index = (void *)in[1], *y = out[0], *sums = out[1], *picked = out[2];
  void *turned = out[3], *count_at = workspace + offsets[0];
  int64_t n = syms[0], count = 0;
  int32_t mode = 0;
  rten_cuda_download(&mode, in[2], sizeof mode);
  misbehave(mode, count_at);
  BEGIN_STEP;
  LAUNCH(ADD, n, (n * 4 + 127) / 128, 128, 0, x, (void *)weights, y);
  END_STEP(0, n * 4, n * 32);
  LAUNCH(ROW_SUMS, n, (n + 1) / 2, 64, 0, y, sums);
  LAUNCH(PICK, n, 2, 4, 0, y, index, picked);
  LAUNCH(COUNT_ROWS, n, 1, 32, n * 4, sums, count_at);
  rten_cuda_download(&count, count_at, sizeof count);
  if (rten_aot_failed()) return 0;
  void *kept = rten_aot_alloc(count * ROW);
  if (rten_aot_failed()) return 0;
  LAUNCH(KEEP_ROWS, n, 1, 4, 0, y, sums, kept);
  syms[1] = count;
  rten_aot_set_output(4, kept);
  float *host = rten_cuda_host_alloc(n * 4);
  if (rten_aot_failed()) return 0;
  rten_cuda_download(host, sums, n * 4);
  BEGIN_STEP;
  for (int64_t i = 0; i < n / 2; ++i) {
    float last = host[n - 1 - i];
    host[n - 1 - i] = host[i];
    host[i] = last;
  }
  END_STEP(1, 0, n * 8);
  rten_cuda_upload(turned, host, n * 4);
  return 0;
}
#endif

extern const uint8_t rten_aot_weights[] RTEN_HIDDEN;

static const int64_t rows[] = {RTEN_DIM_SYMBOL(0), 4}, two[] = {2}, batch[] = {RTEN_DIM_SYMBOL(0)},
                     two_rows[] = {2, 4}, some[] = {RTEN_DIM_SYMBOL(1), 4};
static const rten_tensor_spec inputs[] = {
    {"x", rows, 2, 2, 32, 0}, {"index", two, 1, 0, 32, 0}, {"mode", NULL, 0, 0, 32, 0}};
static const rten_tensor_spec outputs[] = {{"y", rows, 2, 2, 32, 0},
                                           {"sums", batch, 1, 2, 32, 0},
                                           {"picked", two_rows, 2, 2, 32, 0},
                                           {"turned", batch, 1, 2, 32, 0},
                                           {"kept", some, 2, 2, 32, 1}};
static const char *const symbols[] = {"batch"};
static const rten_buffer_spec buffers[] = {{64, 0, 9}};
static const rten_node_spec nodes[] = {{"pick_1", "Gather"}};

RTEN_HIDDEN const rten_model_desc rten_aot_desc = {
    .abi = RTEN_DESC_ABI,
    .metadata = "{\"abi\": 1, \"target\": {\"kind\": \"cuda\"}, " PROFILE
                "\"inputs\": ["
                "{\"name\": \"x\", \"dtype\": \"float32\", \"shape\": [\"batch\", 4]}"
#ifndef PLAIN
                ", {\"name\": \"index\", \"dtype\": \"int32\", \"shape\": [2]}, "
                "{\"name\": \"mode\", \"dtype\": \"int32\", \"shape\": []}"
#endif
                "], \"outputs\": ["
                "{\"name\": \"y\", \"dtype\": \"float32\", \"shape\": [\"batch\", 4]}, "
                "{\"name\": \"sums\", \"dtype\": \"float32\", \"shape\": [\"batch\"]}"
#ifndef PLAIN
                ", {\"name\": \"picked\", \"dtype\": \"float32\", \"shape\": [2, 4]}, "
                "{\"name\": \"turned\", \"dtype\": \"float32\", \"shape\": [\"batch\"]}, "
                "{\"name\": \"kept\", \"dtype\": \"float32\", \"shape\": [null, 4]}"
#endif
                "]}",
    .inputs = inputs,
    .num_inputs = INPUTS,
    .outputs = outputs,
    .num_outputs = OUTPUTS,
    .symbols = symbols,
    .num_symbols = 2,
    .num_input_symbols = 1,
    .buffers = buffers,
    .num_buffers = 1,
    .workspace_bytes = -1,
    .nodes = nodes,
    .num_nodes = 1,
    .io_alignment = 16,
    .weights = rten_aot_weights,
    .main = call_main,
#ifdef RTEN_PROFILE
    .num_steps = 2
#endif
};

static const rten_cuda_image images[] = {IMAGES};
static const char *const kernels[] = {"add",       "row_sums", "pick",    "count_rows",
                                      "keep_rows", "stray",    "diverge", "misalign"};
RTEN_HIDDEN const rten_cuda_tables rten_cuda_desc = {.images = images,
                                                     .num_images = sizeof images / sizeof *images,
                                                     .kernels = kernels,
                                                     .num_kernels = 8,
                                                     .weight_bytes = 16,
                                                     .can_fail = CAN_FAIL};
