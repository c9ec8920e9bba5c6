/* Functions of the driver: memory, copies, streams, graphs, events, launches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"

enum { MOST_SHARED = 49152 };

/* ---- memory -------------------------------------------------------------------------------- */

static const char *emu_sized(char *text, size_t bytes) {
  snprintf(text, NAME, "%zu", bytes);
  return text;
}
#define SIZED(bytes) emu_sized((char[NAME]){0}, bytes)

int cuMemAlloc_v2(uintptr_t *address, size_t bytes) {
  BEGIN(cuMemAlloc_v2, true, SIZED(bytes));
  code = emu_allocate(address, bytes);
  return emu_end(code);
}

int cuMemFree_v2(uintptr_t address) {
  BEGIN(cuMemFree_v2, true, "");
  code = emu_wait_for_all();
  if (code == SUCCESS) code = emu_free(address);
  return emu_end(code);
}

int cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
  BEGIN(cuMemHostAlloc, true, SIZED(bytes));
  code = flags > 7 ? INVALID_VALUE : emu_allocate_host(address, bytes);
  return emu_end(code);
}

int cuMemFreeHost(void *address) {
  BEGIN(cuMemFreeHost, true, "");
  code = emu_wait_for_all();
  if (code == SUCCESS) code = emu_free_host(address);
  return emu_end(code);
}

static int copy(void *handle, void *to, const void *from, size_t bytes, bool take_now) {
  emu_stream *stream = emu_stream_of(handle);
  if (stream == NULL) return emu_wrong(INVALID_HANDLE, "a copy in a stream that does not exist");
  if (to == NULL || from == NULL)
    return emu_wrong(INVALID_VALUE, "a copy of %zu bytes outside of what is allocated", bytes);
  return emu_ask_copy(stream, to, from, bytes, take_now);
}

/* Only of memory that is no device address. */
static void *host_memory(const void *address) {
  return emu_is_device((uintptr_t)address) ? NULL : (void *)address;
}

int cuMemcpyHtoDAsync_v2(uintptr_t to, const void *from, size_t bytes, void *stream) {
  BEGIN(cuMemcpyHtoDAsync_v2, true, SIZED(bytes));
  code = copy(stream, emu_memory(to, bytes), host_memory(from), bytes, !emu_is_registered(from));
  return emu_end(code);
}

int cuMemcpyDtoHAsync_v2(void *to, uintptr_t from, size_t bytes, void *stream) {
  BEGIN(cuMemcpyDtoHAsync_v2, true, SIZED(bytes));
  code = copy(stream, host_memory(to), emu_memory(from, bytes), bytes, false);
  return emu_end(code);
}

int cuMemcpyDtoDAsync_v2(uintptr_t to, uintptr_t from, size_t bytes, void *stream) {
  BEGIN(cuMemcpyDtoDAsync_v2, true, SIZED(bytes));
  code = copy(stream, emu_memory(to, bytes), emu_memory(from, bytes), bytes, false);
  return emu_end(code);
}

int cuMemsetD8Async(uintptr_t to, unsigned char value, size_t count, void *handle) {
  BEGIN(cuMemsetD8Async, true, SIZED(count));
  emu_stream *stream = emu_stream_of(handle);
  void *memory = emu_memory(to, count);
  if (stream == NULL || memory == NULL)
    code = emu_wrong(INVALID_VALUE, "cuMemsetD8Async outside of what is allocated");
  else
    code = emu_ask_fill(stream, memory, value, count);
  return emu_end(code);
}

/* ---- streams and events -------------------------------------------------------------------- */

int cuStreamCreate(void **made, unsigned flags) {
  BEGIN(cuStreamCreate, true, "");
  emu_stream *stream = flags > 1 ? NULL : calloc(1, sizeof *stream);
  if (stream == NULL) {
    code = INVALID_VALUE;
  } else {
    emu_stream_init(stream);
    emu_add(&emu.streams, stream);
    *made = stream;
  }
  return emu_end(code);
}

