// One library for any x86-64 processor. The operators (operators.cpp) are compiled for three levels
// of its psABI, each with an entry of its own; the best one that runs here registers them. Which
// unit of a processor multiplies int8 is asked within a level, as in a library for one processor.

namespace macaron {
struct RuntimeBase;
}

using Entry = void*(void* options, const macaron::RuntimeBase* base);
extern "C" Entry register_x86_64_v4, register_x86_64_v3, register_x86_64;

// What `SessionOptions.register_custom_ops_library` calls.
extern "C" __attribute__((visibility("default"))) void* RegisterCustomOps(
    void* options, const macaron::RuntimeBase* base) {
  Entry* best = __builtin_cpu_supports("x86-64-v4")   ? register_x86_64_v4
                : __builtin_cpu_supports("x86-64-v3") ? register_x86_64_v3
                                                      : register_x86_64;
  return best(options, base);
}
