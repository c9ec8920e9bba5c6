/* Recognises a handwritten digit with a compiled model; needs neither Python nor rten-aot to run.
 * Usage: digits PICTURE.pgm (sides a multiple of 8, 8 bits per pixel, no comments in its header) */
#include <stdio.h>

#include "rten_aot.h"

static int fail(const char *what) {
  fprintf(stderr, "digits: %s\n", what);
  return 1;
}

/* Averages the picture down to the 8x8 values in 0..1 that the network looks at. */
static int read_picture(const char *path, float pixels[64]) {
  int width = 0, height = 0, white = 0;
  FILE *file = fopen(path, "rb");
  if (file == NULL) return 0;
  int ok = fscanf(file, "P5 %d %d %d", &width, &height, &white) == 3 && fgetc(file) != EOF &&
           width > 0 && height > 0 && width % 8 == 0 && height % 8 == 0 && white > 0 && white < 256;
  for (int y = 0; ok && y < height; ++y)
    for (int x = 0; ok && x < width; ++x) {
      int value = fgetc(file);
      ok = value != EOF;
      pixels[8 * (8 * y / height) + 8 * x / width] +=
          (float)value / (float)white * 64 / (float)(width * height);
    }
  fclose(file);
  return ok;
}

int main(int argc, char **argv) {
  float pixels[64] = {0};
  if (argc != 2 || !read_picture(argv[1], pixels)) return fail("expected a PGM picture");

  rten_aot_model *model;
  if (rten_aot_create(NULL, &model) != RTEN_AOT_OK) return fail(rten_aot_error());

  int64_t shape[] = {1, 1, 8, 8};
  DLTensor in = {pixels, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, shape, NULL, 0};
  DLTensor out = {0}; /* no data: the model points it at memory of its own */
  if (rten_aot_run(model, &in, 1, &out, 1) != RTEN_AOT_OK) return fail(rten_aot_error());

  const float *probabilities = out.data;
  int best = 0;
  for (int i = 1; i < 10; ++i)
    if (probabilities[i] > probabilities[best]) best = i;
  printf("%d (%.1f %%)\n", best, 100 * (double)probabilities[best]);
  rten_aot_destroy(model);
  return 0;
}
