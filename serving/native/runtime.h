// As much of ONNX Runtime's C interface as custom operators need.
//
// The interface is a table of functions to which later versions only append
// (https://onnxruntime.ai/docs/reference/compatibility.html), so that the places below hold for all
// of them. Declaring the few that are used spares users the headers, which no package brings.

#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace macaron {

constexpr uint32_t kVersion = 23;  // of the interface; ONNX Runtime 1.23

struct RuntimeBase {
  void* const* (*table)(uint32_t version);
  const char* (*version)();
};

enum ElementType { kFloat = 1, kUint8 = 2, kInt8 = 3, kInt32 = 6, kInt64 = 7 };

using Status = void*;  // null is success
constexpr int kFailed = 1;

// An operator's description, in the interface's own layout.
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
  explicit Runtime(const RuntimeBase* base) : table_(base->table(kVersion)) {}

  template <typename... Arguments>
  Status call(int place, Arguments... arguments) const {
    return reinterpret_cast<Status (*)(Arguments...)>(table_[place])(arguments...);
  }

  // Leaves `value` as it is where a node has no such attribute.
  template <typename T>
  void attribute(int place, const void* info, const char* name, T* value) const {
    T found;
    if (Status none = call(place, info, name, &found))
      reinterpret_cast<void (*)(Status)>(table_[kReleaseStatus])(none);
    else
      *value = found;
  }

  enum Place {
    kCreateStatus = 0,
    kCreateCustomOpDomain = 26,
    kCustomOpDomainAdd = 27,
    kAddCustomOpDomain = 28,
    kGetTensorMutableData = 51,
    kGetDimensionsCount = 61,
    kGetDimensions = 62,
    kGetTensorTypeAndShape = 65,
    kGetAttributeFloat = 85,
    kGetAttributeInt = 86,
    kGetInput = 90,
    kGetOutput = 91,
    kReleaseStatus = 93,
    kReleaseTensorTypeAndShapeInfo = 99,
    kHasSessionConfigEntry = 237,
    kGetConstantInput = 249,
    kParallelFor = 274,
  };

 private:
  void* const* table_;
};

using Shape = std::vector<int64_t>;

template <typename T>
T* data_of(const Runtime& runtime, const void* value) {
  void* found = nullptr;
  runtime.call(Runtime::kGetTensorMutableData, const_cast<void*>(value), &found);
  return static_cast<T*>(found);
}

inline Shape shape_of(const Runtime& runtime, const void* value) {
  void* info = nullptr;
  runtime.call(Runtime::kGetTensorTypeAndShape, value, &info);
  size_t count = 0;
  runtime.call(Runtime::kGetDimensionsCount, static_cast<const void*>(info), &count);
  Shape shape(count);
  runtime.call(Runtime::kGetDimensions, static_cast<const void*>(info), shape.data(), count);
  runtime.call(Runtime::kReleaseTensorTypeAndShapeInfo, info);
  return shape;
}

// What a kernel gets and gives in one run.
class Context {
 public:
  Context(const Runtime& runtime, void* context) : runtime_(runtime), context_(context) {}

  // Null where an optional one is missing.
  template <typename T>
  const T* input(size_t index) const {
    const void* found = value(index);
    return found ? data_of<T>(runtime_, found) : nullptr;
  }

  Shape shape(size_t index) const { return shape_of(runtime_, value(index)); }

  template <typename T>
  T* output(size_t index, const Shape& shape) const {
    void* found = nullptr;
    runtime_.call(Runtime::kGetOutput, context_, index, shape.data(), shape.size(), &found);
    return data_of<T>(runtime_, found);
  }

  // Calls `work` with the numbers from 0 to `count`, on the session's threads.
  template <typename Work>
  void in_parallel(size_t count, Work work) const {
    void (*call)(void*, size_t) = [](void* all, size_t index) { (*static_cast<Work*>(all))(index); };
    if (runtime_.call(Runtime::kParallelFor, static_cast<const void*>(context_), call, count,
                      size_t{0}, static_cast<void*>(&work)))
      throw std::runtime_error("ONNX Runtime could not share the work out");
  }

 private:
  const void* value(size_t index) const {
    const void* found = nullptr;
    runtime_.call(Runtime::kGetInput, static_cast<const void*>(context_), index, &found);
    return found;
  }

  const Runtime& runtime_;
  void* context_;
};

}  // namespace macaron
