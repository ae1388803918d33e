// The part of ONNX Runtime's C interface that custom operators need.
//
// The interface is a table of functions to which later versions only append
// (https://onnxruntime.ai/docs/reference/compatibility.html), so the places below are valid in all
// of them. The few functions in use are declared here so that users do not need ONNX Runtime's
// headers, which its wheels do not contain.

#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <stdexcept>
#include <string>

namespace macaron {

constexpr uint32_t kVersion = 24;  // of the interface, from ONNX Runtime 1.24

struct RuntimeBase {
  void* const* (*table)(uint32_t version);
  const char* (*version)();
};

enum ElementType : int { kFloat = 1, kUint8 = 2, kInt8 = 3, kInt32 = 6, kInt64 = 7, kBool = 9 };

using Status = void*;  // null is success
constexpr int kFailed = 1;

// The description of an operator, in the layout of the interface (OrtCustomOp).
struct OperatorTable {
  uint32_t version;
  void* (*create)(const OperatorTable*, const void* api, const void* info);
  const char* (*name)(const OperatorTable*);
  const char* (*provider)(const OperatorTable*);
  int (*input_type)(const OperatorTable*, size_t);
  size_t (*input_count)(const OperatorTable*);
  int (*output_type)(const OperatorTable*, size_t);
  size_t (*output_count)(const OperatorTable*);
  void (*compute)(void* kernel, void* context);
  void (*destroy)(void* kernel);
  int (*input_kind)(const OperatorTable*, size_t);
  int (*output_kind)(const OperatorTable*, size_t);
  int (*input_memory)(const OperatorTable*, size_t);
  int (*least_inputs)(const OperatorTable*);
  int (*like_inputs)(const OperatorTable*);
  int (*least_outputs)(const OperatorTable*);
  int (*like_outputs)(const OperatorTable*);
  Status (*create_v2)(const OperatorTable*, const void* api, const void* info, void** kernel);
  Status (*compute_v2)(void* kernel, void* context);
  Status (*infer_shapes)(const OperatorTable*, void* context);
  int (*first_version)(const OperatorTable*);
  int (*last_version)(const OperatorTable*);
  size_t (*may_reuse)(int** inputs, int** outputs);
  void (*release_may_reuse)(int* inputs, int* outputs);
  size_t (*aliases)(int** inputs, int** outputs);
  void (*release_aliases)(int* inputs, int* outputs);
};

class Runtime {
 public:
  explicit Runtime(const RuntimeBase* base) : Runtime(base->table(kVersion)) {}
  explicit Runtime(void* const* table) : table_(table) {}

  template <typename... Arguments>
  Status call(int place, Arguments... arguments) const {
    return reinterpret_cast<Status (*)(Arguments...)>(table_[place])(arguments...);
  }

  // Reads an attribute of a node; `value` stays as it is if the node does not have it.
  template <typename T>
  void attribute(int place, const void* info, const char* name, T* value) const {
    T found;
    if (!ignore(call(place, info, name, &found))) *value = found;
  }

  // Whether a call failed. Releases the status, so the failure is reported nowhere else.
  bool ignore(Status status) const {
    if (status) reinterpret_cast<void (*)(Status)>(table_[kReleaseStatus])(status);
    return status;
  }

  enum Place {
    kCreateStatus = 0,
    kCreateCustomOpDomain = 26,
    kCustomOpDomainAdd = 27,
    kAddCustomOpDomain = 28,
    kGetTensorMutableData = 51,
    kGetAttributeFloat = 85,
    kGetAttributeInt = 86,
    kGetInputCount = 88,
    kGetOutputCount = 89,
    kGetInput = 90,
    kGetOutput = 91,
    kReleaseStatus = 93,
    kAddSessionConfigEntry = 130,
    kHasSessionConfigEntry = 237,
    kGetSessionConfigEntry = 238,
    kGetConstantInput = 249,
    kParallelFor = 274,
    kGetTypeAndShapeReference = 414,
    kPlaces = 415,
  };

 private:
  void* const* table_;
};

// The axes of a tensor, at most 6. They are not on the heap, because an allocation would take as
// long as a small operator.
class Shape {
 public:
  Shape(std::initializer_list<int64_t> axes) : Shape(axes.begin(), axes.size()) {}
  Shape(const int64_t* axes, size_t count) : count_(count) {
    if (count > axes_.size()) throw std::invalid_argument("a tensor has more than 6 axes");
    std::copy(axes, axes + count, axes_.begin());
  }

