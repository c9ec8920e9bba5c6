/* Memory: blocks that grow, and the arena of a run. */
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "runtime.h"

enum { HUGE_PAGE = 2 << 20 };

static void *aligned(size_t bytes) {
  void *data = NULL;
  bool large = bytes >= 2 * (size_t)HUGE_PAGE;
  if (posix_memalign(&data, large ? HUGE_PAGE : RTEN_ALIGNMENT, bytes) != 0) return NULL;
#ifdef MADV_HUGEPAGE
  /* Fewer TLB misses in large intermediate tensors; a refusal costs nothing. */
  if (large) madvise(data, bytes & ~((size_t)HUGE_PAGE - 1), MADV_HUGEPAGE);
#endif
  return data;
}

bool rten_reserve(rten_block *block, int64_t bytes) {
  if (bytes < 0 || bytes > RTEN_MAX_BYTES) return false;
  size_t wanted = (size_t)rten_round_up(bytes > 0 ? bytes : 1);
  if (wanted <= block->bytes) return true;
  rten_release(block);
  block->data = aligned(wanted);
  block->bytes = block->data != NULL ? wanted : 0;
  return block->data != NULL;
}

void rten_release(rten_block *block) {
  free(block->data);
  block->data = NULL;
  block->bytes = 0;
}

static bool arena_grow(rten_arena *arena, size_t bytes) {
  enum { FIRST_BLOCK = 1 << 16 };
  if (arena->num_blocks == arena->capacity) {
    int32_t capacity = arena->capacity > 0 ? 2 * arena->capacity : 8;
    rten_block *blocks = realloc(arena->blocks, (size_t)capacity * sizeof *blocks);
    if (blocks == NULL) return false;
    arena->blocks = blocks;
    arena->capacity = capacity;
  }
  rten_block *block = &arena->blocks[arena->num_blocks];
  *block = (rten_block){NULL, 0};
  if (!rten_reserve_in(arena, block, (int64_t)(bytes > FIRST_BLOCK ? bytes : FIRST_BLOCK))) return false;
  arena->num_blocks += 1;
  arena->used = 0;
  return true;
}

void *rten_arena_alloc(rten_arena *arena, int64_t bytes) {
  if (bytes < 0 || bytes > RTEN_MAX_BYTES) return NULL;
  size_t wanted = (size_t)rten_round_up(bytes > 0 ? bytes : 1);
  rten_block *last = arena->num_blocks > 0 ? &arena->blocks[arena->num_blocks - 1] : NULL;
  if (last == NULL || last->bytes - arena->used < wanted) {
    if (!arena_grow(arena, wanted)) return NULL;
    last = &arena->blocks[arena->num_blocks - 1];
  }
  void *data = (char *)last->data + arena->used;
  arena->used += wanted;
  return data;
}

/* Several blocks become one of their total size, so that a model in steady state allocates
 * nothing. When that fails the next run starts from nothing. */
void rten_arena_reset(rten_arena *arena) {
  arena->used = 0;
  if (arena->num_blocks <= 1) return;
  size_t total = 0;
  for (int32_t i = 0; i < arena->num_blocks; ++i) total += arena->blocks[i].bytes;
  for (int32_t i = 0; i < arena->num_blocks; ++i) rten_release_in(arena, &arena->blocks[i]);
  arena->num_blocks = 0;
  (void)arena_grow(arena, total);
}

void rten_arena_free(rten_arena *arena) {
  for (int32_t i = 0; i < arena->num_blocks; ++i) rten_release_in(arena, &arena->blocks[i]);
  free(arena->blocks);
  arena->blocks = NULL;
  arena->num_blocks = arena->capacity = 0;
  arena->used = 0;
}

int32_t rten_aot_map(const void *data, int64_t bytes) {
#if defined(__linux__) && !defined(RTEN_CUDA)
  enum { POPULATE_READ = 22 }; /* MADV_POPULATE_READ, which glibc 2.17 does not know */
  if (rten_current->runs > 1) return 0;
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  uintptr_t begin = (uintptr_t)data & ~(page - 1);
  /* Kernels before 5.14 refuse; the pages are then mapped as they are read. */
  madvise((void *)begin, (uintptr_t)data + (uintptr_t)bytes - begin, POPULATE_READ);
#else
  (void)data, (void)bytes;
#endif
  return 0;
}
