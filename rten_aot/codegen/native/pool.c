/* The process-wide worker threads behind TVM's parallel loops.
 *
 * A launch posts `count` tasks in one 32-bit word: (next << 16) | count. Workers and the launching
 * thread claim tasks by advancing `next`, so a launch never waits for a thread that is asleep:
 * whoever is awake does the work. Only one launch uses the workers at a time; another handle's
 * launch that finds them busy runs on its own thread.
 *
 * The job's fields are written before the word is posted, read only after a successful claim, and
 * not written again before `remaining` is 0; hence they need no lock. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime.h"

#if defined(__x86_64__) || defined(__i386__)
#define RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__) || defined(__arm__)
#define RELAX() __asm__ volatile("yield")
#else
#define RELAX() __asm__ volatile("" ::: "memory")
#endif

enum {
  IDLE_SPIN_NS = 40000,  /* a worker without work, before it sleeps */
  JOIN_SPIN_NS = 200000, /* the launching thread, for tasks of others to end */
  STACK_BYTES = 1 << 20
};
static const uint32_t STOP = UINT32_MAX; /* no tasks left and never again: workers end */

/* TVM's tvm/runtime/c_backend_api.h. */
typedef struct {
  void *sync_handle;
  int32_t num_task;
} parallel_env;
typedef int (*parallel_lambda)(int task, parallel_env *env, void *data);

static struct {
  _Alignas(64) _Atomic uint32_t tasks;
  _Alignas(64) _Atomic uint32_t remaining;
  _Atomic uint32_t joining; /* the launching thread sleeps on `remaining` */
  _Alignas(64) _Atomic uint32_t sleepers;
  _Atomic bool busy;
  /* The job. */
  parallel_lambda lambda;
  void *data;
  parallel_env env;
  rten_aot_model *owner;
  _Atomic int32_t status;
  /* Changed under `busy`, or by the last handle. */
  pthread_t *workers;
  int32_t num_workers;
  int32_t capacity;
  int32_t limit; /* no more could be started; 0 = not met */
  int32_t processors;
  _Atomic bool spin;

