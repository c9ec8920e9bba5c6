/* How calls of the driver begin and end: each one may be made to fail, and is written to a log. */
#include "api.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOG = 1 << 20 };

int64_t emu_memory_size = INT64_C(8) << 30;
emu_driver emu = {.num_devices = 1, .capabilities = {80}};
_Thread_local emu_context *emu_current[MOST_CONTEXTS];
_Thread_local int emu_depth_now;

pthread_mutex_t emu_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  char name[NAME];
  int after, code;
} failure;
static char log_text[LOG];
static size_t log_length;

int emu_wrong(int code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fputs("emulator: ", stderr);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  return code;
}

/* ---- lists --------------------------------------------------------------------------------- */

void emu_add(emu_list **all, void *item) {
  emu_list *entry = malloc(sizeof *entry);
  if (entry == NULL) abort();
  *entry = (emu_list){*all, item};
  *all = entry;
}

bool emu_has(const emu_list *all, const void *item) {
  for (; all != NULL; all = all->next)
    if (all->item == item) return true;
  return false;
}

bool emu_drop(emu_list **all, const void *item) {
  for (; *all != NULL; all = &(*all)->next) {
    if ((*all)->item != item) continue;
    emu_list *entry = *all;
    *all = entry->next;
    free(entry);
    return true;
  }
  return false;
}

void emu_free_item(emu_list **all) {
  void *item = (*all)->item;
  emu_drop(all, item);
  free(item);
}

static int64_t emu_length(const emu_list *all) {
  int64_t count = 0;
  for (; all != NULL; all = all->next) count += 1;
  return count;
}

/* ---- what tests set and see ---------------------------------------------------------------- */

void emu_set_devices(int count, const int *given) {
  emu.num_devices = count;
  for (int i = 0; i < count; ++i) emu.capabilities[i] = given[i];
}

/* Of a process that cannot call these functions: one GPU of this capability. */
__attribute__((constructor)) static void read_environment(void) {
  const char *capability = getenv("RTEN_EMULATOR_CAPABILITY");
  if (capability != NULL) emu_set_devices(1, (int[]){atoi(capability)});
}

void emu_set_backward(int backward) { emu_backward = backward; }

void emu_set_alignment(int bytes) { emu_alignment = (size_t)bytes; }

void emu_set_memory(int64_t bytes) { emu_memory_size = bytes; }

/* Has the call number `after` of a function, counted from 1, return the code. */
void emu_fail_call(const char *name, int after, int code) {
  snprintf(failure.name, sizeof failure.name, "%s", name);
  failure.after = after;
  failure.code = code;
}

/* The calls since the last time, one a line. */
const char *emu_take_log(void) {
  static char taken[LOG];
  pthread_mutex_lock(&emu_lock);
  memcpy(taken, log_text, log_length);
  taken[log_length] = '\0';
  log_length = 0;
  pthread_mutex_unlock(&emu_lock);
  return taken;
}

/* Device allocations, their bytes, host allocations, modules, streams, events, graphs, contexts. */
void emu_count_live(int64_t *counts) {
  counts[0] = emu_live_allocations();
  counts[1] = emu_live_bytes();
  counts[2] = emu_live_host_allocations();
  counts[3] = emu_length(emu.modules);
  counts[4] = emu_length(emu.streams);
  counts[5] = emu_length(emu.events);
  counts[6] = emu_length(emu.graphs);
  counts[7] = 0;
  for (int i = 0; i < MOST_DEVICES; ++i) counts[7] += emu.contexts[i].retained;
}

/* ---- calls --------------------------------------------------------------------------------- */

static void log_call(const char *name, const char *details) {
  int room = (int)(LOG - log_length);
  int wrote = snprintf(log_text + log_length, (size_t)room, "%s%s%s\n", name,
                       details[0] != '\0' ? " " : "", details);
  if (wrote > 0 && wrote < room) log_length += (size_t)wrote;
}

int emu_begin(const char *name, bool needs_context, const char *details) {
  pthread_mutex_lock(&emu_lock);
  log_call(name, details);
  if (failure.after > 0 && strcmp(failure.name, name) == 0 && --failure.after == 0)
    return failure.code;
  if (!emu.initialized && strcmp(name, "cuInit") != 0 && strcmp(name, "cuDriverGetVersion") != 0)
    return emu_wrong(NOT_INITIALIZED, "%s before cuInit", name);
  if (!needs_context) return SUCCESS;
  if (emu_depth_now == 0) return emu_wrong(INVALID_CONTEXT, "%s without a current context", name);
  return emu_current[emu_depth_now - 1]->fault;
}

int emu_end(int code) {
  pthread_mutex_unlock(&emu_lock);
  return code;
}

emu_stream *emu_stream_of(void *handle) {
  /* 0, and the names of the default streams. */
  if ((uintptr_t)handle <= 2) return &emu_current[emu_depth_now - 1]->default_stream;
  return emu_has(emu.streams, handle) ? handle : NULL;
}

int emu_wait(emu_stream *stream) {
  emu_context *own = emu_current[emu_depth_now - 1];
  if (stream->capturing) return emu_wrong(CAPTURE_UNSUPPORTED, "a wait while a graph is recorded");
  int code = emu_drain(&own->default_stream);
  if (code == SUCCESS && stream != NULL) code = emu_drain(stream);
  if (stream == &own->default_stream)
    for (emu_list *each = emu.streams; each != NULL && code == SUCCESS; each = each->next)
      if (!((emu_stream *)each->item)->capturing) code = emu_drain(each->item);
  own->fault = code;
  return code;
}

int emu_wait_for_all(void) { return emu_wait(&emu_current[emu_depth_now - 1]->default_stream); }
