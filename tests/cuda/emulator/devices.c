/* Functions of the driver: errors, devices, contexts, modules. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"

int cuInit(unsigned flags) {
  BEGIN(cuInit, false, "");
  if (flags != 0) {
    code = INVALID_VALUE;
  } else if (emu.num_devices == 0) {
    code = NO_DEVICE;
  } else {
    for (int i = 0; i < MOST_DEVICES && !emu.initialized; ++i)
      emu_stream_init(&emu.contexts[i].default_stream);
    emu.initialized = true;
  }
  return emu_end(code);
}

int cuGetErrorName(int error, const char **name) {
  static const struct {
    int error;
    const char *name;
  } names[] = {{SUCCESS, "CUDA_SUCCESS"},
               {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
               {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
               {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
               {NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
               {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
               {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
               {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
               {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
               {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
               {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
               {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
               {MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS"},
               {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    if (names[i].error != error) continue;
    *name = names[i].name;
    return SUCCESS;
  }
  *name = NULL;
  return INVALID_VALUE;
}

int cuGetErrorString(int error, const char **text) {
  static char words[64]; /* the name in small letters */
  const char *name;
  *text = NULL;
  if (cuGetErrorName(error, &name) != SUCCESS) return INVALID_VALUE;
  if (strncmp(name, "CUDA_ERROR_", 11) == 0) name += 11;
  size_t i = 0;
  for (; name[i] != '\0' && i + 1 < sizeof words; ++i)
    words[i] = name[i] == '_' ? ' ' : (char)(name[i] | 0x20);
  words[i] = '\0';
  *text = words;
  return SUCCESS;
}

/* NVRTC looks for secrets of the driver, if one is there. */
int cuGetExportTable(const void **table, const void *id) {
  (void)id;
  *table = NULL;
  return NOT_FOUND;
}

int cuDriverGetVersion(int *version) {
  *version = 12040;
  return SUCCESS;
}

int cuDeviceGetCount(int *count) {
  BEGIN(cuDeviceGetCount, false, "");
  *count = emu.num_devices;
  return emu_end(code);
}

int cuDeviceGet(int *device, int ordinal) {
  BEGIN(cuDeviceGet, false, "");
  if (ordinal < 0 || ordinal >= emu.num_devices) code = INVALID_DEVICE;
  *device = ordinal;
  return emu_end(code);
}

int cuDeviceGetName(char *name, int room, int device) {
  BEGIN(cuDeviceGetName, false, "");
  snprintf(name, (size_t)room, "Emulated GPU %d", device);
  return emu_end(code);
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  BEGIN(cuDeviceGetAttribute, false, "");
  switch (attribute) {
    case 13:
      *value = 1000000;
      break; /* clock rate, kHz */
    case 16:
      *value = 4;
      break; /* multiprocessors */
    case 75:
      *value = emu.capabilities[device] / 10;
      break;
    case 76:
      *value = emu.capabilities[device] % 10;
      break;
    default:
      code = emu_wrong(INVALID_VALUE, "attribute %d is not known here", attribute);
  }
  return emu_end(code);
}

/* ---- contexts ------------------------------------------------------------------------------ */

int cuDevicePrimaryCtxRetain(void **made, int device) {
  BEGIN(cuDevicePrimaryCtxRetain, false, "");
  if (device < 0 || device >= emu.num_devices) {
    code = INVALID_DEVICE;
  } else {
    emu.contexts[device].retained += 1;
    *made = &emu.contexts[device];
  }
  return emu_end(code);
}

/* A context takes what it has with it. That is in order only where a fault kept it from being
 * freed; with several devices, the last context does it for all. */
static void forget(emu_context *own) {
  int fault = own->fault;
  own->fault = 0;
  for (int i = 0; i < emu.num_devices; ++i)
    if (emu.contexts[i].retained > 0) return;
  if (fault == 0) return;
  emu_free_all();
  emu_free_all_host();
  emu_cancel(&own->default_stream);
  while (emu.functions != NULL) emu_free_item(&emu.functions);
  while (emu.events != NULL) emu_free_item(&emu.events);
  while (emu.modules != NULL) {
    emu_unload(emu.modules->item);
    emu_drop(&emu.modules, emu.modules->item);
  }
  while (emu.graphs != NULL) {
    emu_cancel(emu.graphs->item);
    emu_free_item(&emu.graphs);
  }
  while (emu.streams != NULL) {
    emu_cancel(emu.streams->item);
    emu_free_item(&emu.streams);
  }
}