  pthread_mutex_t mutex; /* of handles */
  int64_t handles;
  _Atomic int32_t process;
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local bool inside_task;

static void futex_wait(_Atomic uint32_t *word, uint32_t value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static bool has_task(uint32_t tasks) { return tasks >> 16 < (tasks & 0xffff); }

static bool claim(int *task) {
  uint32_t tasks = atomic_load_explicit(&pool.tasks, memory_order_acquire);
  while (has_task(tasks)) {
    if (atomic_compare_exchange_weak_explicit(&pool.tasks, &tasks, tasks + (1u << 16),
                                              memory_order_acq_rel, memory_order_acquire)) {
      *task = (int)(tasks >> 16);
      return true;
    }
  }
  return false;
}

static void run_task(int task) {
  rten_current = pool.owner;
  int status = pool.lambda(task, &pool.env, pool.data);
  if (status != 0) atomic_store_explicit(&pool.status, status, memory_order_relaxed);
  if (atomic_fetch_sub(&pool.remaining, 1) == 1 && atomic_load(&pool.joining) != 0)
    futex_wake(&pool.remaining, 1);
}

/* Waits a little for work without sleeping; true when there is some. */
static bool spin_for_task(void) {
  if (!pool.spin) return false;
  int64_t end = now_ns() + IDLE_SPIN_NS;
  do {
    for (int i = 0; i < 32; ++i) {
      uint32_t tasks = atomic_load_explicit(&pool.tasks, memory_order_relaxed);
      if (has_task(tasks) || tasks == STOP) return true;
      RELAX();
    }
  } while (now_ns() < end);
  return false;
}

static void *work(void *unused) {
  inside_task = true;
  for (;;) {
    int task;
    while (claim(&task)) run_task(task);
    if (spin_for_task()) {
      if (atomic_load(&pool.tasks) == STOP) return unused;
      continue;
    }
    /* Announced before the word is looked at again; a launch posts before it looks for sleepers. */
    atomic_fetch_add(&pool.sleepers, 1);
    uint32_t tasks = atomic_load(&pool.tasks);
    if (!has_task(tasks) && tasks != STOP) futex_wait(&pool.tasks, tasks);
    atomic_fetch_sub(&pool.sleepers, 1);
    if (atomic_load(&pool.tasks) == STOP) return unused;
  }
}

static bool start_worker(void) {
  if (pool.num_workers == pool.capacity) {
    int32_t capacity = pool.capacity > 0 ? 2 * pool.capacity : 16;
    pthread_t *workers = realloc(pool.workers, (size_t)capacity * sizeof *workers);
    if (workers == NULL) return false;
    pool.workers = workers;
    pool.capacity = capacity;
  }
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  /* Signals are the application's affair: its own threads take them. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(&pool.workers[pool.num_workers], &attributes, work, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  if (failed != 0) return false;
  pool.num_workers += 1;
  return true;
}

/* Fewer workers than wanted is no error: the others do their tasks. */
static void grow(int32_t wanted) {
  if (pool.limit > 0 && wanted > pool.limit) wanted = pool.limit;
  if (pool.processors == 0) pool.processors = rten_usable_processors();
  pool.spin = wanted + 1 <= pool.processors;
  while (pool.num_workers < wanted) {
    if (start_worker()) continue;
    pool.limit = pool.num_workers > 0 ? pool.num_workers : 1;
    return;
  }
}

static void join_tasks(void) {
  int64_t end = 0;
  uint32_t left;
  while ((left = atomic_load_explicit(&pool.remaining, memory_order_acquire)) != 0) {
    if (pool.spin && end == 0) end = now_ns() + JOIN_SPIN_NS;
    for (int i = 0; i < 32 && atomic_load_explicit(&pool.remaining, memory_order_relaxed); ++i)
      RELAX();
    if (pool.spin && now_ns() < end) continue;
    atomic_store(&pool.joining, 1);
    left = atomic_load(&pool.remaining);
    if (left != 0) futex_wait(&pool.remaining, left);
    atomic_store(&pool.joining, 0);
  }
}

static int run_alone(parallel_lambda lambda, void *data) {
  parallel_env env = {NULL, 1};
  return lambda(0, &env, data);
}

/* TVMBackendParallelLaunch. */
static int launch(parallel_lambda lambda, void *data, int num_task) {
  rten_aot_model *model = rten_current;
  int32_t count = model != NULL ? model->num_threads : 1;
  if (num_task > 0 && num_task < count) count = num_task;
  if (count <= 1 || inside_task ||
      atomic_exchange_explicit(&pool.busy, true, memory_order_acquire))
    return run_alone(lambda, data);
  if (pool.num_workers < count - 1) grow(count - 1);
  pool.lambda = lambda;
  pool.data = data;
  pool.env = (parallel_env){NULL, count};
  pool.owner = model;
  atomic_store_explicit(&pool.status, 0, memory_order_relaxed);
  atomic_store_explicit(&pool.remaining, (uint32_t)count, memory_order_relaxed);
  atomic_store(&pool.tasks, (uint32_t)count);
  if (atomic_load(&pool.sleepers) > 0) futex_wake(&pool.tasks, count - 1);
  inside_task = true;
  int task;
  while (claim(&task)) run_task(task);
  inside_task = false;
  join_tasks();
  int status = atomic_load_explicit(&pool.status, memory_order_relaxed);
  atomic_store_explicit(&pool.busy, false, memory_order_release);
  return status == 0 ? 0 : -1;
}

static void stop_workers(void) {
  if (pool.num_workers > 0) {
    atomic_store(&pool.tasks, STOP);
    futex_wake(&pool.tasks, INT_MAX);
    for (int32_t i = 0; i < pool.num_workers; ++i) pthread_join(pool.workers[i], NULL);
    atomic_store(&pool.tasks, 0);
  }
  free(pool.workers);
  pool.workers = NULL;
  pool.num_workers = pool.capacity = pool.limit = pool.processors = 0;
}

/* A child process has the handles but no worker, and perhaps locks of threads that are gone. */
void rten_pool_after_fork(void) {
  int32_t self = (int32_t)getpid();
  int32_t process = atomic_load_explicit(&pool.process, memory_order_acquire);
  while (process != self) {
    if (process == -self) { /* another thread is at it */
      RELAX();
      process = atomic_load_explicit(&pool.process, memory_order_acquire);
    } else if (atomic_compare_exchange_strong(&pool.process, &process, -self)) {
      static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
      pool.mutex = fresh;
      pool.num_workers = pool.limit = pool.processors = 0;
      atomic_store(&pool.tasks, 0);
      atomic_store(&pool.remaining, 0);
      atomic_store(&pool.joining, 0);
      atomic_store(&pool.sleepers, 0);
      atomic_store(&pool.busy, false);
      atomic_store_explicit(&pool.process, self, memory_order_release);
      return;
    }
  }
}

void rten_pool_retain(void) {
  rten_pool_after_fork();
  pthread_mutex_lock(&pool.mutex);
  pool.handles += 1;
  pthread_mutex_unlock(&pool.mutex);
}

void rten_pool_release(void) {
  rten_pool_after_fork();
  pthread_mutex_lock(&pool.mutex);
  pool.handles -= 1;
  if (pool.handles == 0) stop_workers();
  pthread_mutex_unlock(&pool.mutex);
}

/* The library may be unloaded with handles left over: no worker may run on in it. */
__attribute__((destructor)) static void unload(void) {
  if (atomic_load(&pool.process) == (int32_t)getpid()) stop_workers();
}

static void *allocate(int device_type, int device_id, uint64_t bytes, int code, int bits) {
  (void)device_type, (void)device_id, (void)code, (void)bits;
  rten_block block = {NULL, 0};
  return bytes <= INT64_MAX && rten_reserve(&block, (int64_t)bytes) ? block.data : NULL;
}

static int release(int device_type, int device_id, void *data) {
  (void)device_type, (void)device_id;
  free(data);
  return 0;
}

/* TVM's objects define these three as weak null pointers wherever they use them. */
__attribute__((weak)) RTEN_HIDDEN int (*__TVMBackendParallelLaunch)(parallel_lambda, void *, int);
__attribute__((weak)) RTEN_HIDDEN void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int);
__attribute__((weak)) RTEN_HIDDEN int (*__TVMBackendFreeWorkspace)(int, int, void *);

__attribute__((constructor)) static void fill_pointers(void) {
  __TVMBackendParallelLaunch = launch;
  __TVMBackendAllocWorkspace = allocate;
  __TVMBackendFreeWorkspace = release;
}
