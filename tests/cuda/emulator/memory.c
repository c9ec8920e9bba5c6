/* Device memory. What the host gets are addresses in a range that cannot be used; the memory itself
 * is at a fixed distance. Each allocation ends before a page that cannot be used either, and
 * addresses are never used again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "emulator.h"

enum { PAGE = 1 << 16, POISON = 0xff, CANARY = 0xa5 };
static const size_t RANGE = (size_t)1 << 36;

size_t emu_alignment = 256;

typedef struct allocation allocation;
struct allocation {
  allocation *next;
  uintptr_t address;
  size_t bytes;
  char *pages; /* of the memory itself */
  size_t page_bytes;
  bool freed;
};

/* A variable of an image. */
typedef struct alias alias;
struct alias {
  alias *next;
  uintptr_t address;
  char *real;
  size_t bytes;
  const void *owner;
};
static alias *aliases;

static uintptr_t outside; /* where the range of addresses begins */
static char *inside;
static size_t used;
static allocation *allocations;
static int64_t live_count, live_bytes;

static size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

static bool reserve(void) {
  if (inside != NULL) return true;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void *real = mmap(NULL, RANGE, PROT_NONE, flags, -1, 0);
  void *given = mmap(NULL, RANGE, PROT_NONE, flags, -1, 0);
  if (real == MAP_FAILED || given == MAP_FAILED) return false;
  inside = real;
  outside = (uintptr_t)given;
  return true;
}

int emu_allocate(uintptr_t *address, size_t bytes) {
  if (bytes == 0) return emu_wrong(INVALID_VALUE, "an allocation of 0 bytes");
  size_t whole = rounded(bytes, emu_alignment), page_bytes = rounded(whole, PAGE);
  if (live_bytes + (int64_t)bytes > emu_memory_size) return OUT_OF_MEMORY;
  allocation *made = malloc(sizeof *made);
  if (made == NULL || !reserve() || used + page_bytes + PAGE > RANGE) {
    free(made);
    return OUT_OF_MEMORY;
  }
  used += PAGE;
  char *pages = inside + used;
  if (mprotect(pages, page_bytes, PROT_READ | PROT_WRITE) != 0) {
    free(made);
    return OUT_OF_MEMORY;
  }
  size_t start = page_bytes - whole;
  memset(pages, CANARY, start);
  memset(pages + start, POISON, bytes);
  memset(pages + start + bytes, CANARY, whole - bytes);
  *made = (allocation){allocations, outside + used + start, bytes, pages, page_bytes, false};
  allocations = made;
  used += page_bytes;
  live_count += 1;
  live_bytes += (int64_t)bytes;
  *address = made->address;
  return SUCCESS;
}

static bool is_canary(const char *from, const char *to) {
  for (; from < to; ++from)
    if ((unsigned char)*from != CANARY) return false;
  return true;
}

static void drop(allocation *which) {
  mprotect(which->pages, which->page_bytes, PROT_NONE);
  madvise(which->pages, which->page_bytes, MADV_DONTNEED);
  which->freed = true;
  live_count -= 1;
  live_bytes -= (int64_t)which->bytes;
}

void emu_free_all(void) {
  for (allocation *a = allocations; a != NULL; a = a->next)
    if (!a->freed) drop(a);
}

int emu_free(uintptr_t address) {
  allocation *found = allocations;
  while (found != NULL && found->address != address) found = found->next;
  if (found == NULL || found->freed)
    return emu_wrong(INVALID_VALUE, "cuMemFree of what is not allocated: %p", (void *)address);
  char *start = inside + (address - outside), *end = found->pages + found->page_bytes;
  bool whole = is_canary(found->pages, start) && is_canary(start + found->bytes, end);
  drop(found);
  if (whole) return SUCCESS;
  return emu_wrong(ILLEGAL_ADDRESS, "a kernel wrote beside an allocation of %zu bytes",
                   found->bytes);
}

bool emu_is_device(uintptr_t address) { return address - outside < RANGE && inside != NULL; }