  size_t size() const { return count_; }
  const int64_t* data() const { return axes_.data(); }
  const int64_t* begin() const { return axes_.data(); }
  const int64_t* end() const { return begin() + count_; }
  int64_t operator[](size_t axis) const { return axes_[axis]; }
  int64_t& axis(size_t number) { return axes_[number]; }
  int64_t& back() { return axes_[last()]; }
  int64_t back() const { return axes_[last()]; }
  bool operator==(const Shape& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

 private:
  size_t last() const {
    if (!count_) throw std::invalid_argument("a tensor must have an axis");
    return count_ - 1;
  }

  std::array<int64_t, 6> axes_{};
  size_t count_;
};

template <typename T>
T* data_of(const Runtime& runtime, const void* value) {
  void* found = nullptr;
  runtime.call(Runtime::kGetTensorMutableData, const_cast<void*>(value), &found);
  return static_cast<T*>(found);
}

// Calls `work` with the axes of a tensor and their number.
template <typename Work>
auto with_axes(const Runtime& runtime, const void* value, Work work) {
  int type = 0;
  const int64_t* axes = nullptr;
  size_t count = 0;
  runtime.call(Runtime::kGetTypeAndShapeReference, value, &type, &axes, &count);
  return work(axes, count);
}

inline Shape shape_of(const Runtime& runtime, const void* value) {
  return with_axes(runtime, value,
                   [](const int64_t* axes, size_t count) { return Shape(axes, count); });
}

// The inputs and outputs of one run of a kernel.
class Context {
 public:
  Context(const Runtime& runtime, void* context) : runtime_(runtime), context_(context) {}

  // Whether an optional input is there.
  bool has(size_t index) const { return value(index); }

  // The numbers of an input; null if an optional input is missing or if an input is empty.
  template <typename T>
  const T* input(size_t index) const {
    const void* found = value(index);
    return found ? data_of<T>(runtime_, found) : nullptr;
  }

  Shape shape(size_t index) const { return shape_of(runtime_, value(index)); }

  // The type of the numbers of an input, an `ElementType`.
  int type(size_t index) const {
    int found = 0;
    const int64_t* axes = nullptr;
    size_t count = 0;
    runtime_.call(Runtime::kGetTypeAndShapeReference, value(index), &found, &axes, &count);
    return found;
  }

  // The numbers of inputs and of outputs of the node.
  size_t count() const { return number(Runtime::kGetInputCount); }
  size_t outputs() const { return number(Runtime::kGetOutputCount); }

  // The axes of an input as text, also if there are more than `Shape` can hold.
  std::string axes(size_t index) const {
    const void* found = value(index);
    if (!found) return "none";
    return with_axes(runtime_, found, [](const int64_t* axes, size_t count) {
      std::string words = "[";
      for (size_t axis = 0; axis < count; ++axis)
        words += (axis ? "," : "") + std::to_string(axes[axis]);
      return words + "]";
    });
  }

  template <typename T>
  T* output(size_t index, const Shape& shape) const {
    void* found = nullptr;
    if (runtime_.ignore(runtime_.call(Runtime::kGetOutput, context_, index, shape.data(),
                                      shape.size(), &found)))
      throw std::runtime_error("ONNX Runtime gave no memory for an output");
    return data_of<T>(runtime_, found);
  }

  // Calls `work` with each number from 0 to `count` - 1, on the session's threads. An exception may
  // not leave a thread that is not ours, so the first one is caught there and thrown again here.
  template <typename Work>
  void in_parallel(size_t count, Work work) const {
    struct Shared {
      Work& work;
      std::atomic_flag failed = ATOMIC_FLAG_INIT;
      std::exception_ptr error{};
    } shared{work};
    void (*call)(void*, size_t) = [](void* all, size_t index) {
      Shared& shared = *static_cast<Shared*>(all);
      try {
        shared.work(index);
      } catch (...) {
        if (!shared.failed.test_and_set()) shared.error = std::current_exception();
      }
    };
    if (runtime_.ignore(runtime_.call(Runtime::kParallelFor, static_cast<const void*>(context_),
                                      call, count, size_t{0}, static_cast<void*>(&shared))))
      throw std::runtime_error("ONNX Runtime could not share the work out");
    if (shared.error) std::rethrow_exception(shared.error);
  }

 private:
  size_t number(int place) const {
    size_t found = 0;
    runtime_.ignore(runtime_.call(place, static_cast<const void*>(context_), &found));
    return found;
  }

  const void* value(size_t index) const {
    const void* found = nullptr;
    runtime_.ignore(
        runtime_.call(Runtime::kGetInput, static_cast<const void*>(context_), index, &found));
    return found;
  }

  const Runtime& runtime_;
  void* context_;
};

}  // namespace macaron
