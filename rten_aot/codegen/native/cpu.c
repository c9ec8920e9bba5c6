/* Whether this CPU, and its operating system, has the features that the code was built for. The
 * names are LLVM's; separators and case do not matter ("avx512_vnni" is "avx512vnni"). */
#include <string.h>

#include "runtime.h"

/* "sse4.2", "sse4_2" and "+sse42" are the same. */
static bool same_name(const char *left, const char *right) {
  static const char ignored[] = "-_.+";
  for (;;) {
    while (*left != '\0' && strchr(ignored, *left) != NULL) ++left;
    while (*right != '\0' && strchr(ignored, *right) != NULL) ++right;
    if (*left != *right) return false;
    if (*left == '\0') return true;
    ++left;
    ++right;
  }
}

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef enum { EAX, EBX, ECX, EDX } reg;
typedef enum { NONE, YMM, ZMM, TILE } state; /* what the operating system must save */

typedef struct {
  const char *name;
  uint32_t leaf, subleaf;
  reg where;
  int bit;
  state needs;
} feature;

static const feature known[] = {
    {"cx8", 1, 0, EDX, 8, NONE},
    {"cmov", 1, 0, EDX, 15, NONE},
    {"mmx", 1, 0, EDX, 23, NONE},
    {"fxsr", 1, 0, EDX, 24, NONE},
    {"sse", 1, 0, EDX, 25, NONE},
    {"sse2", 1, 0, EDX, 26, NONE},
    {"sse3", 1, 0, ECX, 0, NONE},
    {"pclmul", 1, 0, ECX, 1, NONE},
    {"ssse3", 1, 0, ECX, 9, NONE},
    {"fma", 1, 0, ECX, 12, YMM},
    {"cx16", 1, 0, ECX, 13, NONE},
    {"sse4.1", 1, 0, ECX, 19, NONE},
    {"sse4.2", 1, 0, ECX, 20, NONE},
    {"movbe", 1, 0, ECX, 22, NONE},
    {"popcnt", 1, 0, ECX, 23, NONE},
    {"aes", 1, 0, ECX, 25, NONE},
    {"xsave", 1, 0, ECX, 27, NONE},
    {"avx", 1, 0, ECX, 28, YMM},
    {"f16c", 1, 0, ECX, 29, YMM},
    {"rdrnd", 1, 0, ECX, 30, NONE},
    {"fsgsbase", 7, 0, EBX, 0, NONE},
    {"bmi", 7, 0, EBX, 3, NONE},
    {"bmi1", 7, 0, EBX, 3, NONE},
    {"avx2", 7, 0, EBX, 5, YMM},
    {"bmi2", 7, 0, EBX, 8, NONE},
    {"avx512f", 7, 0, EBX, 16, ZMM},
    {"avx512dq", 7, 0, EBX, 17, ZMM},
    {"rdseed", 7, 0, EBX, 18, NONE},
    {"adx", 7, 0, EBX, 19, NONE},
    {"avx512ifma", 7, 0, EBX, 21, ZMM},
    {"clflushopt", 7, 0, EBX, 23, NONE},
    {"clwb", 7, 0, EBX, 24, NONE},
    {"avx512cd", 7, 0, EBX, 28, ZMM},
    {"sha", 7, 0, EBX, 29, NONE},
    {"avx512bw", 7, 0, EBX, 30, ZMM},
    {"avx512vl", 7, 0, EBX, 31, ZMM},
    {"avx512vbmi", 7, 0, ECX, 1, ZMM},
    {"avx512vbmi2", 7, 0, ECX, 6, ZMM},
    {"gfni", 7, 0, ECX, 8, NONE},
    {"vaes", 7, 0, ECX, 9, YMM},
    {"vpclmulqdq", 7, 0, ECX, 10, YMM},
    {"avx512vnni", 7, 0, ECX, 11, ZMM},
    {"avx512bitalg", 7, 0, ECX, 12, ZMM},
    {"avx512vpopcntdq", 7, 0, ECX, 14, ZMM},
    {"rdpid", 7, 0, ECX, 22, NONE},
    {"avx512vp2intersect", 7, 0, EDX, 8, ZMM},
    {"amx-bf16", 7, 0, EDX, 22, TILE},
    {"avx512fp16", 7, 0, EDX, 23, ZMM},
    {"amx-tile", 7, 0, EDX, 24, TILE},
    {"amx-int8", 7, 0, EDX, 25, TILE},
    {"avxvnni", 7, 1, EAX, 4, YMM},
    {"avx512bf16", 7, 1, EAX, 5, ZMM},
    {"amx-fp16", 7, 1, EAX, 21, TILE},
    {"avxifma", 7, 1, EAX, 23, YMM},
    {"avxvnniint8", 7, 1, EDX, 4, YMM},
    {"avxneconvert", 7, 1, EDX, 5, YMM},
    {"avxvnniint16", 7, 1, EDX, 10, YMM},
    {"avx10.1", 7, 1, EDX, 19, ZMM},
    {"xsaveopt", 0xd, 1, EAX, 0, NONE},
    {"xsavec", 0xd, 1, EAX, 1, NONE},
    {"xsaves", 0xd, 1, EAX, 3, NONE},
    {"sahf", 0x80000001, 0, ECX, 0, NONE},
    {"lzcnt", 0x80000001, 0, ECX, 5, NONE},
    {"sse4a", 0x80000001, 0, ECX, 6, NONE},
    {"prfchw", 0x80000001, 0, ECX, 8, NONE},
    {"xop", 0x80000001, 0, ECX, 11, YMM},
    {"fma4", 0x80000001, 0, ECX, 16, YMM},
    {"tbm", 0x80000001, 0, ECX, 21, NONE},
};