void *emu_memory(uintptr_t address, size_t bytes) {
  for (const allocation *a = allocations; a != NULL; a = a->next)
    if (!a->freed && address >= a->address && address - a->address <= a->bytes &&
        bytes <= a->bytes - (address - a->address))
      return inside + (address - outside);
  for (const alias *a = aliases; a != NULL; a = a->next)
    if (address >= a->address && address - a->address <= a->bytes &&
        bytes <= a->bytes - (address - a->address))
      return a->real + (address - a->address);
  return NULL;
}

int emu_alias(uintptr_t *address, void *real, size_t bytes, const void *owner) {
  alias *made = malloc(sizeof *made);
  if (made == NULL || !reserve()) {
    free(made);
    return OUT_OF_MEMORY;
  }
  *made = (alias){aliases, outside + used, real, bytes, owner};
  aliases = made;
  used += rounded(bytes, PAGE) + PAGE;
  *address = made->address;
  return SUCCESS;
}

void emu_forget_aliases(const void *owner) {
  for (alias **link = &aliases; *link != NULL;) {
    alias *each = *link;
    if (each->owner == owner) {
      *link = each->next;
      free(each);
    } else {
      link = &each->next;
    }
  }
}

uintptr_t emu_translated(uintptr_t address) {
  if (!reserve()) abort();
  return emu_is_device(address) ? (uintptr_t)inside + (address - outside) : outside + RANGE / 2;
}

void emu_describe_fault(uintptr_t real, char *text, size_t room) {
  uintptr_t address = real - (uintptr_t)inside + outside;
  if (emu_is_device(real)) {
    snprintf(text, room, "uses an argument that is no address of the device");
    return;
  }
  if (!emu_is_device(address)) {
    snprintf(text, room, "uses %p, which is not device memory", (void *)real);
    return;
  }
  const allocation *nearest = NULL;
  for (const allocation *a = allocations; a != NULL; a = a->next) {
    if (a->freed && address >= a->address && address < a->address + a->bytes) {
      snprintf(text, room, "uses memory that was freed");
      return;
    }
    if (address >= a->address && (nearest == NULL || a->address > nearest->address)) nearest = a;
  }
  if (nearest != NULL && address - nearest->address < (uintptr_t)nearest->page_bytes + PAGE)
    snprintf(text, room, "uses byte %zu of an allocation of %zu bytes",
             (size_t)(address - nearest->address), nearest->bytes);
  else
    snprintf(text, room, "uses %p, before or far from any allocation", (void *)address);
}

int64_t emu_live_allocations(void) { return live_count; }
int64_t emu_live_bytes(void) { return live_bytes; }

/* ---- memory of the host that the driver knows ---------------------------------------------- */

typedef struct host_block host_block;
struct host_block {
  host_block *next;
  char *data;
  size_t bytes;
};
static host_block *host_blocks;

int emu_allocate_host(void **address, size_t bytes) {
  host_block *made = malloc(sizeof *made);
  if (made == NULL || (made->data = aligned_alloc(PAGE, rounded(bytes, PAGE))) == NULL) {
    free(made);
    return OUT_OF_MEMORY;
  }
  made->bytes = bytes;
  made->next = host_blocks;
  host_blocks = made;
  *address = made->data;
  return SUCCESS;
}

int emu_free_host(void *address) {
  for (host_block **link = &host_blocks; *link != NULL; link = &(*link)->next) {
    host_block *found = *link;
    if (found->data != address) continue;
    *link = found->next;
    free(found->data);
    free(found);
    return SUCCESS;
  }
  return emu_wrong(INVALID_VALUE, "cuMemFreeHost of what is not allocated: %p", address);
}

void emu_free_all_host(void) {
  while (host_blocks != NULL) (void)emu_free_host(host_blocks->data);
}

bool emu_is_registered(const void *address) {
  for (const host_block *b = host_blocks; b != NULL; b = b->next)
    if ((const char *)address >= b->data && (const char *)address < b->data + b->bytes) return true;
  return false;
}

int64_t emu_live_host_allocations(void) {
  int64_t count = 0;
  for (const host_block *b = host_blocks; b != NULL; b = b->next) count += 1;
  return count;
}
