/* The threads of a block as fibers: one runs until it returns or waits, then the next one. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "emulator.h"

enum { MAX_THREADS = 1024, WARP = 32, STACK = 1 << 17, GUARD = 1 << 12, MAX_SHARED = 232448 };

typedef enum { NEW, READY, AT_BARRIER, AT_EXCHANGE, DONE } status;

typedef struct {
  status status;
  void *saved;
  emu_dim3 thread;
  int line; /* where it waits */
  emu_kind kind;
  unsigned mask;
  int source;
  uint64_t value;
} fiber;

emu_state emu_now;

static fiber fibers[MAX_THREADS];
static char *stacks[MAX_THREADS];
static int num_stacks; /* in use */
static int count, done, waiting, current, next_new;
static const emu_launch *launch;
static void *scheduler;
static sigjmp_buf leave;
static volatile sig_atomic_t running;
static char *shared_memory; /* ends where it must not be used */

void emu_switch(void **save, void *load);
void emu_first(void);
#if defined(__x86_64__)
__asm__(
    ".text\n.globl emu_switch\n.hidden emu_switch\n.type emu_switch,@function\nemu_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n");
static void *fresh(char *top, void (*entry)(void)) {
  void **sp = (void **)top;
  *--sp = NULL; /* where entry would return to; keeps the alignment of a call */
  *--sp = (void *)entry;
  for (int i = 0; i < 6; ++i) *--sp = NULL;
  return sp;
}
#elif defined(__aarch64__)
__asm__(
    ".text\n.globl emu_switch\n.hidden emu_switch\n.type emu_switch,@function\nemu_switch:\n"
    "  sub sp, sp, #176\n"
    "  stp x19, x20, [sp, #0]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n"
    "  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
    "  ldp x19, x20, [sp, #0]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n"
    "  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #176\n  ret\n");
static void *fresh(char *top, void (*entry)(void)) {
  char *sp = top - 176;
  memset(sp, 0, 176);
  ((void **)sp)[11] = (void *)entry; /* x30 */
  return sp;
}
#else
#error "the emulator has no switch of fibers for this machine"
#endif

/* ---- faults -------------------------------------------------------------------------------- */

static void say(const char *text) {
  emu_dim3 t = emu_now.thread, b = emu_now.block;
  fprintf(stderr, "emulator: kernel %s, block (%u, %u, %u), thread (%u, %u, %u): %s\n",
          launch->kernel->name, b.x, b.y, b.z, t.x, t.y, t.z, text);
}

void emu_fault(const char *text) {
  say(text);
  siglongjmp(leave, LAUNCH_FAILED);
}

static struct sigaction before[NSIG];

static void on_signal(int signal, siginfo_t *info, void *context) {
  if (!running) { /* not ours: as it would have been */
    sigaction(signal, &before[signal], NULL);
    (void)context;
    return;
  }
  char text[200];
  if (signal == SIGSEGV || signal == SIGBUS) {
    if (info->si_code == SI_KERNEL) { /* the processor does not say where */
      say("uses a vector at a misaligned address, or a wild address");
      siglongjmp(leave, MISALIGNED_ADDRESS);
    }
    emu_describe_fault((uintptr_t)info->si_addr, text, sizeof text);
    say(text);
    siglongjmp(leave, ILLEGAL_ADDRESS);
  }
  say(signal == SIGFPE ? "division by zero"
                       : "an index out of an array, a division by zero, or a misaligned address");
  siglongjmp(leave, LAUNCH_FAILED);
}

static void watch(bool on) {
  static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE};
  static char stack[1 << 16];
  static stack_t old;
  if (on) {
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&own, &old);
  }
  for (size_t i = 0; i < sizeof signals / sizeof *signals; ++i) {
    struct sigaction action = {.sa_sigaction = on_signal,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    if (on)
      sigaction(signals[i], &action, &before[signals[i]]);
    else
      sigaction(signals[i], &before[signals[i]], NULL);
  }
  if (!on) sigaltstack(&old, NULL);
  running = on;
}