int cuStreamDestroy_v2(void *handle) {
  BEGIN(cuStreamDestroy_v2, true, "");
  code = emu_has(emu.streams, handle) ? emu_wait(handle) : INVALID_HANDLE;
  if (emu_drop(&emu.streams, handle)) free(handle);
  return emu_end(code);
}

int cuStreamSynchronize(void *handle) {
  BEGIN(cuStreamSynchronize, true, "");
  emu_stream *stream = emu_stream_of(handle);
  code = stream != NULL ? emu_wait(stream) : emu_wrong(INVALID_HANDLE, "no such stream");
  return emu_end(code);
}

/* ---- graphs -------------------------------------------------------------------------------- */

int cuStreamBeginCapture_v2(void *handle, int mode) {
  BEGIN(cuStreamBeginCapture_v2, true, "");
  emu_stream *stream = handle;
  if (!emu_has(emu.streams, handle) || stream->capturing || mode < 0 || mode > 2) {
    code = emu_wrong(INVALID_VALUE, "a graph of this stream cannot be recorded");
  } else {
    code = emu_wait(stream);
    stream->capturing = true;
  }
  return emu_end(code);
}

int cuStreamEndCapture(void *handle, void **made) {
  BEGIN(cuStreamEndCapture, true, "");
  emu_stream *stream = handle;
  *made = NULL;
  if (!emu_has(emu.streams, handle) || !stream->capturing) {
    code = emu_wrong(INVALID_VALUE, "no graph is recorded");
  } else {
    emu_stream *graph = calloc(1, sizeof *graph);
    if (graph == NULL) abort();
    emu_stream_init(graph);
    emu_move(graph, stream);
    stream->capturing = false;
    emu_add(&emu.graphs, graph);
    *made = graph;
  }
  return emu_end(code);
}

int cuGraphInstantiateWithFlags(void **made, void *given, unsigned long long flags) {
  BEGIN(cuGraphInstantiateWithFlags, true, "");
  if (!emu_has(emu.graphs, given) || flags != 0) {
    code = INVALID_HANDLE;
  } else {
    emu_stream *recorded = calloc(1, sizeof *recorded);
    if (recorded == NULL) abort();
    emu_stream_init(recorded);
    emu_move(recorded, given);
    emu_add(&emu.graphs, recorded);
    *made = recorded;
  }
  return emu_end(code);
}

int cuGraphLaunch(void *recorded, void *handle) {
  BEGIN(cuGraphLaunch, true, "");
  emu_stream *stream = emu_stream_of(handle);
  if (!emu_has(emu.graphs, recorded) || stream == NULL || stream->capturing)
    code = emu_wrong(INVALID_HANDLE, "cuGraphLaunch of no graph, or in no stream");
  else
    emu_repeat(stream, recorded);
  return emu_end(code);
}

static int destroy_graph(void *graph) {
  int code = emu_wait_for_all();
  if (!emu_drop(&emu.graphs, graph)) return INVALID_HANDLE;
  emu_cancel(graph);
  free(graph);
  return code;
}

int cuGraphDestroy(void *graph) {
  BEGIN(cuGraphDestroy, true, "");
  code = destroy_graph(graph);
  return emu_end(code);
}

int cuGraphExecDestroy(void *recorded) {
  BEGIN(cuGraphExecDestroy, true, "");
  code = destroy_graph(recorded);
  return emu_end(code);
}

int cuEventCreate(void **made, unsigned flags) {
  BEGIN(cuEventCreate, true, "");
  (void)flags;
  emu_event *own = calloc(1, sizeof *own);
  if (own == NULL) abort();
  emu_add(&emu.events, own);
  *made = own;
  return emu_end(code);
}

int cuEventDestroy_v2(void *handle) {
  BEGIN(cuEventDestroy_v2, true, "");
  code = emu_wait_for_all();
  if (emu_drop(&emu.events, handle))
    free(handle);
  else
    code = INVALID_HANDLE;
  return emu_end(code);
}

