/* CUDA C++ for the CPU: what comes before the text of an image. Needs no header of C++. */
#pragma once
#include <limits.h>
#include <stdint.h>
#include <string.h>

#include "threads.h"

/* The functions of libm whose names math.h would take away from CUDA's. */
extern "C" {
#define EMU_UNARY(name) \
  float name##f(float); \
  double name(double);
#define EMU_BINARY(name)       \
  float name##f(float, float); \
  double name(double, double);
EMU_UNARY(acos)
EMU_UNARY(acosh)
EMU_UNARY(asin)
EMU_UNARY(asinh)
EMU_UNARY(atan) EMU_UNARY(atanh) EMU_UNARY(cbrt) EMU_UNARY(ceil) EMU_UNARY(cos) EMU_UNARY(cosh)
    EMU_UNARY(erf) EMU_UNARY(erfc) EMU_UNARY(exp) EMU_UNARY(exp2) EMU_UNARY(expm1) EMU_UNARY(fabs)
        EMU_UNARY(floor) EMU_UNARY(lgamma) EMU_UNARY(log) EMU_UNARY(log10) EMU_UNARY(log1p)
            EMU_UNARY(log2) EMU_UNARY(nearbyint) EMU_UNARY(rint) EMU_UNARY(round) EMU_UNARY(sin)
                EMU_UNARY(sinh) EMU_UNARY(sqrt) EMU_UNARY(tan) EMU_UNARY(tanh) EMU_UNARY(tgamma)
                    EMU_UNARY(trunc) EMU_BINARY(atan2) EMU_BINARY(copysign) EMU_BINARY(fmax)
                        EMU_BINARY(fmin) EMU_BINARY(fmod) EMU_BINARY(hypot) EMU_BINARY(nextafter)
                            EMU_BINARY(pow) EMU_BINARY(remainder) float fmaf(float, float, float);
double fma(double, double, double);
float ldexpf(float, int);
double ldexp(double, int);
int abs(int);
long long llabs(long long);
}
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define isnan(x) __builtin_isnan(x)
#define isinf(x) __builtin_isinf(x)
#define isfinite(x) __builtin_isfinite(x)
#define signbit(x) __builtin_signbit(x)

#define __global__
#define __device__
#define __host__
#define __constant__ const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __align__(bytes) __attribute__((aligned(bytes)))
/* A section for each kernel, so that its shared memory can be found. */
#define __shared__ __attribute__((section(EMU_SHARED_SECTION))) static
#define EMU_SHARED_SECTION "emu_shared_none"
#define CUDART_INF_F INFINITY
#define CUDART_NAN_F NAN

#define threadIdx emu_now.thread
#define blockIdx emu_now.block
#define blockDim emu_now.block_size
#define gridDim emu_now.grid_size
static const int warpSize = 32;
typedef emu_dim3 dim3;

/* ---- barriers, and what lanes exchange ----------------------------------------------------- */

#define __syncthreads() emu_barrier(__LINE__)
#define __syncwarp(...) emu_sync_warp(__LINE__, ##__VA_ARGS__)
#define __shfl_sync(...) emu_shfl(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) emu_shfl_xor(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) emu_shfl_down(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) emu_shfl_up(__LINE__, __VA_ARGS__)
#define __ballot_sync(mask, value) \
  ((unsigned)emu_exchange(EMU_VOTE, mask, (value) != 0, 0, __LINE__))
#define __any_sync(mask, value) (__ballot_sync(mask, value) != 0)
#define __all_sync(mask, value) (emu_exchange(EMU_VOTE, mask, (value) == 0, 0, __LINE__) == 0)
#define __threadfence()
#define __threadfence_block()

