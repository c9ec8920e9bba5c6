/* Opens NVIDIA's driver. */
#ifdef RTEN_CUDA
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "runtime.h"

static const char *const LIBRARY = "libcuda.so.1";

rten_cuda_driver rten_cuda;

const char *rten_cuda_error_text(rten_cuda_text *text, CUresult error) {
  const char *name = NULL, *words = NULL;
  if (rten_cuda.get_error_name(error, &name) != CUDA_SUCCESS || name == NULL) name = "unknown";
  if (rten_cuda.get_error_string(error, &words) != CUDA_SUCCESS || words == NULL) words = "error";
  snprintf(text->text, sizeof text->text, "%s (%s)", words, name);
  return text->text;
}

static int32_t find_functions(void *library, rten_cuda_driver *driver) {
#define FIND(name, symbol, parameters)                             \
  if ((*(void **)&driver->name = dlsym(library, #symbol)) == NULL) \
    return rten_error(RTEN_AOT_UNSUPPORTED_DEVICE,                 \
                      "the NVIDIA driver is too old: %s has no function %s", LIBRARY, #symbol);
  RTEN_CUDA_FUNCTIONS(FIND)
#undef FIND
  return RTEN_AOT_OK;
}

static int32_t open_once(void) {
  static void *library;
  if (library != NULL) return RTEN_AOT_OK;
  void *found = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (found == NULL)
    return rten_error(RTEN_AOT_UNSUPPORTED_DEVICE,
                      "there is no NVIDIA driver, which this artifact needs: %s", dlerror());
  rten_cuda_driver driver;
  int32_t code = find_functions(found, &driver);
  if (code == 0) {
    rten_cuda = driver;
    CUresult error = driver.init(0);
    rten_cuda_text text;
    if (error == CUDA_ERROR_NO_DEVICE)
      code = rten_error(RTEN_AOT_UNSUPPORTED_DEVICE,
                        "there is no NVIDIA GPU, which this artifact needs");
    else if (error != CUDA_SUCCESS)
      code = rten_error(RTEN_AOT_UNSUPPORTED_DEVICE, "the NVIDIA driver does not start: %s",
                        rten_cuda_error_text(&text, error));
  }
  if (code == 0)
    library = found;
  else
    dlclose(found);
  return code;
}

int32_t rten_cuda_open(void) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&lock);
  int32_t code = open_once();
  pthread_mutex_unlock(&lock);
  return code;
}

#endif
