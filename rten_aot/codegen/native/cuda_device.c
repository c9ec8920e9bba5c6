/* GPUs in use: what all handles on one share. */
#ifdef RTEN_CUDA
#include <pthread.h>
#include <stdlib.h>

#include "runtime.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static rten_cuda_device *devices;
static int32_t process; /* that has the devices */

int32_t rten_cuda_error(int32_t otherwise, CUresult error, const char *what) {
  rten_cuda_text text;
  int32_t code = error == CUDA_ERROR_OUT_OF_MEMORY ? RTEN_AOT_OUT_OF_MEMORY : otherwise;
  return rten_error(code, "%s: %s", what, rten_cuda_error_text(&text, error));
}

/* ---- choice of an image -------------------------------------------------------------------- */

/* Machine code is for its own generation, from its own version on; PTX for all that is later. */
static bool runs_on(const rten_cuda_image *image, int32_t capability) {
  if (image->arch > capability) return false;
  return image->is_ptx || image->arch / 10 == capability / 10;
}

static bool is_better(const rten_cuda_image *image, const rten_cuda_image *than) {
  if (than == NULL) return true;
  if (image->is_ptx != than->is_ptx) return than->is_ptx;
  return image->arch > than->arch;
}

static int32_t no_image(CUdevice device, int32_t capability) {
  char name[96] = "unknown";
  (void)rten_cuda.device_name(name, sizeof name, device);
  rten_text list = {{0}, 0};
  for (int32_t i = 0; i < rten_cuda_desc.num_images; ++i) {
    const rten_cuda_image *image = &rten_cuda_desc.images[i];
    rten_append(&list, "%s%s_%d", i > 0 ? ", " : "", image->is_ptx ? "compute" : "sm",
                (int)image->arch);
  }
  return rten_error(RTEN_AOT_UNSUPPORTED_DEVICE,
                    "the GPU \"%s\" is sm_%d, for which this artifact has no code (it has %s)",
                    name, (int)capability, list.text);
}

static int32_t choose_image(rten_cuda_device *device) {
  int major = 0, minor = 0;
  CUresult error = rten_cuda.device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                              device->device);
  if (error == CUDA_SUCCESS)
    error = rten_cuda.device_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                       device->device);
  if (error != CUDA_SUCCESS)
    return rten_cuda_error(RTEN_AOT_UNSUPPORTED_DEVICE, error, "the GPU cannot be asked");
  for (int32_t i = 0; i < rten_cuda_desc.num_images; ++i) {
    const rten_cuda_image *image = &rten_cuda_desc.images[i];
    if (runs_on(image, 10 * major + minor) && is_better(image, device->image))
      device->image = image;
  }
  return device->image != NULL ? RTEN_AOT_OK : no_image(device->device, 10 * major + minor);
}

/* ---- kernels and weights ------------------------------------------------------------------- */

void rten_cuda_unload(rten_cuda_module *module) {
  if (module->module != NULL) (void)rten_cuda.unload_module(module->module);
  free(module->functions);
  *module = (rten_cuda_module){NULL, NULL, 0};
}

static int32_t find_kernels(rten_cuda_module *module) {
  const rten_cuda_tables *tables = &rten_cuda_desc;
  enum { WRONG = RTEN_AOT_UNSUPPORTED_DEVICE };
  for (int32_t i = 0; i < tables->num_kernels; ++i) {
    CUresult error =
        rten_cuda.get_function(&module->functions[i], module->module, tables->kernels[i]);
    if (error != CUDA_SUCCESS) return rten_cuda_error(WRONG, error, tables->kernels[i]);
  }
  if (!tables->can_fail) return RTEN_AOT_OK;
  CUresult error =
      rten_cuda.get_global(&module->failure, NULL, module->module, "rten_cuda_failure");
  return error == CUDA_SUCCESS ? RTEN_AOT_OK : rten_cuda_error(WRONG, error, "rten_cuda_failure");
}

int32_t rten_cuda_load(const rten_cuda_device *device, rten_cuda_module *module) {
  size_t count = rten_cuda_desc.num_kernels > 0 ? (size_t)rten_cuda_desc.num_kernels : 1;
  module->functions = calloc(count, sizeof *module->functions);
  if (module->functions == NULL)
    return rten_error(RTEN_AOT_OUT_OF_MEMORY, "out of memory for a table of kernels");
  CUresult error = rten_cuda.load_module(&module->module, device->image->data);
  int32_t code;
  if (error != CUDA_SUCCESS) {
    int version = 0;
    (void)rten_cuda.driver_version(&version);
    module->module = NULL;
    rten_text what = {{0}, 0};
    rten_append(&what, "the NVIDIA driver (for CUDA %d.%d) does not take the code for %s_%d",
                version / 1000, version / 10 % 100, device->image->is_ptx ? "compute" : "sm",
                (int)device->image->arch);
    code = rten_cuda_error(RTEN_AOT_UNSUPPORTED_DEVICE, error, what.text);
  } else {
    code = find_kernels(module);
  }
  if (code != 0) rten_cuda_unload(module);
  return code;
}