/* ---- scheduling ---------------------------------------------------------------------------- */

/* Results must be the same whichever way round threads and blocks run. */
bool emu_backward;

static int in_turn(int position) { return emu_backward ? count - 1 - position : position; }

static void enter(int index) {
  current = index;
  emu_now.thread = fibers[index].thread;
  emu_now.lane = index % WARP;
}

static void *chosen(void);
static void lane_returned(int index);

/* Runs new threads on this stack, one after another, as long as they do not wait. */
static void entry(void) {
  for (;;) {
    launch->kernel->invoke(launch->arguments);
    fibers[current].status = DONE;
    done += 1;
    lane_returned(current);
    if (next_new == count) break;
    enter(in_turn(next_new++));
  }
  void *unused;
  emu_switch(&unused, chosen());
}

static char *new_stack(void) {
  if (stacks[num_stacks] == NULL) {
    char *memory = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) abort();
    mprotect(memory, GUARD, PROT_NONE);
    stacks[num_stacks] = memory;
  }
  return stacks[num_stacks];
}

/* The thread after this one that can go on; the scheduler's stack if there is none. */
static void *chosen(void) {
  if (next_new < count) {
    char *stack = new_stack();
    num_stacks += 1;
    enter(in_turn(next_new++));
    return fresh(stack + STACK, entry);
  }
  for (int i = 1; i <= count; ++i) {
    int index = current + (emu_backward ? count - i : i);
    if (index >= count) index -= count;
    if (fibers[index].status == READY) {
      enter(index);
      return fibers[index].saved;
    }
  }
  return scheduler;
}

static void wait_here(void) {
  fiber *own = &fibers[current];
  void *next = chosen();
  if (&fibers[current] != own || own->status != READY) emu_switch(&own->saved, next);
}

void emu_barrier(int line) {
  fiber *own = &fibers[current];
  own->status = AT_BARRIER;
  own->line = line;
  waiting += 1;
  if (waiting == count) {
    for (int i = 0; i < count; ++i) {
      if (fibers[i].line != line) {
        char text[120];
        snprintf(text, sizeof text,
                 "waits at the barrier of line %d, but other threads at that of line %d", line,
                 fibers[i].line);
        emu_fault(text);
      }
      fibers[i].status = READY;
    }
    waiting = 0;
    current = in_turn(count - 1); /* so that the first one is next */
    void *next = chosen();
    if (&fibers[current] != own) emu_switch(&own->saved, next);
    return;
  }
  wait_here();
}

/* The lanes of the mask if all of them have come that have not returned, else 0. */
static unsigned arrived(int first, unsigned mask, int line) {
  unsigned lanes = 0;
  for (int other = 0; other < WARP && first + other < count; ++other) {
    const fiber *each = &fibers[first + other];
    if (!(mask >> other & 1) || each->status == DONE) continue;
    if (each->status != AT_EXCHANGE) return 0;
    if (each->mask != mask || each->line != line)
      emu_fault("exchanges with lanes that are at another line, or by another mask");
    lanes |= 1u << other;
  }
  return lanes;
}

/* All lanes have come: each gets its answer in place of its value. */
static void exchange(int first, unsigned lanes) {
  uint64_t values[WARP], votes = 0;
  for (int lane = 0; lane < WARP; ++lane) {
    if (!(lanes >> lane & 1)) continue;
    values[lane] = fibers[first + lane].value;
    if (values[lane] != 0) votes |= UINT64_C(1) << lane;
  }
  for (int lane = 0; lane < WARP; ++lane) {
    if (!(lanes >> lane & 1)) continue;
    fiber *each = &fibers[first + lane];
    bool there = each->source >= 0 && each->source < WARP && (lanes >> each->source & 1);
    /* What a lane gives that takes no part is not defined. */
    each->value = each->kind == EMU_VOTE ? votes : there ? values[each->source] : ~UINT64_C(0);
    each->status = READY;
  }
}