static bool cpuid_bit(const feature *f) {
  unsigned out[4] = {0, 0, 0, 0};
  if (!__get_cpuid_count(f->leaf, f->subleaf, &out[EAX], &out[EBX], &out[ECX], &out[EDX]))
    return false;
  return out[f->where] >> f->bit & 1;
}

static bool system_saves(state needs) {
  static const uint32_t masks[] = {[NONE] = 0, [YMM] = 0x6, [ZMM] = 0xe6, [TILE] = 0x60000};
  if (needs == NONE) return true;
  static const feature osxsave = {"osxsave", 1, 0, ECX, 27, NONE};
  if (!cpuid_bit(&osxsave)) return false;
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & masks[needs]) != masks[needs]) return false;
#if defined(SYS_arch_prctl) && defined(__x86_64__)
  if (needs == TILE) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
  }
#endif
  return true;
}

static bool has(const char *name) {
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i)
    if (same_name(name, known[i].name)) return cpuid_bit(&known[i]) && system_saves(known[i].needs);
  return true;
}

#elif defined(__aarch64__) || defined(__arm__) || defined(__riscv)
#include <sys/auxv.h>

typedef struct {
  const char *name;
  int word; /* 1: AT_HWCAP, 2: AT_HWCAP2 */
  int bit;
} feature;

/* Bits of arch/<cpu>/include/uapi/asm/hwcap.h in Linux. */
#if defined(__aarch64__)
static const feature known[] = {
    {"fp-armv8", 1, 0}, {"neon", 1, 1}, {"asimd", 1, 1}, {"aes", 1, 3}, {"sha2", 1, 6},
    {"crc", 1, 7}, {"lse", 1, 8}, {"fullfp16", 1, 10}, {"rdm", 1, 12}, {"jsconv", 1, 13},
    {"complxnum", 1, 14}, {"rcpc", 1, 15}, {"sha3", 1, 17}, {"sm4", 1, 19}, {"dotprod", 1, 20},
    {"sve", 1, 22}, {"fp16fml", 1, 23}, {"sve2", 2, 1}, {"sve-i8mm", 2, 9}, {"i8mm", 2, 13},
    {"bf16", 2, 14}, {"sme", 2, 23},
};
#elif defined(__arm__)
static const feature known[] = {
    {"neon", 1, 12}, {"vfp3", 1, 13}, {"vfp4", 1, 16}, {"hwdiv-arm", 1, 17}, {"hwdiv", 1, 18},
    {"d32", 1, 19},  {"fullfp16", 1, 22}, {"dotprod", 1, 24}, {"bf16", 1, 26}, {"i8mm", 1, 27},
};
#else
static const feature known[] = {
    {"m", 1, 'm' - 'a'}, {"a", 1, 0}, {"f", 1, 'f' - 'a'}, {"d", 1, 'd' - 'a'},
    {"c", 1, 'c' - 'a'}, {"v", 1, 'v' - 'a'},
};
#endif

static bool has(const char *name) {
  enum { HWCAP = 16, HWCAP2 = 26 };
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i)
    if (same_name(name, known[i].name))
      return getauxval(known[i].word == 1 ? HWCAP : HWCAP2) >> known[i].bit & 1;
  return true;
}

#else /* WebAssembly: whoever loads a module checks what is in it */
static bool has(const char *name) {
  (void)same_name, (void)name;
  return true;
}
#endif

#ifdef RTEN_LEVELS
static bool has_all(const char *const *features) {
  while (*features != NULL && has(*features)) ++features;
  return *features == NULL;
}

void rten_choose_level(void) {
  if (&rten_aot_desc != &rten_aot_levels[rten_aot_num_levels]) return;
  int32_t level = 0;
  while (level < rten_aot_num_levels && !has_all(rten_aot_levels[level].features)) ++level;
  atomic_store_explicit(&rten_aot_level, &rten_aot_levels[level], memory_order_relaxed);
}
#endif

int32_t rten_check_cpu(const char *const *features, const char *cpu) {
  static _Atomic bool checked;
  if (features == NULL || atomic_load_explicit(&checked, memory_order_relaxed)) return RTEN_AOT_OK;
  rten_text missing = {{0}, 0};
  int count = 0;
  for (const char *const *name = features; *name != NULL; ++name)
    if (!has(*name)) rten_append(&missing, "%s%s", count++ > 0 ? ", " : "", *name);
  if (count == 0) {
    atomic_store_explicit(&checked, true, memory_order_relaxed);
    return RTEN_AOT_OK;
  }
  return rten_error(RTEN_AOT_UNSUPPORTED_DEVICE,
                    "this CPU lacks %s %s, which the artifact needs (compiled for %s)",
                    count == 1 ? "the feature" : "the features", missing.text,
                    cpu != NULL ? cpu : "another CPU");
}
