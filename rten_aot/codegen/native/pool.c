/* The process-wide worker threads behind TVM's parallel loops.
 *
 * A launch posts one bit for each task. A thread claims a task by clearing its bit: first the one
 * with its own number, so that from kernel to kernel a core mostly works on the rows it has in its
 * cache; then whatever is left, so that a launch never waits for a thread that is still asleep.
 * Only one launch uses the workers at a time; another handle's launch that finds them busy runs on
 * its own thread.
 *
 * The job's fields are written before the bits are posted, read only after a successful claim, and
 * not written again before `remaining` is 0; hence they need no lock. */
#ifndef __wasm__ /* which has wasm.c */
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
  JOIN_SPIN_NS = 100000, /* the launching thread, for tasks of others to end */
  STACK_BYTES = 1 << 20,
  WORD_BITS = 32
};

static struct {
  _Alignas(64) _Atomic uint32_t tasks[RTEN_MAX_THREADS / WORD_BITS];
  _Alignas(64) _Atomic uint32_t launches; /* workers sleep on it */
  _Atomic int32_t words;                  /* of tasks that launches use */
  _Atomic bool stop;
  _Alignas(64) _Atomic uint32_t remaining;
  _Atomic uint32_t joining; /* the launching thread sleeps on `remaining` */
  _Alignas(64) _Atomic uint32_t sleepers;
  _Atomic bool busy;
  /* The job. */
  rten_parallel_lambda lambda;
  void *data;
  rten_parallel_env env;
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
static _Thread_local int32_t task_count;

int32_t rten_task_count(void) { return task_count; }

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

static bool claim_bit(int word, uint32_t bit) {
  return (atomic_fetch_and_explicit(&pool.tasks[word], ~bit, memory_order_acq_rel) & bit) != 0;
}

static bool claim(int self, int *task) {
  int own = self / WORD_BITS;
  uint32_t bit = 1u << self % WORD_BITS;
  *task = self;
  if (atomic_load_explicit(&pool.tasks[own], memory_order_relaxed) & bit && claim_bit(own, bit))
    return true;
  int32_t words = atomic_load_explicit(&pool.words, memory_order_relaxed);
  for (int word = 0; word < words; ++word) {
    uint32_t left;
    while ((left = atomic_load_explicit(&pool.tasks[word], memory_order_relaxed)) != 0) {
      int lowest = __builtin_ctz(left);
      *task = word * WORD_BITS + lowest;
      if (claim_bit(word, 1u << lowest)) return true;
    }
  }
  return false;
}

static void post(int32_t count) {
  int32_t words = (count + WORD_BITS - 1) / WORD_BITS;
  if (words > atomic_load_explicit(&pool.words, memory_order_relaxed))
    atomic_store_explicit(&pool.words, words, memory_order_relaxed);
  for (int word = 0; word < words; ++word) {
    int32_t left = count - word * WORD_BITS;
    uint32_t bits = left >= WORD_BITS ? UINT32_MAX : (1u << left) - 1;
    atomic_store_explicit(&pool.tasks[word], bits, memory_order_release);
  }
  atomic_fetch_add(&pool.launches, 1);
  if (atomic_load(&pool.sleepers) > 0) futex_wake(&pool.launches, count - 1);
}

static void run_task(int task) {
  rten_current = pool.owner;
  task_count = pool.env.num_task;
  int status = pool.lambda(task, &pool.env, pool.data);
  if (status != 0) atomic_store_explicit(&pool.status, status, memory_order_relaxed);
  if (atomic_fetch_sub(&pool.remaining, 1) == 1 && atomic_load(&pool.joining) != 0)
    futex_wake(&pool.remaining, 1);
}

/* Returns after the next launch, or after some time when there is none. */
static void await_launch(uint32_t seen) {
  int64_t end = pool.spin ? now_ns() + IDLE_SPIN_NS : 0;
  while (pool.spin && now_ns() < end) {
    for (int i = 0; i < 32; ++i) {
      if (atomic_load_explicit(&pool.launches, memory_order_relaxed) != seen) return;
      RELAX();
    }
  }
  /* Announced before the word is compared; a launch counts itself before it looks for sleepers. */
  atomic_fetch_add(&pool.sleepers, 1);
  futex_wait(&pool.launches, seen);
  atomic_fetch_sub(&pool.sleepers, 1);
}

static void *work(void *number) {
  int self = (int)(intptr_t)number;
  inside_task = true;
  for (;;) {
    uint32_t seen = atomic_load_explicit(&pool.launches, memory_order_acquire);
    if (atomic_load_explicit(&pool.stop, memory_order_relaxed)) return NULL;
    int task;
    while (claim(self, &task)) run_task(task);
    await_launch(seen);
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
  void *number = (void *)(intptr_t)(pool.num_workers + 1); /* 0 is the launching thread */
  int failed = pthread_create(&pool.workers[pool.num_workers], &attributes, work, number);
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

static int run_alone(rten_parallel_lambda lambda, void *data) {
  rten_parallel_env env = {NULL, 1};
  int32_t outer = task_count; /* of the task that this launch is part of */
  task_count = 1;
  int status = lambda(0, &env, data);
  task_count = outer;
  return status;
}

int rten_launch(rten_parallel_lambda lambda, void *data, int num_task) {
  rten_aot_model *model = rten_current;
  int32_t count = model != NULL ? model->num_threads : 1;
  if (num_task > 0 && num_task < count) count = num_task;
  if (count <= 1 || inside_task ||
      atomic_exchange_explicit(&pool.busy, true, memory_order_acquire))
    return run_alone(lambda, data);
  if (pool.num_workers < count - 1) grow(count - 1);
  pool.lambda = lambda;
  pool.data = data;
  pool.env = (rten_parallel_env){NULL, count};
  pool.owner = model;
  atomic_store_explicit(&pool.status, 0, memory_order_relaxed);
  atomic_store_explicit(&pool.remaining, (uint32_t)count, memory_order_relaxed);
  post(count);
  inside_task = true;
  int task;
  while (claim(0, &task)) run_task(task);
  inside_task = false;
  join_tasks();
  int status = atomic_load_explicit(&pool.status, memory_order_relaxed);
  atomic_store_explicit(&pool.busy, false, memory_order_release);
  return status == 0 ? 0 : -1;
}

static void stop_workers(void) {
  if (pool.num_workers > 0) {
    atomic_store_explicit(&pool.stop, true, memory_order_relaxed);
    atomic_fetch_add(&pool.launches, 1);
    futex_wake(&pool.launches, INT_MAX);
    for (int32_t i = 0; i < pool.num_workers; ++i) pthread_join(pool.workers[i], NULL);
    atomic_store_explicit(&pool.stop, false, memory_order_relaxed);
  }
  free(pool.workers);
  pool.workers = NULL;
  pool.num_workers = pool.capacity = pool.limit = pool.processors = 0;
}

/* A child process has the handles but no worker, and perhaps locks of threads that are gone. */
void rten_pool_after_fork(void) {
  int32_t self = rten_process();
  int32_t process = atomic_load_explicit(&pool.process, memory_order_acquire);
  while (process != self) {
    if (process == -self) { /* another thread is at it */
      RELAX();
      process = atomic_load_explicit(&pool.process, memory_order_acquire);
    } else if (atomic_compare_exchange_strong(&pool.process, &process, -self)) {
      static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
      pool.mutex = fresh;
      pool.num_workers = pool.limit = pool.processors = 0;
      for (int word = 0; word < pool.words; ++word) atomic_store(&pool.tasks[word], 0);
      atomic_store(&pool.stop, false);
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
  if (atomic_load(&pool.process) == rten_process()) stop_workers();
}

#endif
