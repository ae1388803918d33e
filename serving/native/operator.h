// What all custom operators need: their description for ONNX Runtime, attributes, checks of shapes.

#pragma once

#include <algorithm>
#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime.h"

namespace macaron {

inline const Runtime* sessions_runtime = nullptr;  // set by RegisterCustomOps
inline thread_local const Runtime* program_runtime = nullptr;  // set while a program works

// What kernels get their tensors from: ONNX Runtime, or the program that this thread works for.
inline const Runtime& runtime() { return program_runtime ? *program_runtime : *sessions_runtime; }

struct Attributes {
  int64_t heads = 1, reach = 0;
  float scale = 1.0f, epsilon = 1e-5f, cap = 0.0f;
};

inline int64_t size_of(const Shape& shape) {
  int64_t size = 1;
  for (int64_t axis : shape) size *= axis;
  return size;
}

// The number of rows of a tensor: the product of all axes but the last, which may be 0.
inline int64_t rows_of(Shape shape) {
  shape.back() = 1;
  return size_of(shape);
}

// Kernels refuse inputs that would make them read or write out of bounds, as the standard operators
// do.
inline void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

// Refuses an input unless all its numbers are at least `least` and less than `size`.
inline void require_within(const Context& context, size_t input, int64_t least, int64_t size,
                           const char* what) {
  const int64_t* numbers = context.input<int64_t>(input);
  const int64_t* end = numbers + size_of(context.shape(input));
  const int64_t* found = std::find_if(
      numbers, end, [=](int64_t number) { return number < least || number >= size; });
  if (found != end)
    throw std::invalid_argument(std::string(what) + ": input " + std::to_string(input) +
                                " must be from " + std::to_string(least) + " to " +
                                std::to_string(size - 1) + ", and has " + std::to_string(*found));
}

// The number in an input that must have exactly one.
template <typename T>
T number_of(const Context& context, size_t input, const char* what) {
  require(size_of(context.shape(input)) == 1, what);
  return *context.input<T>(input);
}

// Calls `work` with ranges that make up the rows from 0 to `rows`, on several threads if that is
// worth it. `numbers` is the time for one row, as the floats that could be read in it.
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
  OperatorTable table;  // must be first: ONNX Runtime gives us its address
  const char* name;
  std::vector<ElementType> inputs, outputs;
  void (*run)(const Attributes&, const Context&);
};

struct Kernel {
  const Operator& made_by;
  Attributes attributes;
};

inline const Operator& of(const OperatorTable* table) {
  return *reinterpret_cast<const Operator*>(table);
}

// Calls `work`, and returns an exception that it throws as a failure of the operator. No exception
// may reach ONNX Runtime, because its interface is in C.
template <typename Work>
Status guarded(const Operator& self, Work work) {
  try {
    work();
    return Status{};
  } catch (const std::exception& error) {
    std::array<char, 640> message;  // not on the heap: memory may have run out
    std::snprintf(message.data(), message.size(), "%s: %s", self.name, error.what());
    return runtime().call(Runtime::kCreateStatus, kFailed,
                         static_cast<const char*>(message.data()));
  }
}

// Calls `work` with the context of a run. If `work` refuses the inputs, the message has their
// shapes.
template <typename Work>
Status guarded_run(const Operator& self, void* context, Work work) {
  return guarded(self, [&] {
    const Context given(runtime(), context);
    try {
      work(given);
    } catch (const std::invalid_argument& error) {
      std::string message = std::string(error.what()) + "; inputs are";
      for (size_t i = 0; i < self.inputs.size(); ++i)
        message += (i ? ", " : " ") + given.axes(i);
      throw std::invalid_argument(message);
    }
  });
}

// An input that must be constant, so that it is known before the first run.
inline const void* constant_input(const void* info, size_t input, const char* what) {
  int constant = 0;
  const void* found = nullptr;
  runtime().ignore(
      runtime().call(Runtime::kGetConstantInput, info, input, &constant, &found));
  require(constant, what);
  return found;
}

// The sum of this many products of 8 bits cannot overflow 32 bits: 65536 * 255 * 128 < 2^31.
inline void require_few_inputs(int64_t inputs) {
  if (inputs > 1 << 16)
    throw std::invalid_argument("products of 8 bits must have at most 65536 inputs, got " +
                                std::to_string(inputs));
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
    return guarded(of(t), [&] {
      Attributes found;  // an attribute that an operator does not have keeps its default
      runtime().attribute(Runtime::kGetAttributeInt, info, "num_heads", &found.heads);
      runtime().attribute(Runtime::kGetAttributeInt, info, "reach", &found.reach);
      runtime().attribute(Runtime::kGetAttributeFloat, info, "scale", &found.scale);
      runtime().attribute(Runtime::kGetAttributeFloat, info, "epsilon", &found.epsilon);
      runtime().attribute(Runtime::kGetAttributeFloat, info, "cap", &found.cap);
      *kernel = new Kernel{of(t), found};
    });
  };
  table.compute_v2 = [](void* kernel, void* context) {
    const Kernel& made = *static_cast<Kernel*>(kernel);
    return guarded_run(made.made_by, context, [&](const Context& given) {
      made.made_by.run(made.attributes, given);
    });
  };
  table.first_version = [](const OperatorTable*) { return 1; };
  table.last_version = [](const OperatorTable*) { return 1; };
  return table;
}

}  // namespace macaron
