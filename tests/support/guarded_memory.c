/* What native/memory.c does, for tests: every block lies alone, has exactly the bytes that were
 * asked for, and is never used twice. RTEN_GUARD in the environment says where it lies:
 *
 *   end    right before a page that cannot be accessed (the default)
 *   start  right behind such a page
 *   heap   in the C library's heap, for tools that watch it
 *
 * Between pages, new memory holds bytes of 0xFF: NaN, or -1.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime.h"

static bool lies(const char *where) {
  const char *wanted = getenv("RTEN_GUARD");
  return strcmp(wanted != NULL ? wanted : "end", where) == 0;
}

static size_t whole_pages(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

static void *between_pages(size_t bytes) {
  size_t page = whole_pages(1), middle = whole_pages(bytes);
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  char *all = mmap(NULL, page + middle + page, PROT_NONE, flags, -1, 0);
  if (all == MAP_FAILED) return NULL;
  if (middle > 0 && mprotect(all + page, middle, PROT_READ | PROT_WRITE) != 0) return NULL;
  char *data = all + page + (lies("start") ? 0 : middle - bytes);
  return memset(data, 0xFF, bytes);
}

bool rten_reserve(rten_block *block, int64_t bytes) {
  rten_release(block);
  if (bytes < 0 || bytes > RTEN_MAX_BYTES) return false;
  block->bytes = (size_t)bytes;
  block->data = lies("heap") ? malloc(block->bytes) : between_pages(block->bytes);
  return block->data != NULL;
}

void rten_release(rten_block *block) {
  if (block->data != NULL && lies("heap")) {
    free(block->data);
  } else if (block->data != NULL) {
    size_t page = whole_pages(1), before = (uintptr_t)block->data % page;
    munmap((char *)block->data - before - page, page + whole_pages(before + block->bytes) + page);
  }
  *block = (rten_block){NULL, 0};
}

void *rten_arena_alloc(rten_arena *arena, int64_t bytes) {
  if (arena->num_blocks == arena->capacity) {
    int32_t capacity = arena->capacity > 0 ? 2 * arena->capacity : 8;
    rten_block *blocks = realloc(arena->blocks, (size_t)capacity * sizeof *blocks);
    if (blocks == NULL) return NULL;
    arena->blocks = blocks;
    arena->capacity = capacity;
  }
  rten_block *block = &arena->blocks[arena->num_blocks];
  *block = (rten_block){NULL, 0};
  if (!rten_reserve_in(arena, block, bytes)) return NULL;
  arena->num_blocks += 1;
  return block->data;
}

void rten_arena_reset(rten_arena *arena) {
  for (int32_t i = 0; i < arena->num_blocks; ++i) rten_release_in(arena, &arena->blocks[i]);
  arena->num_blocks = 0;
}

void rten_arena_free(rten_arena *arena) {
  rten_arena_reset(arena);
  free(arena->blocks);
  arena->blocks = NULL;
  arena->capacity = 0;
}

/* Kernels read copies of the weights, which are in memory already. */
int32_t rten_aot_map(const void *data, int64_t bytes) {
  (void)data, (void)bytes;
  return 0;
}