uint64_t emu_exchange(emu_kind kind, unsigned mask, uint64_t value, int source, int line) {
  fiber *own = &fibers[current];
  int first = current / WARP * WARP, lane = current % WARP;
  if (!(mask >> lane & 1)) emu_fault("exchanges with lanes by a mask that it is not in");
  own->status = AT_EXCHANGE;
  own->line = line;
  own->kind = kind;
  own->mask = mask;
  own->value = value;
  own->source = source;
  unsigned lanes = arrived(first, mask, line);
  if (lanes != 0)
    exchange(first, lanes);
  else
    wait_here();
  return own->value;
}

void emu_gather(const void *own, unsigned bytes, void *all, int line) {
  static char given[MAX_THREADS][64]; /* by thread, until the warp meets again */
  memcpy(given[current], own, bytes);
  emu_exchange(EMU_SYNC, ~0u, 0, emu_now.lane, line);
  int first = current / WARP * WARP;
  if (first + WARP > count) emu_fault("a product of matrices needs whole warps");
  for (int lane = 0; lane < WARP; ++lane)
    memcpy((char *)all + (size_t)lane * bytes, given[first + lane], bytes);
  emu_exchange(EMU_SYNC, ~0u, 0, emu_now.lane, line);
}

/* Those that wait need not wait for it any more. */
static void lane_returned(int index) {
  int first = index / WARP * WARP;
  for (int other = first; other < first + WARP && other < count; ++other) {
    const fiber *each = &fibers[other];
    if (each->status != AT_EXCHANGE || !(each->mask >> index % WARP & 1)) continue;
    unsigned lanes = arrived(first, each->mask, each->line);
    if (lanes != 0) exchange(first, lanes);
    return;
  }
}

/* ---- launches ------------------------------------------------------------------------------ */

static void stuck(void) {
  for (int i = 0; i < count; ++i) {
    if (fibers[i].status == DONE) continue;
    char text[120];
    enter(i);
    snprintf(text, sizeof text, "waits at line %d for threads that never come there (%d of %d %s)",
             fibers[i].line, done, count, "have returned");
    emu_fault(text);
  }
}

static void run_block(void) {
  const emu_kernel *kernel = launch->kernel;
  /* What is not written must not be read: as floats, NaN. */
  memset(emu_now.shared, 0xff, launch->shared_bytes);
  if (kernel->shared != NULL)
    memset(kernel->shared, 0xff, (size_t)(kernel->shared_end - kernel->shared));
  done = waiting = num_stacks = next_new = 0;
  for (int i = 0; i < count; ++i) fibers[i].status = NEW;
  current = in_turn(0);
  void *first = chosen();
  emu_switch(&scheduler, first);
  if (done < count) stuck();
}

static char *shared_end(void) {
  enum { ROOM = (MAX_SHARED + GUARD - 1) / GUARD * GUARD };
  if (shared_memory == NULL) {
    shared_memory =
        mmap(NULL, ROOM + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (shared_memory == MAP_FAILED) abort();
    mprotect(shared_memory + ROOM, GUARD, PROT_NONE);
  }
  return shared_memory + ROOM;
}

int emu_run(const emu_launch *work) {
  launch = work;
  emu_dim3 block = work->block, grid = work->grid;
  count = (int)(block.x * block.y * block.z);
  emu_now.block_size = block;
  emu_now.grid_size = grid;
  emu_now.shared = shared_end() - ((work->shared_bytes + 15u) & ~15u);
  for (int i = 0; i < count; ++i) {
    unsigned n = (unsigned)i;
    fibers[i].thread = (emu_dim3){n % block.x, n / block.x % block.y, n / block.x / block.y};
  }
  int code = sigsetjmp(leave, 1);
  if (code == 0) {
    watch(true);
    for (unsigned z = 0; z < grid.z; ++z)
      for (unsigned y = 0; y < grid.y; ++y)
        for (unsigned x = 0; x < grid.x; ++x) {
          emu_now.block = emu_backward ? (emu_dim3){grid.x - 1 - x, grid.y - 1 - y, grid.z - 1 - z}
                                       : (emu_dim3){x, y, z};
          run_block();
        }
  }
  watch(false);
  return code;
}
