/* The placement of workspace buffers: those that are never in use together may share memory. */
#include <stdlib.h>

#include "runtime.h"

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
    if (sizes[i] < 0 || sizes[i] > RTEN_MAX_BYTES) return -1;
    order[i] = (sized){rten_round_up(sizes[i]), i};
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
      if (start > RTEN_MAX_BYTES - size) return -1;
      int32_t at = num_taken++;
      for (; at > 0 && taken[at - 1].start > start; --at) taken[at] = taken[at - 1];
      taken[at] = (placed){start, start + size, order[k].index};
      if (start + size > total) total = start + size;
    }
    offsets[order[k].index] = start;
  }
  return total;
}
