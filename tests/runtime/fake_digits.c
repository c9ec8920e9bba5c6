/* Has the interface of examples/digits/digits.rten: probability 7 is the mean of the pixels. */
#include <string.h>

#include "rten_aot_internal.h"

static int32_t call_main(const void *const *in, void *const *out, int64_t *syms,
                         uint8_t *workspace, const int64_t *offsets, const uint8_t *weights) {
  (void)workspace, (void)offsets, (void)weights;
  memset(out[0], 0, (size_t)syms[0] * 10 * sizeof(float));
  for (int64_t i = 0; i < syms[0] * 64; ++i)
    ((float *)out[0])[i / 64 * 10 + 7] += ((const float *)in[0])[i] / 64;
  return 0;
}

static const int64_t in_dims[] = {RTEN_DIM_SYMBOL(0), 1, 8, 8};
static const int64_t out_dims[] = {RTEN_DIM_SYMBOL(0), 10};
static const rten_tensor_spec inputs[] = {{"input", in_dims, 4, 2, 32, 0}};
static const rten_tensor_spec outputs[] = {{"probabilities", out_dims, 2, 2, 32, 0}};
static const char *const symbols[] = {"batch"};

RTEN_HIDDEN const rten_model_desc rten_aot_desc = {
    .abi = RTEN_DESC_ABI,
    .metadata = "{\"abi\":1,\"inputs\":[],\"outputs\":[]}",
    .inputs = inputs,
    .num_inputs = 1,
    .outputs = outputs,
    .num_outputs = 1,
    .symbols = symbols,
    .num_symbols = 1,
    .num_input_symbols = 1,
    .main = call_main,
};