int cuDevicePrimaryCtxRelease_v2(int device) {
  BEGIN(cuDevicePrimaryCtxRelease_v2, false, "");
  if (emu.contexts[device].retained == 0)
    code = emu_wrong(INVALID_CONTEXT, "a context is released that was not retained");
  else if (--emu.contexts[device].retained == 0)
    forget(&emu.contexts[device]);
  return emu_end(code);
}

int cuCtxPushCurrent_v2(void *given) {
  BEGIN(cuCtxPushCurrent_v2, false, "");
  if (given == NULL || ((emu_context *)given)->retained == 0 || emu_depth_now == MOST_CONTEXTS)
    code = emu_wrong(INVALID_CONTEXT, "a context is made current that does not exist");
  else
    emu_current[emu_depth_now++] = given;
  return emu_end(code);
}

int cuCtxPopCurrent_v2(void **given) {
  BEGIN(cuCtxPopCurrent_v2, false, "");
  if (emu_depth_now == 0)
    code = emu_wrong(INVALID_CONTEXT, "no context is current");
  else
    *given = emu_current[--emu_depth_now];
  return emu_end(code);
}

/* How many contexts are current in this thread: after a call, as many as before. */
int emu_depth(void) { return emu_depth_now; }

/* ---- modules ------------------------------------------------------------------------------- */

/* The first line of a text. */
static const char *titled(char *title, const char *text) {
  snprintf(title, NAME, "%.*s", (int)strcspn(text, "\n"), text);
  return title;
}
#define TITLED(text) titled((char[NAME]){0}, text)

int cuModuleLoadData(void **made, const void *image) {
  BEGIN(cuModuleLoadData, true, TITLED(image));
  emu_module *module;
  code = emu_load(&module, image);
  if (code == SUCCESS) {
    emu_add(&emu.modules, module);
    *made = module;
  }
  return emu_end(code);
}

int cuModuleUnload(void *module) {
  BEGIN(cuModuleUnload, true, "");
  code = emu_wait_for_all();
  if (!emu_drop(&emu.modules, module)) {
    code = emu_wrong(INVALID_HANDLE, "a module is unloaded that does not exist");
  } else {
    for (emu_list *each = emu.functions, *next; each != NULL; each = next) {
      next = each->next;
      emu_function *own = each->item;
      if (own->module != module) continue;
      emu_drop(&emu.functions, own);
      free(own);
    }
    emu_unload(module);
  }
  return emu_end(code);
}

int cuModuleGetFunction(void **made, void *handle, const char *name) {
  BEGIN(cuModuleGetFunction, true, name);
  const emu_module *module = handle;
  const emu_kernel *kernel = emu_has(emu.modules, handle) ? module->kernels : NULL;
  while (kernel != NULL && kernel->name != NULL && strcmp(kernel->name, name) != 0) ++kernel;
  if (kernel == NULL) {
    code = INVALID_HANDLE;
  } else if (kernel->name == NULL) {
    code = NOT_FOUND;
  } else {
    emu_function *found = calloc(1, sizeof *found);
    if (found == NULL) abort();
    found->module = handle;
    found->kernel = kernel;
    emu_add(&emu.functions, found);
    *made = found;
  }
  return emu_end(code);
}

int cuModuleGetGlobal_v2(uintptr_t *address, size_t *bytes, void *module, const char *name) {
  BEGIN(cuModuleGetGlobal_v2, true, name);
  code = emu_has(emu.modules, module) ? emu_global(module, name, address, bytes) : INVALID_HANDLE;
  return emu_end(code);
}

int cuFuncSetAttribute(void *handle, int attribute, int value) {
  BEGIN(cuFuncSetAttribute, true, "");
  enum { MAX_DYNAMIC_SHARED = 8, MOST_OPTED_IN = 166912 };
  emu_function *own = handle;
  if (!emu_has(emu.functions, handle) || attribute != MAX_DYNAMIC_SHARED || value < 0 ||
      value + (int)(own->kernel->shared_end - own->kernel->shared) > MOST_OPTED_IN)
    code = emu_wrong(INVALID_VALUE, "cuFuncSetAttribute(%d, %d)", attribute, value);
  else
    own->dynamic_shared = value;
  return emu_end(code);
}
