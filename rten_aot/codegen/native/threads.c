/* How many threads this process can keep busy: affinity, control groups, hyper-threads. */
#ifndef __wasm__ /* which has wasm.c */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime.h"

#ifndef RTEN_ROOT /* tests put a made-up /proc and /sys elsewhere */
#define RTEN_ROOT ""
#endif

typedef struct {
  cpu_set_t *set;
  size_t bytes;
  int count; /* processors it has room for */
} affinity;

static bool read_affinity(affinity *allowed) {
  for (int count = 1024; count <= 1 << 20; count *= 4) {
    *allowed = (affinity){CPU_ALLOC((size_t)count), CPU_ALLOC_SIZE((size_t)count), count};
    if (allowed->set == NULL) return false;
    CPU_ZERO_S(allowed->bytes, allowed->set);
    if (sched_getaffinity(0, allowed->bytes, allowed->set) == 0) return true;
    CPU_FREE(allowed->set);
  }
  return false;
}

static bool read_file(const char *path, char *text, size_t room) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  size_t length = 0;
  ssize_t got;
  while (length < room - 1 && (got = read(file, text + length, room - 1 - length)) > 0)
    length += (size_t)got;
  close(file);
  text[length] = '\0';
  return length > 0;
}

/* Whether a lower processor of the same core is allowed too: list is like "0,4" or "0-1". */
static bool has_lower_sibling(const affinity *allowed, int cpu, const char *list) {
  while (*list >= '0' && *list <= '9') {
    char *end;
    long first = strtol(list, &end, 10), last = first;
    if (*end == '-') last = strtol(end + 1, &end, 10);
    for (long i = first; i <= last && i < cpu; ++i)
      if (i < allowed->count && CPU_ISSET_S((size_t)i, allowed->bytes, allowed->set)) return true;
    list = *end == ',' ? end + 1 : end;
  }
  return false;
}

/* Processors that a CPU quota is worth, rounded up; 0 = no limit. */
static int quota_of(const char *quota_path, const char *period_path) {
  char text[64];
  long long quota, period = 0;
  if (!read_file(quota_path, text, sizeof text)) return 0;
  if (period_path == NULL) { /* version 2: "max 100000" or "150000 100000" */
    if (sscanf(text, "%lld %lld", &quota, &period) != 2) return 0;
  } else {
    char second[64];
    if (sscanf(text, "%lld", &quota) != 1 || !read_file(period_path, second, sizeof second) ||
        sscanf(second, "%lld", &period) != 1)
      return 0;
  }
  if (quota <= 0 || period <= 0) return 0;
  long long processors = (quota + period - 1) / period;
  return processors > RTEN_MAX_THREADS ? RTEN_MAX_THREADS : (int)processors;
}

static int lesser(int a, int b) { return a == 0 || (b != 0 && b < a) ? b : a; }

/* The tightest quota of a group and its parents. Inside containers the group's path may not be
 * visible; the mount's root then stands for it. */
static int quota_under(const char *mount, const char *group, bool version_1) {
  char folder[512], quota[600], period[600];
  int limit = 0;
  if (snprintf(folder, sizeof folder, "%s%s", mount, strcmp(group, "/") == 0 ? "" : group) >=
      (int)sizeof folder)
    return 0;
  size_t root = strlen(mount);
  for (;;) {
    if (version_1) {
      snprintf(quota, sizeof quota, "%s/cpu.cfs_quota_us", folder);
      snprintf(period, sizeof period, "%s/cpu.cfs_period_us", folder);
    } else {
      snprintf(quota, sizeof quota, "%s/cpu.max", folder);
    }
    limit = lesser(limit, quota_of(quota, version_1 ? period : NULL));
    char *slash = strrchr(folder, '/');
    if (strlen(folder) <= root || slash == NULL) return limit;
    *slash = '\0';
  }
}

static bool lists_cpu(const char *controllers) {
  const char *at = controllers;
  while ((at = strstr(at, "cpu")) != NULL) {
    bool begins = at == controllers || at[-1] == ',';
    if (begins && (at[3] == ',' || at[3] == '\0')) return true;
    at += 3;
  }
  return false;
}

/* Lines of /proc/self/cgroup are "id:controllers:path". */
static int cgroup_quota(void) {
  char text[4096];
  int limit = 0;
  if (!read_file(RTEN_ROOT "/proc/self/cgroup", text, sizeof text)) return 0;
  for (char *line = text, *next; line != NULL && *line != '\0'; line = next) {
    next = strchr(line, '\n');
    if (next != NULL) *next++ = '\0';
    char *controllers = strchr(line, ':');
    char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (group == NULL) continue;
    *group++ = '\0';
    controllers += 1;
    if (controllers[0] == '\0') {
      limit = lesser(limit, quota_under(RTEN_ROOT "/sys/fs/cgroup", group, false));
      limit = lesser(limit, quota_under(RTEN_ROOT "/sys/fs/cgroup/unified", group, false));
    } else if (lists_cpu(controllers)) {
      limit = lesser(limit, quota_under(RTEN_ROOT "/sys/fs/cgroup/cpu", group, true));
      limit = lesser(limit, quota_under(RTEN_ROOT "/sys/fs/cgroup/cpu,cpuacct", group, true));
    }
  }
  return limit;
}

static int32_t limited(int count) {
  int quota = cgroup_quota();
  if (quota > 0 && quota < count) count = quota;
  if (count > RTEN_MAX_THREADS) count = RTEN_MAX_THREADS;
  return count > 0 ? count : 1;
}

static int online_processors(void) {
  long count = sysconf(_SC_NPROCESSORS_ONLN);
  return count > 0 && count < RTEN_MAX_THREADS ? (int)count : 1;
}

int32_t rten_usable_processors(void) {
  affinity allowed;
  if (!read_affinity(&allowed)) return limited(online_processors());
  int count = CPU_COUNT_S(allowed.bytes, allowed.set);
  CPU_FREE(allowed.set);
  return limited(count);
}

int32_t rten_usable_cores(void) {
  affinity allowed;
  if (!read_affinity(&allowed)) return limited(online_processors());
  int cores = 0;
  for (int cpu = 0; cpu < allowed.count; ++cpu) {
    if (!CPU_ISSET_S((size_t)cpu, allowed.bytes, allowed.set)) continue;
    char path[512], siblings[256];
    snprintf(path, sizeof path,
             RTEN_ROOT "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    if (!read_file(path, siblings, sizeof siblings) || !has_lower_sibling(&allowed, cpu, siblings))
      ++cores;
  }
  CPU_FREE(allowed.set);
  return limited(cores);
}

#endif
