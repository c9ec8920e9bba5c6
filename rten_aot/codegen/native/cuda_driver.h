/* What the runtime uses of NVIDIA's driver, libcuda.so.1, which is opened when a handle is made:
 * the types of cuda.h under the same names (the driver's interface never changes), without needing
 * it. */
#ifndef RTEN_CUDA_DRIVER_H_
#define RTEN_CUDA_DRIVER_H_

#include <stddef.h>
#include <stdint.h>

#include "rten_aot_internal.h"

typedef int CUresult;
typedef int CUdevice;
typedef uintptr_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NO_DEVICE = 100,

  CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13, /* kHz */
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,

  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1
};

/* Name here, name in the library, parameters. Those of CUDA 11.4, the least driver. */
#define RTEN_CUDA_FUNCTIONS(FUNCTION)                                                            \
  FUNCTION(init, cuInit, (unsigned flags))                                                       \
  FUNCTION(get_error_name, cuGetErrorName, (CUresult error, const char **name))                  \
  FUNCTION(get_error_string, cuGetErrorString, (CUresult error, const char **text))              \
  FUNCTION(driver_version, cuDriverGetVersion, (int *version))                                   \
  FUNCTION(device_count, cuDeviceGetCount, (int *count))                                         \
  FUNCTION(device_get, cuDeviceGet, (CUdevice * device, int ordinal))                            \
  FUNCTION(device_name, cuDeviceGetName, (char *name, int room, CUdevice device))                \
  FUNCTION(device_attribute, cuDeviceGetAttribute, (int *value, int attribute, CUdevice device)) \
  FUNCTION(retain_context, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))     \
  FUNCTION(release_context, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                     \
  FUNCTION(push_context, cuCtxPushCurrent_v2, (CUcontext context))                               \
  FUNCTION(pop_context, cuCtxPopCurrent_v2, (CUcontext * context))                               \
  FUNCTION(load_module, cuModuleLoadData, (CUmodule * module, const void *image))                \
  FUNCTION(unload_module, cuModuleUnload, (CUmodule module))                                     \
  FUNCTION(get_function, cuModuleGetFunction,                                                    \
           (CUfunction * function, CUmodule module, const char *name))                           \
  FUNCTION(get_global, cuModuleGetGlobal_v2,                                                     \
           (CUdeviceptr * address, size_t *bytes, CUmodule module, const char *name))            \
  FUNCTION(set_function_attribute, cuFuncSetAttribute,                                           \
           (CUfunction function, int attribute, int value))                                      \
  FUNCTION(allocate, cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes))                       \
  FUNCTION(free, cuMemFree_v2, (CUdeviceptr address))                                            \
  FUNCTION(allocate_host, cuMemHostAlloc, (void **address, size_t bytes, unsigned flags))        \
  FUNCTION(free_host, cuMemFreeHost, (void *address))                                            \
  FUNCTION(copy_to_device, cuMemcpyHtoDAsync_v2,                                                 \
           (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))                    \
  FUNCTION(copy_to_host, cuMemcpyDtoHAsync_v2,                                                   \
           (void *to, CUdeviceptr from, size_t bytes, CUstream stream))                          \
  FUNCTION(copy_on_device, cuMemcpyDtoDAsync_v2,                                                 \
           (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                    \
  FUNCTION(set_bytes, cuMemsetD8Async,                                                           \
           (CUdeviceptr to, unsigned char value, size_t count, CUstream stream))                 \
  FUNCTION(create_stream, cuStreamCreate, (CUstream * stream, unsigned flags))                   \
  FUNCTION(destroy_stream, cuStreamDestroy_v2, (CUstream stream))                                \
  FUNCTION(wait_for_stream, cuStreamSynchronize, (CUstream stream))                              \
  FUNCTION(launch, cuLaunchKernel,                                                               \
           (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,              \
            unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,         \
            CUstream stream, void **arguments, void **extra))                                    \
  FUNCTION(begin_capture, cuStreamBeginCapture_v2, (CUstream stream, int mode))                  \
  FUNCTION(end_capture, cuStreamEndCapture, (CUstream stream, CUgraph * graph))                  \
  FUNCTION(instantiate, cuGraphInstantiateWithFlags,                                             \
           (CUgraphExec * recorded, CUgraph graph, unsigned long long flags))                    \
  FUNCTION(launch_graph, cuGraphLaunch, (CUgraphExec recorded, CUstream stream))                 \
  FUNCTION(destroy_graph, cuGraphDestroy, (CUgraph graph))                                       \
  FUNCTION(destroy_recorded, cuGraphExecDestroy, (CUgraphExec recorded))                         \
  FUNCTION(create_event, cuEventCreate, (CUevent * event, unsigned flags))                       \
  FUNCTION(destroy_event, cuEventDestroy_v2, (CUevent event))                                    \
  FUNCTION(record_event, cuEventRecord, (CUevent event, CUstream stream))                        \
  FUNCTION(wait_for_event, cuEventSynchronize, (CUevent event))                                  \
  FUNCTION(elapsed, cuEventElapsedTime, (float *milliseconds, CUevent begin, CUevent end))

typedef struct {
#define RTEN_CUDA_MEMBER(name, symbol, parameters) CUresult(*name) parameters;
  RTEN_CUDA_FUNCTIONS(RTEN_CUDA_MEMBER)
#undef RTEN_CUDA_MEMBER
} rten_cuda_driver;

/* The driver, once rten_cuda_open has returned 0. It stays open. */
extern rten_cuda_driver rten_cuda RTEN_HIDDEN;
/* 0 or the code of rten_error. */
RTEN_HIDDEN int32_t rten_cuda_open(void);

/* "out of memory (CUDA_ERROR_OUT_OF_MEMORY)" */
typedef struct {
  char text[160];
} rten_cuda_text;
RTEN_HIDDEN const char *rten_cuda_error_text(rten_cuda_text *text, CUresult error);

#endif /* RTEN_CUDA_DRIVER_H_ */