static inline void emu_sync_warp(int line, unsigned mask = 0xffffffffu) {
  emu_exchange(EMU_SYNC, mask, 0, emu_now.lane, line);
}
template <class T>
static inline T emu_shuffle(int line, unsigned mask, T value, int source) {
  static_assert(sizeof(T) <= 8, "shuffles take at most 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  bits = emu_exchange(EMU_SHUFFLE, mask, bits, source, line);
  memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
static inline T emu_shfl(int line, unsigned mask, T value, int source, int width = 32) {
  return emu_shuffle(line, mask, value, (emu_now.lane & ~(width - 1)) | (source & (width - 1)));
}
template <class T>
static inline T emu_shfl_xor(int line, unsigned mask, T value, int bits, int width = 32) {
  int source = emu_now.lane ^ bits;
  bool within = source < (emu_now.lane & ~(width - 1)) + width;
  return emu_shuffle(line, mask, value, within ? source : emu_now.lane);
}
template <class T>
static inline T emu_shfl_down(int line, unsigned mask, T value, unsigned by, int width = 32) {
  bool within = (emu_now.lane & (width - 1)) + (int)by < width;
  return emu_shuffle(line, mask, value, within ? emu_now.lane + (int)by : emu_now.lane);
}
template <class T>
static inline T emu_shfl_up(int line, unsigned mask, T value, unsigned by, int width = 32) {
  bool within = (emu_now.lane & (width - 1)) - (int)by >= 0;
  return emu_shuffle(line, mask, value, within ? emu_now.lane - (int)by : emu_now.lane);
}

/* ---- types --------------------------------------------------------------------------------- */

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef long long longlong;
typedef unsigned long long ulonglong;

#define EMU_VECTORS(T, name, twice, four_times)                             \
  struct name##1 { T x; };                                                  \
  struct alignas(twice) name##2 { T x, y; };                                \
  struct name##3 { T x, y, z; };                                            \
  struct alignas(four_times) name##4 { T x, y, z, w; };                     \
  static inline name##1 make_##name##1(T x) { return {x}; }                 \
  static inline name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMU_VECTORS(signed char, char, 2, 4)
EMU_VECTORS(unsigned char, uchar, 2, 4)
EMU_VECTORS(short, short, 4, 8)
EMU_VECTORS(unsigned short, ushort, 4, 8)
EMU_VECTORS(int, int, 8, 16)
EMU_VECTORS(unsigned int, uint, 8, 16)
EMU_VECTORS(long long, longlong, 16, 16)
EMU_VECTORS(unsigned long long, ulonglong, 16, 16)
EMU_VECTORS(float, float, 8, 16)
EMU_VECTORS(double, double, 16, 16)

/* ---- arithmetic ---------------------------------------------------------------------------- */

#define EMU_EXTREMES(T)                                   \
  static inline T min(T a, T b) { return b < a ? b : a; } \
  static inline T max(T a, T b) { return a < b ? b : a; }
EMU_EXTREMES(int)
EMU_EXTREMES(unsigned)
EMU_EXTREMES(long)
EMU_EXTREMES(unsigned long)
EMU_EXTREMES(long long)
EMU_EXTREMES(unsigned long long)
/* Of a number and a NaN, the number. */
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }

static inline float __expf(float x) { return expf(x); }
static inline float __logf(float x) { return logf(x); }
static inline float __log2f(float x) { return log2f(x); }
static inline float __sinf(float x) { return sinf(x); }
static inline float __cosf(float x) { return cosf(x); }
static inline float __powf(float x, float y) { return powf(x, y); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float fdividef(float a, float b) { return a / b; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __saturatef(float x) { return x > 0.0f ? fminf(x, 1.0f) : 0.0f; }
static inline float exp10f(float x) { return powf(10.0f, x); }
static inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678118654752f); }
/* These are never joined to a multiply-add. */
static inline float __fadd_rn(float a, float b) {
#pragma clang fp contract(off)
  return a + b;
}
static inline float __fsub_rn(float a, float b) {
#pragma clang fp contract(off)
  return a - b;
}
static inline float __fmul_rn(float a, float b) {
#pragma clang fp contract(off)
  volatile float product = a * b;
  return product;
}
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }

