/* 64-bit conversions on 32-bit ARM: TVM's LLVM calls them by the names that they have elsewhere,
 * while the compiler's library that is linked has the names of ARM's ABI, which C code uses. */
#include "rten_aot_internal.h"

#if defined(__arm__)

RTEN_HIDDEN double __floatdidf(int64_t value) { return (double)value; }
RTEN_HIDDEN float __floatdisf(int64_t value) { return (float)value; }
RTEN_HIDDEN double __floatundidf(uint64_t value) { return (double)value; }
RTEN_HIDDEN float __floatundisf(uint64_t value) { return (float)value; }
RTEN_HIDDEN int64_t __fixdfdi(double value) { return (int64_t)value; }
RTEN_HIDDEN int64_t __fixsfdi(float value) { return (int64_t)value; }
RTEN_HIDDEN uint64_t __fixunsdfdi(double value) { return (uint64_t)value; }
RTEN_HIDDEN uint64_t __fixunssfdi(float value) { return (uint64_t)value; }

#endif