static int32_t load_weights(rten_cuda_device *device) {
  size_t bytes = (size_t)rten_cuda_desc.weight_bytes;
  if (bytes == 0) return RTEN_AOT_OK;
  CUresult error = rten_cuda.allocate(&device->weights, bytes);
  if (error == CUDA_SUCCESS)
    error = rten_cuda.copy_to_device(device->weights, rten_aot_desc.weights, bytes, NULL);
  if (error == CUDA_SUCCESS) error = rten_cuda.wait_for_stream(NULL);
  if (error == CUDA_SUCCESS) return RTEN_AOT_OK;
  rten_text what = {{0}, 0};
  rten_append(&what, "%lld bytes of weights", (long long)bytes);
  return rten_cuda_error(RTEN_AOT_UNSUPPORTED_DEVICE, error, what.text);
}

/* ---- devices ------------------------------------------------------------------------------- */

/* Leaves the context current, if there is one then. */
static int32_t start(rten_cuda_device *device) {
  enum { WRONG = RTEN_AOT_UNSUPPORTED_DEVICE };
  int32_t code = choose_image(device);
  if (code != 0) return code;
  CUresult error = rten_cuda.retain_context(&device->context, device->device);
  if (error != CUDA_SUCCESS) {
    device->context = NULL;
    return rten_cuda_error(WRONG, error, "the GPU cannot be used");
  }
  error = rten_cuda.push_context(device->context);
  if (error != CUDA_SUCCESS) return rten_cuda_error(WRONG, error, "the GPU cannot be used");
  if (!rten_cuda_desc.can_fail) code = rten_cuda_load(device, &device->module);
  if (code == 0) code = load_weights(device);
  if (code != 0) (void)rten_cuda.pop_context(&device->context);
  return code;
}

/* Without a current context of its own. */
static void stop(rten_cuda_device *device) {
  if (device->context != NULL) {
    CUcontext context = device->context;
    if (rten_cuda.push_context(context) == CUDA_SUCCESS) {
      if (device->weights != 0) (void)rten_cuda.free(device->weights);
      rten_cuda_unload(&device->module);
      (void)rten_cuda.pop_context(&context);
    }
    (void)rten_cuda.release_context(device->device);
  }
  free(device);
}

static int32_t add(int32_t ordinal, rten_cuda_device **made) {
  int count = 0;
  CUdevice number = 0;
  CUresult error = rten_cuda.device_count(&count);
  if (error == CUDA_SUCCESS && count == 0)
    return rten_error(RTEN_AOT_UNSUPPORTED_DEVICE,
                      "there is no NVIDIA GPU, which this artifact needs");
  if (error == CUDA_SUCCESS && ordinal >= count)
    return rten_error(RTEN_AOT_UNSUPPORTED_DEVICE, "there is no GPU %d, only 0 to %d", (int)ordinal,
                      count - 1);
  if (error == CUDA_SUCCESS) error = rten_cuda.device_get(&number, ordinal);
  if (error != CUDA_SUCCESS)
    return rten_cuda_error(RTEN_AOT_UNSUPPORTED_DEVICE, error, "the GPUs cannot be counted");
  rten_cuda_device *device = calloc(1, sizeof *device);
  if (device == NULL) return rten_error(RTEN_AOT_OUT_OF_MEMORY, "out of memory for a model handle");
  device->ordinal = ordinal;
  device->device = number;
  int32_t code = start(device);
  if (code != 0) {
    stop(device);
    return code;
  }
  device->next = devices;
  devices = device;
  *made = device;
  return RTEN_AOT_OK;
}

static int32_t retain(int32_t ordinal, rten_cuda_device **device) {
  if (devices == NULL) process = rten_process();
  if (process != rten_process())
    return rten_error(RTEN_AOT_UNSUPPORTED_DEVICE,
                      "a GPU cannot be used in a process forked from one that uses it; start the "
                      "process anew");
  for (*device = devices; *device != NULL; *device = (*device)->next)
    if ((*device)->ordinal == ordinal) break;
  if (*device == NULL) {
    int32_t code = add(ordinal, device);
    if (code != 0) return code;
  } else {
    CUresult error = rten_cuda.push_context((*device)->context);
    if (error != CUDA_SUCCESS)
      return rten_cuda_error(RTEN_AOT_UNSUPPORTED_DEVICE, error, "the GPU cannot be used");
  }
  (*device)->handles += 1;
  return RTEN_AOT_OK;
}

int32_t rten_cuda_retain(int32_t ordinal, rten_cuda_device **device) {
  int32_t code = rten_cuda_open();
  if (code != 0) return code;
  pthread_mutex_lock(&lock);
  code = retain(ordinal, device);
  pthread_mutex_unlock(&lock);
  return code;
}

void rten_cuda_release(rten_cuda_device *device) {
  pthread_mutex_lock(&lock);
  device->handles -= 1;
  if (device->handles == 0) {
    rten_cuda_device **link = &devices;
    while (*link != device) link = &(*link)->next;
    *link = device->next;
    stop(device);
  }
  pthread_mutex_unlock(&lock);
}

#endif
