/* Images: CUDA text, compiled for the CPU once per text. */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "emulator.h"

extern char **environ;

enum { PATH_ROOM = 4096, NAME_ROOM = 256, MOST_KERNELS = 4096 };

static uint64_t hashed(uint64_t hash, const char *text) { /* FNV-1a */
  for (; *text != '\0'; ++text) hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
  return hash;
}

static const char *setting(const char *name) {
  const char *value = getenv(name);
  if (value == NULL) {
    fprintf(stderr, "emulator: %s is not set\n", name);
    abort();
  }
  return value;
}

/* ---- text ---------------------------------------------------------------------------------- */

static bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* After `__global__`: the name before its parameters, and what its launch bounds say. */
static const char *read_kernel(const char *at, char *name, int *max_threads) {
  static const char bounds[] = "__launch_bounds__";
  *max_threads = 0;
  const char *end = at;
  for (;;) {
    while (*end != '\0' && *end != '(') ++end;
    const char *last = end;
    while (last > at && (last[-1] == ' ' || last[-1] == '\n')) --last;
    const char *first = last;
    while (first > at && is_name(first[-1])) --first;
    size_t length = (size_t)(last - first);
    if (*end == '\0' || length == 0 || length >= NAME_ROOM) return NULL;
    if (length == strlen(bounds) && strncmp(first, bounds, length) == 0) {
      *max_threads = atoi(end + 1);
      while (*end != '\0' && *end != ')') ++end;
      at = end;
      continue;
    }
    memcpy(name, first, length);
    name[length] = '\0';
    return end;
  }
}

/* `extern __shared__ T name[];` --> `T *const name = (T *)emu_now.shared;` */
static const char *write_dynamic(FILE *file, const char *at) {
  const char *end = strchr(at, '[');
  if (end == NULL) return NULL;
  const char *last = end;
  while (last > at && last[-1] == ' ') --last;
  const char *first = last;
  while (first > at && is_name(first[-1])) --first;
  const char *type = at;
  while (*type == ' ') ++type;
  if (strncmp(type, "__align__(", 10) == 0 || strncmp(type, "alignas(", 8) == 0)
    type = strchr(type, ')') + 1;
  fprintf(file, "%.*s *const %.*s = (%.*s *)emu_now.shared;", (int)(first - type), type,
          (int)(last - first), first, (int)(first - type), type);
  end = strchr(end, ';');
  return end != NULL ? end + 1 : NULL;
}

static bool write_text(FILE *file, const char *text) {
  static const char global[] = "__global__", dynamic[] = "extern __shared__";
  static char names[MOST_KERNELS][NAME_ROOM];
  static int bounds[MOST_KERNELS];
  int count = 0;
  fputs("#include \"cuda_on_cpu.h\"\n#line 1 \"image.cu\"\n", file);
  const char *at = text;
  int line = 1;
  while (*at != '\0') {
    if (strncmp(at, dynamic, strlen(dynamic)) == 0) {
      at = write_dynamic(file, at + strlen(dynamic));
      if (at == NULL) return false;
    } else if (strncmp(at, global, strlen(global)) == 0 && count < MOST_KERNELS &&
               read_kernel(at + strlen(global), names[count], &bounds[count]) != NULL) {
      fputs(global, file);
      at += strlen(global);
      count += 1;
    } else {
      if (*at == '\n') line += 1;
      /* A kernel begins with a line of its own, before which its section is named. */
      bool begins =
          (at == text || at[-1] == '\n') && (strncmp(at, "extern \"C\" __global__", 21) == 0 ||
                                             strncmp(at, global, strlen(global)) == 0);
      char name[NAME_ROOM];
      int unused;
      const char *marker = begins ? strstr(at, global) : NULL;
      if (marker != NULL && read_kernel(marker + strlen(global), name, &unused) != NULL)
        fprintf(file,
                "#undef EMU_SHARED_SECTION\n#define EMU_SHARED_SECTION \"emu_shared_%s\"\n"
                "#line %d\n",
                name, line);
      fputc(*at++, file);
    }
  }
  fputs("\n", file);
  for (int i = 0; i < count; ++i) fprintf(file, "EMU_SHARED_BOUNDS(%s)\n", names[i]);
  fputs("extern \"C\" const emu_kernel emu_kernels[] = {\n", file);
  for (int i = 0; i < count; ++i) fprintf(file, "    EMU_KERNEL(%s, %d),\n", names[i], bounds[i]);
  fputs("    {},\n};\n", file);
  return true;
}

/* ---- compilation --------------------------------------------------------------------------- */

