/* What the files of the emulator share: a libcuda.so.1 without a GPU, for tests.
 *
 * An image is the text of CUDA C itself. It is compiled for the CPU (modules.c), its threads run as
 * fibers, block after block (fibers.c). Addresses of device memory cannot be used by the host
 * (memory.c); work of a stream is done no sooner than someone waits for it (streams.c). Every wrong
 * use of the interface is an error, and the text of errors goes to stderr. */
#ifndef EMULATOR_H_
#define EMULATOR_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "threads.h"

enum {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  ILLEGAL_ADDRESS = 700,
  MISALIGNED_ADDRESS = 716,
  LAUNCH_FAILED = 719,
  CAPTURE_UNSUPPORTED = 900
};

typedef struct emu_module emu_module;
typedef struct emu_stream emu_stream;

/* api.c: says on stderr what is wrong, and returns the code. */
int emu_wrong(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
extern int64_t emu_memory_size;

/* memory.c: sizes in bytes. An address that the host gets is never that of the memory itself. */
int emu_allocate(uintptr_t *address, size_t bytes);
extern size_t emu_alignment; /* of allocations, which end where memory does but for that */
int emu_free(uintptr_t address);
void emu_free_all(void);
bool emu_is_device(uintptr_t address);
/* The memory behind an address if so many bytes of one allocation lie there, else NULL. */
void *emu_memory(uintptr_t address, size_t bytes);
/* What a kernel gets for an address: the memory behind it, or what nobody can use. */
uintptr_t emu_translated(uintptr_t address);
/* "3 bytes after an allocation of 16 bytes" */
void emu_describe_fault(uintptr_t real, char *text, size_t room);
/* An address for a variable of an image, until those of its owner are forgotten. */
int emu_alias(uintptr_t *address, void *real, size_t bytes, const void *owner);
void emu_forget_aliases(const void *owner);
int64_t emu_live_allocations(void);
int64_t emu_live_bytes(void);
int emu_allocate_host(void **address, size_t bytes);
int emu_free_host(void *address);
void emu_free_all_host(void);
bool emu_is_registered(const void *address);
int64_t emu_live_host_allocations(void);

/* modules.c */
struct emu_module {
  void *library;
  const emu_kernel *kernels;
};
int emu_load(emu_module **module, const char *text);
int emu_global(const emu_module *module, const char *name, uintptr_t *address, size_t *bytes);
void emu_unload(emu_module *module);

/* fibers.c: runs a launch to its end. `arguments` are those of the kernel, addresses translated. */
typedef struct {
  const emu_kernel *kernel;
  emu_dim3 grid;
  emu_dim3 block;
  unsigned shared_bytes;
  void **arguments;
} emu_launch;
int emu_run(const emu_launch *launch);
extern bool emu_backward;

/* streams.c: work of a stream, done when someone waits. What it needs of the host's memory is
 * copied when it is asked for, unless the driver knows that memory. */
struct emu_stream {
  bool capturing;
  struct emu_work *first, **last;
};
void emu_stream_init(emu_stream *stream);
int emu_ask_copy(emu_stream *stream, void *to, const void *from, size_t bytes, bool take_now);
int emu_ask_fill(emu_stream *stream, void *to, int value, size_t bytes);
int emu_ask_launch(emu_stream *stream, const emu_launch *launch);
int emu_ask_event(emu_stream *stream, double *time);
/* Moves what was asked for to another stream, or asks for all of it once more. */
void emu_move(emu_stream *to, emu_stream *from);
void emu_repeat(emu_stream *to, const emu_stream *from);
/* Does all of it; the code of the first fault, after which the device does nothing any more. */
int emu_drain(emu_stream *stream);
void emu_cancel(emu_stream *stream); /* does none of it */

#endif /* EMULATOR_H_ */
