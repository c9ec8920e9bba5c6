/* Work that was asked for and not done yet. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "emulator.h"

typedef enum { COPY, FILL, LAUNCH, EVENT } work_kind;

typedef struct emu_work emu_work;
struct emu_work {
  emu_work *next;
  work_kind kind;
  void *to;
  const void *from;
  void *taken; /* a copy of `from` */
  size_t bytes;
  int value;
  emu_launch launch;
  double *time;
  bool borrowed; /* its memory is that of the work that it repeats */
};

void emu_stream_init(emu_stream *stream) {
  stream->first = NULL;
  stream->last = &stream->first;
}

static emu_work *added(emu_stream *stream, work_kind kind) {
  emu_work *work = calloc(1, sizeof *work);
  if (work == NULL) abort();
  work->kind = kind;
  *stream->last = work;
  stream->last = &work->next;
  return work;
}

int emu_ask_copy(emu_stream *stream, void *to, const void *from, size_t bytes, bool take_now) {
  emu_work *work = added(stream, COPY);
  work->to = to;
  work->from = from;
  work->bytes = bytes;
  if (take_now) {
    work->taken = malloc(bytes);
    if (work->taken == NULL) abort();
    work->from = memcpy(work->taken, from, bytes);
  }
  return SUCCESS;
}

int emu_ask_fill(emu_stream *stream, void *to, int value, size_t bytes) {
  emu_work *work = added(stream, FILL);
  work->to = to;
  work->value = value;
  work->bytes = bytes;
  return SUCCESS;
}

/* The values of all arguments lie one after another behind the pointers to them. */
int emu_ask_launch(emu_stream *stream, const emu_launch *launch) {
  emu_work *work = added(stream, LAUNCH);
  const emu_kernel *kernel = launch->kernel;
  size_t count = (size_t)kernel->num_arguments, room = 0;
  enum { ALIGNMENT = 16 };
  for (size_t i = 0; i < count; ++i)
    room += (kernel->sizes[i] + ALIGNMENT - 1u) & ~(ALIGNMENT - 1u);
  void **arguments =
      aligned_alloc(ALIGNMENT, (count * sizeof(void *) + 15 & ~15u) + room + ALIGNMENT);
  if (arguments == NULL) abort();
  char *value = (char *)arguments + (count * sizeof(void *) + 15 & ~15u);
  for (size_t i = 0; i < count; ++i) {
    memcpy(value, launch->arguments[i], kernel->sizes[i]);
    if (kernel->pointers[i]) {
      uintptr_t address;
      memcpy(&address, value, sizeof address);
      address = emu_translated(address);
      memcpy(value, &address, sizeof address);
    }
    arguments[i] = value;
    value += (kernel->sizes[i] + ALIGNMENT - 1u) & ~(ALIGNMENT - 1u);
  }
  work->launch = *launch;
  work->launch.arguments = arguments;
  return SUCCESS;
}

int emu_ask_event(emu_stream *stream, double *time) {
  added(stream, EVENT)->time = time;
  return SUCCESS;
}

void emu_move(emu_stream *to, emu_stream *from) {
  *to->last = from->first;
  if (from->first != NULL) to->last = from->last;
  emu_stream_init(from);
}

void emu_repeat(emu_stream *to, const emu_stream *from) {
  for (const emu_work *each = from->first; each != NULL; each = each->next) {
    emu_work *work = added(to, each->kind);
    emu_work *next = work->next;
    *work = *each;
    work->next = next;
    work->borrowed = true;
  }
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

static int do_work(const emu_work *work) {
  switch (work->kind) {
    case COPY:
      memmove(work->to, work->from, work->bytes);
      return SUCCESS;
    case FILL:
      memset(work->to, work->value, work->bytes);
      return SUCCESS;
    case EVENT:
      *work->time = now();
      return SUCCESS;
    case LAUNCH:
      return emu_run(&work->launch);
  }
  return INVALID_VALUE;
}

static int drained(emu_stream *stream, int code) {
  while (stream->first != NULL) {
    emu_work *work = stream->first;
    if (code == SUCCESS) code = do_work(work);
    stream->first = work->next;
    if (!work->borrowed) {
      free(work->taken);
      free(work->launch.arguments);
    }
    free(work);
  }
  stream->last = &stream->first;
  return code;
}

int emu_drain(emu_stream *stream) { return drained(stream, SUCCESS); }

void emu_cancel(emu_stream *stream) { (void)drained(stream, LAUNCH_FAILED); }