static int run(char *const *words) {
  pid_t child;
  int status;
  if (posix_spawn(&child, words[0], NULL, NULL, words, environ) != 0) return -1;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int compile(const char *source, const char *output) {
  char zig[PATH_ROOM], include[PATH_ROOM], self[PATH_ROOM];
  snprintf(zig, sizeof zig, "%s", setting("RTEN_EMULATOR_ZIG"));
  snprintf(include, sizeof include, "-I%s", setting("RTEN_EMULATOR_SOURCES"));
  snprintf(self, sizeof self, "%s/libcuda.so.1", setting("RTEN_EMULATOR_FOLDER"));
  char *words[] = {zig,
                   "c++",
                   "-target",
                   (char *)setting("RTEN_EMULATOR_TARGET"),
                   (char *)setting("RTEN_EMULATOR_CPU"),
                   "-std=c++17",
                   "-O2",
                   "-g0",
                   "-w",
                   "-fPIC",
                   "-shared",
                   "-nostdinc++",
                   "-nostdlib++",
                   "-fno-exceptions",
                   "-fno-rtti",
                   "-ffp-contract=off",
                   "-fno-strict-aliasing",
                   "-fwrapv",
                   "-fno-math-errno",
                   "-fsanitize=alignment,array-bounds,integer-divide-by-zero",
                   "-fsanitize-trap=alignment,array-bounds,integer-divide-by-zero",
                   include,
                   (char *)source,
                   self,
                   "-lm",
                   "-o",
                   (char *)output,
                   NULL};
  return run(words);
}

static bool exists(const char *path) {
  struct stat status;
  return stat(path, &status) == 0;
}

/* The library of a text, from the cache if it was compiled before. */
static bool build(const char *text, char *path) {
  const char *folder = setting("RTEN_EMULATOR_CACHE");
  uint64_t hash =
      hashed(hashed(UINT64_C(0xcbf29ce484222325), setting("RTEN_EMULATOR_VERSION")), text);
  snprintf(path, PATH_ROOM, "%s/%016llx.so", folder, (unsigned long long)hash);
  if (exists(path)) return true;
  char source[PATH_ROOM], output[PATH_ROOM];
  snprintf(source, sizeof source, "%s/%016llx.%d.cpp", folder, (unsigned long long)hash,
           (int)getpid());
  snprintf(output, sizeof output, "%s/%016llx.%d.tmp", folder, (unsigned long long)hash,
           (int)getpid());
  FILE *file = fopen(source, "w");
  if (file == NULL) return false;
  bool good = write_text(file, text);
  good = fclose(file) == 0 && good && compile(source, output) == 0 && rename(output, path) == 0;
  if (good && getenv("RTEN_EMULATOR_KEEP") == NULL) unlink(source);
  if (!good) fprintf(stderr, "emulator: the image does not compile: %s\n", source);
  return good;
}

/* ---- modules ------------------------------------------------------------------------------- */

static bool copied(const char *from, const char *to) {
  char buffer[1 << 16];
  FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
  bool good = in != NULL && out != NULL;
  size_t count;
  while (good && (count = fread(buffer, 1, sizeof buffer, in)) > 0)
    good = fwrite(buffer, 1, count, out) == count;
  if (in != NULL) fclose(in);
  if (out != NULL) good = fclose(out) == 0 && good;
  return good;
}

/* Each module has variables of its own: the loader must not know the file. */
static void *opened(const char *path) {
  static int number;
  char own[PATH_ROOM];
  snprintf(own, sizeof own, "%s.%d.%d.own", path, (int)getpid(), number++);
  void *library = copied(path, own) ? dlopen(own, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library == NULL) fprintf(stderr, "emulator: %s\n", dlerror());
  unlink(own);
  return library;
}

int emu_load(emu_module **module, const char *text) {
  char path[PATH_ROOM];
  if (strncmp(text, "\177ELF", 4) == 0)
    return emu_wrong(INVALID_IMAGE, "the image is not CUDA text");
  if (!build(text, path)) return INVALID_IMAGE;
  emu_module *made = calloc(1, sizeof *made);
  if (made == NULL) return OUT_OF_MEMORY;
  made->library = opened(path);
  if (made->library == NULL) {
    free(made);
    return INVALID_IMAGE;
  }
  made->kernels = dlsym(made->library, "emu_kernels");
  *module = made;
  return SUCCESS;
}

int emu_global(const emu_module *module, const char *name, uintptr_t *address, size_t *bytes) {
  Dl_info info;
  const ElfW(Sym) *symbol = NULL;
  void *real = dlsym(module->library, name);
  if (real == NULL || dladdr1(real, &info, (void **)&symbol, RTLD_DL_SYMENT) == 0 || symbol == NULL)
    return NOT_FOUND;
  if (bytes != NULL) *bytes = symbol->st_size;
  return emu_alias(address, real, symbol->st_size, module);
}

void emu_unload(emu_module *module) {
  emu_forget_aliases(module);
  dlclose(module->library);
  free(module);
}