/* Conversions saturate, and make 0 of NaN. */
static inline int emu_to_int(float x) {
  if (x != x) return 0;
  return x >= 2147483648.0f ? INT_MAX : x < -2147483648.0f ? INT_MIN : (int)x;
}
static inline int __float2int_rz(float x) { return emu_to_int(truncf(x)); }
static inline int __float2int_rn(float x) { return emu_to_int(rintf(x)); }
static inline int __float2int_rd(float x) { return emu_to_int(floorf(x)); }
static inline int __float2int_ru(float x) { return emu_to_int(ceilf(x)); }
static inline unsigned __float2uint_rz(float x) {
  return !(x > 0.0f) ? 0 : x >= 4294967296.0f ? UINT_MAX : (unsigned)x;
}
static inline unsigned __float2uint_rn(float x) { return __float2uint_rz(rintf(x)); }
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
template <class To, class From>
static inline To emu_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "sizes differ");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
static inline int __float_as_int(float x) { return emu_bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return emu_bits<unsigned>(x); }
static inline float __int_as_float(int x) { return emu_bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return emu_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return emu_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return emu_bits<double>(x); }

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned)x); }
static inline int __clzll(long long x) {
  return x == 0 ? 64 : __builtin_clzll((unsigned long long)x);
}
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline unsigned __brev(unsigned x) { return __builtin_bitreverse32(x); }
static inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)((unsigned long long)a * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
/* Bytes of both words, multiplied in pairs; the signs are those of the types of the words. */
template <class A, class B>
static inline int emu_dp4a(int a, int b, int sum) {
  for (int i = 0; i < 32; i += 8) sum += (A)(a >> i) * (B)(b >> i);
  return sum;
}
static inline int __dp4a(int a, int b, int c) { return emu_dp4a<int8_t, int8_t>(a, b, c); }
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  return (unsigned)emu_dp4a<uint8_t, uint8_t>((int)a, (int)b, (int)c);
}

/* ---- tensor cores -------------------------------------------------------------------------- */

/* What text does by PTX on a GPU, it does by these where RTEN_EMULATED is defined. Fragments are
 * those of PTX's mma.sync (m16n8k8 for tf32, m16n8k16 for f16, sums in f32), by lane. */
#define RTEN_EMULATED 1
#define emu_mma_tf32(d, a, b) emu_mma_tf32_at(__LINE__, d, a, b)
#define emu_mma_f16(d, a, b) emu_mma_f16_at(__LINE__, d, a, b)

/* cvt.rna.tf32.f32 */
static inline unsigned emu_to_tf32(float x) {
  unsigned bits = __float_as_uint(x);
  return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & 0xffffe000u;
}
/* cvt.rn.f16x2.f32: the first one in the upper half. */
static inline unsigned emu_to_f16x2(float upper, float lower) {
  unsigned low = emu_bits<unsigned short>((_Float16)lower);
  return low | (unsigned)emu_bits<unsigned short>((_Float16)upper) << 16;
}

template <int STEP, class Fragment, class At>
static inline void emu_mma(int line, float *d, const unsigned *a, const unsigned *b, At at) {
  Fragment own, all[32];
  memcpy(own.a, a, sizeof own.a);
  memcpy(own.b, b, sizeof own.b);
  emu_gather(&own, sizeof own, all, line);
  int group = emu_now.lane / 4, quad = emu_now.lane % 4;
  for (int i = 0; i < 4; ++i) {
    int row = group + i / 2 * 8, column = quad * 2 + i % 2;
    for (int k = 0; k < STEP; ++k) d[i] += at.a(all, row, k) * at.b(all, k, column);
  }
}

