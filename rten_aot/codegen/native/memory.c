/* Memory: blocks that grow, the arena of a run, and the placement of workspace buffers. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime.h"

enum { HUGE_PAGE = 2 << 20 };

/* Sizes beyond this are refused before they meet arithmetic that could overflow. */
static const int64_t max_bytes = sizeof(size_t) == 8 ? (int64_t)1 << 62 : (int64_t)1 << 30;

static int64_t round_up(int64_t bytes) {
  return (bytes + RTEN_ALIGNMENT - 1) & ~(int64_t)(RTEN_ALIGNMENT - 1);
}

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
  if (bytes < 0 || bytes > max_bytes) return false;
  size_t wanted = (size_t)round_up(bytes > 0 ? bytes : 1);
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
  if (!rten_reserve(block, (int64_t)(bytes > FIRST_BLOCK ? bytes : FIRST_BLOCK))) return false;
  arena->num_blocks += 1;
  arena->used = 0;
  return true;
}

void *rten_arena_alloc(rten_arena *arena, int64_t bytes) {
  if (bytes < 0 || bytes > max_bytes) return NULL;
  size_t wanted = (size_t)round_up(bytes > 0 ? bytes : 1);
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
  for (int32_t i = 0; i < arena->num_blocks; ++i) rten_release(&arena->blocks[i]);
  arena->num_blocks = 0;
  (void)arena_grow(arena, total);
}

void rten_arena_free(rten_arena *arena) {
  for (int32_t i = 0; i < arena->num_blocks; ++i) rten_release(&arena->blocks[i]);
  free(arena->blocks);
  *arena = (rten_arena){NULL, 0, 0, 0};
}

typedef struct {
  int64_t size;
  int32_t index;
} sized;

typedef struct {
  int64_t start;
  int64_t end;
  int32_t index;
} placed;

static int by_size_descending(const void *left, const void *right) {
  const sized *a = left, *b = right;
  if (a->size != b->size) return a->size > b->size ? -1 : 1;
  return a->index < b->index ? -1 : 1;
}

size_t rten_placement_bytes(int32_t num_buffers) {
  return (size_t)num_buffers * (sizeof(sized) + sizeof(placed));
}

/* The same greedy algorithm as the compiler's plan for static sizes: largest first, each at the
 * lowest offset that is free while it lives. */
int64_t rten_place(const rten_buffer_spec *buffers, const int64_t *sizes, int32_t num_buffers,
                   int64_t *offsets, void *scratch) {
  placed *taken = scratch; /* by start */
  sized *order = (sized *)(taken + num_buffers);
  int32_t num_taken = 0;
  int64_t total = 0;
  for (int32_t i = 0; i < num_buffers; ++i) {
    if (sizes[i] < 0 || sizes[i] > max_bytes) return -1;
    order[i] = (sized){round_up(sizes[i]), i};
  }
  qsort(order, (size_t)num_buffers, sizeof *order, by_size_descending);
  for (int32_t k = 0; k < num_buffers; ++k) {
    int64_t size = order[k].size, start = 0;
    const rten_buffer_spec *buffer = &buffers[order[k].index];
    if (size > 0) {
      for (int32_t i = 0; i < num_taken && start + size > taken[i].start; ++i) {
        const rten_buffer_spec *other = &buffers[taken[i].index];
        if (other->first > buffer->last || buffer->first > other->last) continue;
        if (taken[i].end > start) start = taken[i].end;
      }
      if (start > max_bytes - size) return -1;
      int32_t at = num_taken++;
      for (; at > 0 && taken[at - 1].start > start; --at) taken[at] = taken[at - 1];
      taken[at] = (placed){start, start + size, order[k].index};
      if (start + size > total) total = start + size;
    }
    offsets[order[k].index] = start;
  }
  return total;
}

bool rten_tensor_bytes(const int64_t *dims, int32_t ndim, int bits, int64_t *bytes) {
  int64_t product = bits / 8;
  bool empty = false;
  for (int32_t i = 0; i < ndim; ++i) {
    if (dims[i] < 0) return false;
    if (dims[i] == 0) empty = true;
  }
  for (int32_t i = 0; i < ndim && !empty; ++i)
    if (__builtin_mul_overflow(product, dims[i], &product) || product > max_bytes) return false;
  *bytes = empty ? 0 : product;
  return true;
}
