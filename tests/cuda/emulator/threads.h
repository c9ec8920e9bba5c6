/* What a compiled image and the emulator know of each other. C and C++. */
#ifndef EMULATOR_THREADS_H_
#define EMULATOR_THREADS_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  unsigned x, y, z;
} emu_dim3;

/* The thread that runs now. */
typedef struct {
  emu_dim3 thread, block, block_size, grid_size;
  void *shared; /* the dynamic part, 16-byte aligned */
  int lane;
} emu_state;

extern emu_state emu_now;

/* What the lanes of a warp give each other. */
typedef enum { EMU_SHUFFLE, EMU_VOTE, EMU_SYNC } emu_kind;

/* Waits for all threads of the block, or for the lanes of the mask, at this line of the text. The
 * second gives the value of lane `source` or, for a vote, the lanes whose value is not 0. */
void emu_barrier(int line);
uint64_t emu_exchange(emu_kind kind, unsigned mask, uint64_t value, int source, int line);
/* Copies what every lane of the warp gives, one after another, to all of them; 64 bytes at most. */
void emu_gather(const void *own, unsigned bytes, void *all, int line);
/* Ends the launch as a fault of this thread. */
void emu_fault(const char *text) __attribute__((noreturn));

typedef struct {
  const char *name;
  void (*invoke)(void **arguments);
  int num_arguments;
  const unsigned char *sizes;    /* in bytes */
  const unsigned char *pointers; /* 1 for an address */
  int max_threads;               /* of a block, by its launch bounds; 0 = not said */
  char *shared, *shared_end;     /* static shared memory */
} emu_kernel;

#ifdef __cplusplus
}
#endif
#endif /* EMULATOR_THREADS_H_ */