struct emu_fragment {
  unsigned a[4], b[2];
};
struct emu_tf32 {
  static float a(const emu_fragment *all, int row, int k) {
    return __uint_as_float(all[row % 8 * 4 + k % 4].a[row / 8 + k / 4 * 2]);
  }
  static float b(const emu_fragment *all, int k, int column) {
    return __uint_as_float(all[column * 4 + k % 4].b[k / 4]);
  }
};
struct emu_f16 {
  static float half(unsigned pair, int which) {
    return (float)emu_bits<_Float16>((unsigned short)(pair >> 16 * which));
  }
  static float a(const emu_fragment *all, int row, int k) {
    return half(all[row % 8 * 4 + k % 8 / 2].a[row / 8 + k / 8 * 2], k % 2);
  }
  static float b(const emu_fragment *all, int k, int column) {
    return half(all[column * 4 + k % 8 / 2].b[k / 8], k % 2);
  }
};
static inline void emu_mma_tf32_at(int line, float *d, const unsigned *a, const unsigned *b) {
  emu_mma<8, emu_fragment>(line, d, a, b, emu_tf32());
}
static inline void emu_mma_f16_at(int line, float *d, const unsigned *a, const unsigned *b) {
  emu_mma<16, emu_fragment>(line, d, a, b, emu_f16());
}

/* ---- memory -------------------------------------------------------------------------------- */

template <class T>
static inline T __ldg(const T *address) {
  return *address;
}
template <class T>
static inline T emu_replace(T *address, T value) {
  T old = *address;
  *address = value;
  return old;
}
template <class T>
static inline T atomicAdd(T *p, T value) {
  return emu_replace(p, (T)(*p + value));
}
template <class T>
static inline T atomicSub(T *p, T value) {
  return emu_replace(p, (T)(*p - value));
}
template <class T>
static inline T atomicMax(T *p, T value) {
  return emu_replace(p, max(*p, value));
}
template <class T>
static inline T atomicMin(T *p, T value) {
  return emu_replace(p, min(*p, value));
}
template <class T>
static inline T atomicExch(T *p, T value) {
  return emu_replace(p, value);
}
template <class T>
static inline T atomicOr(T *p, T value) {
  return emu_replace(p, (T)(*p | value));
}
template <class T>
static inline T atomicAnd(T *p, T value) {
  return emu_replace(p, (T)(*p & value));
}
template <class T>
static inline T atomicCAS(T *p, T expected, T value) {
  return emu_replace(p, *p == expected ? value : *p);
}
static inline void __trap() { emu_fault("__trap()"); }
#define assert(condition) ((condition) ? (void)0 : emu_fault("assertion failed: " #condition))

/* ---- kernels by name ----------------------------------------------------------------------- */

template <int... I>
struct emu_sequence {};
template <int N, int... I>
struct emu_count : emu_count<N - 1, N - 1, I...> {};
template <int... I>
struct emu_count<0, I...> {
  typedef emu_sequence<I...> type;
};
template <class T>
struct emu_is_pointer {
  static constexpr bool value = false;
};
template <class T>
struct emu_is_pointer<T *> {
  static constexpr bool value = true;
};
template <auto kernel>
struct emu_kernel_of;
template <class... P, void (*kernel)(P...)>
struct emu_kernel_of<kernel> {
  static constexpr int count = sizeof...(P);
  static constexpr unsigned char sizes[sizeof...(P) + 1] = {sizeof(P)..., 0};
  static constexpr unsigned char pointers[sizeof...(P) + 1] = {emu_is_pointer<P>::value..., 0};
  template <int... I>
  static void call(void **arguments, emu_sequence<I...>) {
    kernel(*(P *)arguments[I]...);
  }
  static void invoke(void **arguments) { call(arguments, typename emu_count<count>::type()); }
};
#define EMU_SHARED_BOUNDS(name)                                                            \
  extern "C" __attribute__((weak, visibility("hidden"))) char __start_emu_shared_##name[]; \
  extern "C" __attribute__((weak, visibility("hidden"))) char __stop_emu_shared_##name[];
#define EMU_KERNEL(name, max_threads) \
  {#name,                             \
   emu_kernel_of<name>::invoke,       \
   emu_kernel_of<name>::count,        \
   emu_kernel_of<name>::sizes,        \
   emu_kernel_of<name>::pointers,     \
   max_threads,                       \
   __start_emu_shared_##name,         \
   __stop_emu_shared_##name}
