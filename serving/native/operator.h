// What custom operators have in common: their description for ONNX Runtime, attributes, shapes.

#pragma once

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include "runtime.h"

namespace macaron {

inline const Runtime* runtime = nullptr;  // as RegisterCustomOps found it

struct Attributes {
  int64_t heads = 1, reach = 0;
  float scale = 1.0f, epsilon = 1e-5f, cap = 0.0f;
};

inline int64_t size_of(const Shape& shape) {
  int64_t size = 1;
  for (int64_t axis : shape) size *= axis;
  return size;
}

inline int64_t rows_of(const Shape& shape) {
  return shape.back() ? size_of(shape) / shape.back() : 0;
}

// Kernels refuse what they would read or write out of bounds, as the standard operators do.
inline void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

// Whether all numbers of an input are from 0 up and below `size`.
inline bool all_below(const Context& context, size_t input, int64_t size) {
  const int64_t* numbers = context.input<int64_t>(input);
  return std::all_of(numbers, numbers + size_of(context.shape(input)),
                     [size](int64_t number) { return number >= 0 && number < size; });
}

// Calls `work` with parts of the rows from 0 to `rows`, on several threads where that is worth it:
// `numbers` is what one row takes, in numbers that are read.
template <typename Work>
void share_out(const Context& context, int64_t rows, int64_t numbers, Work work) {
  constexpr int64_t kLeast = 1 << 16, kMost = 16;
  const int64_t parts = std::min({rows * numbers / kLeast, rows, kMost});
  if (parts < 2)
    work(0, rows);
  else
    context.in_parallel(
        parts, [&](size_t part) { work(part * rows / parts, (part + 1) * rows / parts); });
}

struct Operator {
  OperatorTable table;  // first: ONNX Runtime gives us its address
  const char* name;
  std::vector<ElementType> inputs, outputs;
  void (*run)(const Attributes&, const Context&);
};

struct Kernel {
  Attributes attributes;
  void (*run)(const Attributes&, const Context&);
};

inline const Operator& of(const OperatorTable* table) {
  return *reinterpret_cast<const Operator*>(table);
}

inline OperatorTable make_table() {
  OperatorTable table{};
  table.version = kVersion;
  table.name = [](const OperatorTable* t) { return of(t).name; };
  table.provider = [](const OperatorTable*) -> const char* { return nullptr; };
  table.input_type = [](const OperatorTable* t, size_t i) { return int(of(t).inputs[i]); };
  table.input_count = [](const OperatorTable* t) { return of(t).inputs.size(); };
  table.output_type = [](const OperatorTable* t, size_t i) { return int(of(t).outputs[i]); };
  table.output_count = [](const OperatorTable* t) { return of(t).outputs.size(); };
  table.destroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
  table.input_kind = table.output_kind = [](const OperatorTable*, size_t) { return 0; };
  table.input_memory = [](const OperatorTable*, size_t) { return 0; };
  table.least_inputs = table.like_inputs = [](const OperatorTable*) { return 1; };
  table.least_outputs = table.like_outputs = [](const OperatorTable*) { return 1; };
  table.create_v2 = [](const OperatorTable* t, const void*, const void* info, void** kernel) {
    auto made = std::make_unique<Kernel>();
    made->run = of(t).run;
    // An attribute that an operator does not have keeps its default.
    runtime->attribute(Runtime::kGetAttributeInt, info, "num_heads", &made->attributes.heads);
    runtime->attribute(Runtime::kGetAttributeInt, info, "reach", &made->attributes.reach);
    runtime->attribute(Runtime::kGetAttributeFloat, info, "scale", &made->attributes.scale);
    runtime->attribute(Runtime::kGetAttributeFloat, info, "epsilon", &made->attributes.epsilon);
    runtime->attribute(Runtime::kGetAttributeFloat, info, "cap", &made->attributes.cap);
    *kernel = made.release();
    return Status{};
  };
  table.compute_v2 = [](void* kernel, void* context) {
    const Kernel& made = *static_cast<Kernel*>(kernel);
    try {
      made.run(made.attributes, Context(*runtime, context));
    } catch (const std::exception& error) {
      return runtime->call(Runtime::kCreateStatus, kFailed, error.what());
    }
    return Status{};
  };
  table.first_version = [](const OperatorTable*) { return 1; };
  table.last_version = [](const OperatorTable*) { return 1; };
  return table;
}

}  // namespace macaron
