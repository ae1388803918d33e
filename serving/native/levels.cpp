// One library for any processor of a machine. The operators (operators.cpp) are compiled for several
// levels, each with an entry of its own; the best one that runs here registers them. Which unit of
// an x86-64 processor multiplies int8 is asked within a level, as in a library for one processor.

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

// The levels of the x86-64 psABI: with AVX-512, with AVX2, any.
static Entry* best_level() {
  return __builtin_cpu_supports("x86-64-v4")   ? register_x86_64_v4
         : __builtin_cpu_supports("x86-64-v3") ? register_x86_64_v3
                                               : register_x86_64;
}

#endif

// What `SessionOptions.register_custom_ops_library` calls.
extern "C" __attribute__((visibility("default"))) void* RegisterCustomOps(
    void* options, const macaron::RuntimeBase* base) {
  return best_level()(options, base);
}
