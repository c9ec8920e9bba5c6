/* What the functions of the driver share: what exists, and how each call begins and ends. */
#ifndef EMULATOR_API_H_
#define EMULATOR_API_H_

#include <pthread.h>

#include "emulator.h"

enum { MOST_DEVICES = 8, MOST_CONTEXTS = 16, NAME = 64 };

typedef struct {
  int retained;
  emu_stream default_stream;
  int fault; /* of a kernel: the device does nothing any more */
} emu_context;

typedef struct {
  emu_stream *stream; /* NULL: not recorded */
  double time;
} emu_event;

typedef struct {
  emu_module *module;
  const emu_kernel *kernel;
  int dynamic_shared; /* that was asked for */
} emu_function;

typedef struct emu_list emu_list;
struct emu_list { /* what exists of one kind */
  emu_list *next;
  void *item;
};
void emu_add(emu_list **all, void *item);
bool emu_has(const emu_list *all, const void *item);
bool emu_drop(emu_list **all, const void *item);
void emu_free_item(emu_list **all); /* the first one */

typedef struct {
  bool initialized;
  int num_devices, capabilities[MOST_DEVICES];
  emu_context contexts[MOST_DEVICES];
  emu_list *modules, *functions, *streams, *events, *graphs;
} emu_driver;
extern emu_driver emu;

/* The contexts of the calling thread. */
extern _Thread_local emu_context *emu_current[MOST_CONTEXTS];
extern _Thread_local int emu_depth_now;

extern pthread_mutex_t emu_lock; /* from the begin of a call to its end */
int emu_begin(const char *name, bool needs_context, const char *details);
int emu_end(int code);

/* Declares `code`, which is what the function returns. */
#define BEGIN(name, needs_context, details)            \
  int code = emu_begin(#name, needs_context, details); \
  if (code != SUCCESS) return emu_end(code)

/* A stream by its handle, or NULL. */
emu_stream *emu_stream_of(void *handle);
/* The default stream waits for the others, and they for it. */
int emu_wait(emu_stream *stream);
int emu_wait_for_all(void);

#endif /* EMULATOR_API_H_ */
