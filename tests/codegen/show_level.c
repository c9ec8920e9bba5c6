/* Makes a handle, then prints the metadata, or else the error. */
#include <stdio.h>

#include "rten_aot.h"

int main(void) {
  rten_aot_model *model;
  int32_t code = rten_aot_create(NULL, &model);
  if (code != RTEN_AOT_OK) {
    fprintf(stderr, "%s\n", rten_aot_error());
    return code;
  }
  puts(rten_aot_metadata());
  rten_aot_destroy(model);
  return 0;
}
