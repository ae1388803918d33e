// What the standard operators of ONNX that a program (program.h) needs have in common, and which
// they are.
//
// Those that move numbers and those of single numbers equal ONNX Runtime's to the bit. Sums, norms
// and functions of real numbers are rounded in another way; they depend on nothing but their row.

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "layouts.h"
#include "numbers.h"

namespace macaron {

// A standard operator with at least and at most so many inputs. `view` gives the new shape of the
// first input, whose numbers stay in order; `run` does anything else. `check` refuses attributes
// and constants before the first run.
struct Standard {
  Operator op;
  size_t least, most;
  Shape (*view)(const StandardAttributes&, const Context&);
  void (*run)(const StandardAttributes&, const Context&);
  void (*check)(const StandardAttributes&, const void* info);
  int64_t axis;  // the default of this attribute
};

// Calls `work` with the shape of an input if it is constant, before the first run. So calls that
// ONNX Runtime knows and a program does not are left to it.
template <typename Work>
void with_constant(const void* info, size_t input, Work work) {
  int constant = 0;
  const void* found = nullptr;
  runtime().ignore(runtime().call(Runtime::kGetConstantInput, info, input, &constant, &found));
  if (constant) work(shape_of(runtime(), found));
}

inline void require_single(const void* info, size_t input) {
  with_constant(info, input, [](const Shape& shape) {
    require(size_of(shape) == 1, "scale and zero point must be single numbers");
  });
}

inline void check_power(const StandardAttributes&, const void* info) {
  with_constant(info, 1, [](const Shape& shape) {
    require(!shape.size(), "the exponent must be a single number");
  });
}

inline void check_scales(const StandardAttributes&, const void* info) {
  require_single(info, 1);
  require_single(info, 2);
}

inline void check_last_axis(const StandardAttributes& attributes, const void*) {
  require(attributes.axis == -1, "the axis must be the last one");
}

inline void check_norm(const StandardAttributes& attributes, const void* info) {
  check_last_axis(attributes, info);
  for (size_t input : {1, 2})
    with_constant(info, input, [](const Shape& shape) {
      require(shape.size() == 1 && shape[0] > 1, "weight and bias must be as long as the last axis");
    });
}

inline void check_cast(const StandardAttributes& attributes, const void*) {
  require(attributes.to == kFloat, "numbers become real numbers of 32 bits");
}

inline void check_gemm(const StandardAttributes& attributes, const void* info) {
  const char* what = "weight and bias must be [N,K] and [N]";
  require(attributes.turned, what);
  with_constant(info, 1, [&](const Shape& weight) {
    require(weight.size() == 2, what);
    with_constant(info, 2, [&](const Shape& bias) { require(bias == Shape{weight[0]}, what); });
  });
}

struct StandardKernel {
  const Standard& made_by;
  StandardAttributes attributes;
};

inline OperatorTable standard_table() {
  OperatorTable table = make_table();
  table.create_v2 = [](const OperatorTable* t, const void*, const void* info, void** kernel) {
    const Standard& standard = *reinterpret_cast<const Standard*>(t);
    return guarded(standard.op, [&] {
      StandardAttributes found;
      found.axis = standard.axis;
      const auto read = [&](const char* name, int64_t* to) {
        runtime().attribute(Runtime::kGetAttributeInt, info, name, to);
      };
      read("axis", &found.axis);
      read("start", &found.start);
      read("end", &found.end);
      read("num_outputs", &found.parts);
      read("allowzero", &found.allow_zero);
      read("batch_dims", &found.batches);
      read("keepdims", &found.keep_axes);
      read("to", &found.to);
      read("transB", &found.turned);
      for (size_t axis = 0; axis < found.order.size(); ++axis)
        read(("perm." + std::to_string(axis)).c_str(), &found.order[axis]);
      runtime().attribute(Runtime::kGetAttributeFloat, info, "epsilon", &found.epsilon);
      if (standard.check) standard.check(found, info);
      *kernel = new StandardKernel{standard, found};
    });
  };
  table.compute_v2 = [](void* kernel, void* context) {
    const StandardKernel& made = *static_cast<StandardKernel*>(kernel);
    return guarded_run(made.made_by.op, context,
                       [&](const Context& given) { made.made_by.run(made.attributes, given); });
  };
  table.destroy = [](void* kernel) { delete static_cast<StandardKernel*>(kernel); };
  return table;
}

// An operator that changes nothing but the shape of its first input.
inline Standard view_of(const char* name, size_t least, std::vector<ElementType> inputs,
                        Shape (*view)(const StandardAttributes&, const Context&)) {
  const size_t most = inputs.size();
  return {{standard_table(), name, std::move(inputs), {kAny}, nullptr}, least, most, view, nullptr,
          nullptr, 0};
}

inline Standard standard_of(const char* name, size_t least, std::vector<ElementType> inputs,
                            ElementType output,
                            void (*run)(const StandardAttributes&, const Context&),
                            int64_t axis = 0,
                            void (*check)(const StandardAttributes&, const void*) = nullptr) {
  const size_t most = inputs.size();
  return {{standard_table(), name, std::move(inputs), {output}, nullptr}, least, most, nullptr, run,
          check, axis};
}

inline const std::vector<Standard>& standards() {
  static const std::vector<Standard> all = [] {
    std::vector<Standard> made{
        view_of("Identity", 1, {kAny}, unchanged),
        view_of("Reshape", 2, {kAny, kInt64}, reshaped),
        view_of("Squeeze", 1, {kAny, kInt64}, squeezed),
        view_of("Unsqueeze", 2, {kAny, kInt64}, unsqueezed),
        standard_of("Shape", 1, {kAny}, kInt64, shape_op),
        standard_of("Expand", 2, {kAny, kInt64}, kAny, expand_op),
        standard_of("Slice", 3, {kAny, kInt64, kInt64, kInt64, kInt64}, kAny, slice_op),
        standard_of("Transpose", 1, {kAny}, kAny, transpose_op),
        standard_of("Split", 1, {kAny, kInt64}, kAny, split_op),
        {{standard_table(), "Concat", {kAny}, {kAny}, nullptr}, 1, SIZE_MAX, nullptr, concat_op,
         nullptr, 0},
        standard_of("Gather", 2, {kAny, kInt64}, kAny, gather_op),
        standard_of("GatherElements", 2, {kAny, kInt64}, kAny, gather_elements_op),
        standard_of("GatherND", 2, {kAny, kInt64}, kAny, gather_nd_op),
        standard_of("TensorScatter", 2, {kAny, kAny, kInt64}, kAny, tensor_scatter_op, -2),
        standard_of("ConstantOfShape", 1, {kInt64}, kFloat, zeros_op),
        standard_of("Range", 3, {kInt64, kInt64, kInt64}, kInt64, range_op),
        standard_of("Cast", 1, {kNumber}, kFloat, cast_op, 0, check_cast),
        standard_of("Clip", 1, {kNumber, kNumber, kNumber}, kNumber, clip_op),
        standard_of("Add", 2, {kNumber, kNumber}, kNumber, pairs_op<Sum>),
        standard_of("Sub", 2, {kNumber, kNumber}, kNumber, pairs_op<Difference>),
        standard_of("Mul", 2, {kNumber, kNumber}, kNumber, pairs_op<Multiplied>),
        standard_of("Div", 2, {kFloat, kFloat}, kFloat, pairs_op<Quotient>),
        standard_of("Less", 2, {kNumber, kNumber}, kBool, compare_op<std::less>),
        standard_of("Greater", 2, {kNumber, kNumber}, kBool, compare_op<std::greater>),
        standard_of("GreaterOrEqual", 2, {kNumber, kNumber}, kBool, compare_op<std::greater_equal>),
        standard_of("Equal", 2, {kNumber, kNumber}, kBool, compare_op<std::equal_to>),
        standard_of("And", 2, {kBool, kBool}, kBool, logic_op<std::logical_and>),
        standard_of("Or", 2, {kBool, kBool}, kBool, logic_op<std::logical_or>),
        standard_of("Not", 1, {kBool}, kBool, not_op),
        standard_of("Where", 3, {kBool, kNumber, kNumber}, kNumber, where_op),
        standard_of("Relu", 1, {kFloat}, kFloat, each_op<relu>),
        standard_of("Sqrt", 1, {kFloat}, kFloat, each_op<root>),
        standard_of("Sin", 1, {kFloat}, kFloat, each_op<sine>),
        standard_of("Cos", 1, {kFloat}, kFloat, each_op<cosine>),
        standard_of("Tanh", 1, {kFloat}, kFloat, lanes_op<hyperbolic_tangent>),
        standard_of("Sigmoid", 1, {kFloat}, kFloat, lanes_op<sigmoid>),
        standard_of("Gelu", 1, {kFloat}, kFloat, lanes_op<gelu>),
        standard_of("Softmax", 1, {kFloat}, kFloat, softmax_op, -1, check_last_axis),
        standard_of("Pow", 2, {kFloat, kFloat}, kFloat, pow_op, 0, check_power),
        standard_of("ReduceSum", 2, {kFloat, kInt64}, kFloat, reduce_op<Summed>),
        standard_of("ReduceMean", 2, {kFloat, kInt64}, kFloat, reduce_op<Mean>),
        standard_of("ReduceL2", 2, {kFloat, kInt64}, kFloat, reduce_op<Norm>),
        standard_of("LayerNormalization", 2, {kFloat, kFloat, kFloat}, kFloat, layer_norm_op, -1,
                    check_norm),
        standard_of("RMSNormalization", 2, {kFloat, kFloat}, kFloat, rms_norm_op, -1,
                    check_norm),
        standard_of("Gemm", 2, {kFloat, kFloat, kFloat}, kFloat, gemm_op, 0, check_gemm),
        standard_of("QuantizeLinear", 3, {kFloat, kFloat, kUint8}, kUint8, quantize_op, 0,
                    check_scales),
    };
    return made;
  }();
  return all;
}

}  // namespace macaron