int cuEventRecord(void *handle, void *stream) {
  BEGIN(cuEventRecord, true, "");
  emu_event *own = handle;
  if (!emu_has(emu.events, handle) || emu_stream_of(stream) == NULL) {
    code = INVALID_HANDLE;
  } else {
    own->stream = emu_stream_of(stream);
    code = emu_ask_event(own->stream, &own->time);
  }
  return emu_end(code);
}

int cuEventSynchronize(void *handle) {
  BEGIN(cuEventSynchronize, true, "");
  const emu_event *own = handle;
  code =
      emu_has(emu.events, handle) && own->stream != NULL ? emu_wait(own->stream) : INVALID_HANDLE;
  return emu_end(code);
}

int cuEventElapsedTime(float *milliseconds, void *from, void *to) {
  BEGIN(cuEventElapsedTime, true, "");
  const emu_event *first = from, *last = to;
  if (emu_has(emu.events, from) && emu_has(emu.events, to))
    *milliseconds = (float)(last->time - first->time);
  else
    code = INVALID_HANDLE;
  return emu_end(code);
}

/* ---- launches ------------------------------------------------------------------------------ */

static int check(const emu_function *own, const emu_launch *launch) {
  const emu_kernel *kernel = own->kernel;
  uint64_t threads = (uint64_t)launch->block.x * launch->block.y * launch->block.z;
  const char *name = kernel->name;
  if (threads == 0 || threads > 1024 || launch->block.z > 64)
    return emu_wrong(INVALID_VALUE, "kernel %s: a block of %u x %u x %u threads", name,
                     launch->block.x, launch->block.y, launch->block.z);
  if (kernel->max_threads > 0 && threads > (uint64_t)kernel->max_threads)
    return emu_wrong(INVALID_VALUE, "kernel %s: %d threads, more than its launch bounds say", name,
                     (int)threads);
  if (launch->grid.x == 0 || launch->grid.y == 0 || launch->grid.z == 0 ||
      launch->grid.x > INT32_MAX || launch->grid.y > 65535 || launch->grid.z > 65535)
    return emu_wrong(INVALID_VALUE, "kernel %s: a grid of %u x %u x %u blocks", name,
                     launch->grid.x, launch->grid.y, launch->grid.z);
  int64_t fixed = kernel->shared_end - kernel->shared;
  if (fixed > MOST_SHARED)
    return emu_wrong(INVALID_VALUE, "kernel %s: %lld bytes of static shared memory", name,
                     (long long)fixed);
  int64_t most =
      MOST_SHARED - fixed > own->dynamic_shared ? MOST_SHARED - fixed : own->dynamic_shared;
  if (launch->shared_bytes > most)
    return emu_wrong(INVALID_VALUE, "kernel %s: %u bytes of shared memory were not asked for", name,
                     launch->shared_bytes);
  return SUCCESS;
}

int cuLaunchKernel(void *handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared_bytes, void *stream, void **arguments,
                   void **extra) {
  char text[NAME * 4] = "";
  const emu_function *own = handle;
  pthread_mutex_lock(&emu_lock);
  if (emu_has(emu.functions, handle))
    snprintf(text, sizeof text, "%s %u %u %u %u %u %u %u", own->kernel->name, gx, gy, gz, bx, by,
             bz, shared_bytes);
  pthread_mutex_unlock(&emu_lock);
  BEGIN(cuLaunchKernel, true, text);
  emu_launch launch = {NULL, {gx, gy, gz}, {bx, by, bz}, shared_bytes, arguments};
  if (!emu_has(emu.functions, handle) || emu_stream_of(stream) == NULL || extra != NULL) {
    code = emu_wrong(INVALID_HANDLE, "cuLaunchKernel of no function, or in no stream");
  } else {
    launch.kernel = own->kernel;
    code = check(own, &launch);
    if (code == SUCCESS) code = emu_ask_launch(emu_stream_of(stream), &launch);
  }
  return emu_end(code);
}
