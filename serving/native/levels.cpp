// One library for all processors of a machine type. The operators (operators.cpp) are compiled for
// several levels, each with its own entry; the highest level that this processor runs registers
// them. The unit of an x86-64 processor that multiplies int8 is detected within a level, as in a
// library for one processor.

#include "beams.h"

namespace macaron {
struct RuntimeBase;
}

using Entry = void*(void* options, const macaron::RuntimeBase* base);

#ifdef __aarch64__

#include <sys/auxv.h>

extern "C" Entry register_armv8_2_a_dotprod_i8mm, register_armv8_2_a_dotprod, register_armv8_a;

static Entry* best_level() {
  constexpr unsigned long kDotprod = 1ul << 20, kI8mm = 1ul << 13;
  if (!(getauxval(AT_HWCAP) & kDotprod)) return register_armv8_a;
  return getauxval(AT_HWCAP2) & kI8mm ? register_armv8_2_a_dotprod_i8mm
                                      : register_armv8_2_a_dotprod;
}

#else

extern "C" Entry register_x86_64_v4, register_x86_64_v3, register_x86_64;

// The levels of the x86-64 psABI: v4 has AVX-512, v3 has AVX2, and any processor runs the last.
static Entry* best_level() {
  return __builtin_cpu_supports("x86-64-v4")   ? register_x86_64_v4
         : __builtin_cpu_supports("x86-64-v3") ? register_x86_64_v3
                                               : register_x86_64;
}

#endif

// The function that `SessionOptions.register_custom_ops_library` calls; see operators.cpp.
extern "C" __attribute__((visibility("default"))) void* RegisterCustomOps(
    void* options, const macaron::RuntimeBase* base) {
  return best_level()(options, base);
}
