/* Runs the net of nets.py once: prints the outputs, one number to a line. The name of the functions
 * may be changed by -DPREFIX=name. */
#include <stdio.h>

#ifndef PREFIX
#define PREFIX rten_aot
#endif
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define FUNCTION(name) JOIN(PREFIX, name)

#include HEADER

static int fail(void) {
  fprintf(stderr, "%s\n", FUNCTION(error)());
  return 1;
}

int main(void) {
  enum { BATCH = 2, PIXELS = 3 * 8 * 8 };
  float image[BATCH * PIXELS];
  int32_t rows[3] = {3, -1, 0};
  for (int i = 0; i < BATCH * PIXELS; ++i) image[i] = (float)(i % 17) / 8 - 1;
  int64_t image_shape[] = {BATCH, 3, 8, 8}, rows_shape[] = {3};
  DLTensor inputs[] = {
      {image, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, image_shape, NULL, 0},
      {rows, {kDLCPU, 0}, 1, {kDLInt, 32, 1}, rows_shape, NULL, 0},
  };
  DLTensor outputs[2] = {{0}};
  rten_aot_model *model;
  if (FUNCTION(create)(NULL, &model) != RTEN_AOT_OK) return fail();
  if (FUNCTION(run)(model, inputs, 2, outputs, 2) != RTEN_AOT_OK) return fail();
  for (int i = 0; i < 2; ++i) {
    const float *data = outputs[i].data;
    for (int64_t k = 0; k < outputs[i].shape[0] * outputs[i].shape[1]; ++k)
      printf("%.9g\n", (double)data[k]);
  }
  FUNCTION(destroy)(model);
  return 0;
}
