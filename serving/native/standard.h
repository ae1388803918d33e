// The standard operators of ONNX that a program (program.h) needs: those that change the layout of
// tensors, and those of single numbers. Their results equal ONNX Runtime's to the bit.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "operator.h"

namespace macaron {

struct StandardAttributes {
  int64_t axis = 0, start = 0, end = std::numeric_limits<int64_t>::max(), parts = 0;
};

constexpr ElementType kAny = ElementType(0);  // as an output: the type of the first input

// A standard operator with at least and at most so many inputs. `view` gives the new shape of the
// first input, whose numbers stay in order; `run` does anything else.
struct Standard {
  Operator op;
  size_t least, most;
  Shape (*view)(const Context&);
  void (*run)(const StandardAttributes&, const Context&);
};

inline int64_t width_of(int type) {
  switch (type) {
    case kUint8:
    case kInt8:
      return 1;
    case kFloat:
    case kInt32:
      return 4;
    case kInt64:
      return 8;
  }
  throw std::invalid_argument("a tensor has an unknown type");
}

// An axis of `count`, counted from the end if it is negative.
inline size_t axis_of(int64_t axis, int64_t count, const char* what) {
  if (axis < 0) axis += count;
  require(axis >= 0 && axis < count, what);
  return axis;
}

// The axes that an input lists, as marks on the `count` axes of a shape.
inline std::array<bool, 6> marked(const Context& context, size_t input, size_t count,
                                  const char* what) {
  require(count <= 6, what);
  std::array<bool, 6> marks{};
  const int64_t* axes = context.input<int64_t>(input);
  for (int64_t i = 0; i < size_of(context.shape(input)); ++i) {
    bool& mark = marks[axis_of(axes[i], count, what)];
    require(!mark, what);
    mark = true;
  }
  return marks;
}

inline Shape unsqueezed(const Context& context) {
  const char* what = "axes must be different ones of the output, of at most 6";
  const Shape shape = context.shape(0);
  const size_t count = shape.size() + size_of(context.shape(1));
  const std::array<bool, 6> added = marked(context, 1, count, what);
  std::array<int64_t, 6> axes{};
  size_t from = 0;
  for (size_t axis = 0; axis < count; ++axis) axes[axis] = added[axis] ? 1 : shape[from++];
  return Shape(axes.data(), count);
}

inline Shape squeezed(const Context& context) {
  const char* what = "axes must be different ones of size 1";
  const Shape shape = context.shape(0);
  std::array<bool, 6> dropped{};
  if (context.has(1))
    dropped = marked(context, 1, shape.size(), what);
  else
    for (size_t axis = 0; axis < shape.size(); ++axis) dropped[axis] = shape[axis] == 1;
  std::array<int64_t, 6> axes{};
  size_t count = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    require(!dropped[axis] || shape[axis] == 1, what);
    if (!dropped[axis]) axes[count++] = shape[axis];
  }
  return Shape(axes.data(), count);
}

inline Shape reshaped(const Context& context) {
  const char* what = "the new shape must have as many numbers";
  const Shape shape = context.shape(0);
  const int64_t* wanted = context.input<int64_t>(1);
  const int64_t count = size_of(context.shape(1)), size = size_of(shape);
  require(count <= 6, "a tensor has more than 6 axes");
  std::array<int64_t, 6> axes{};
  int64_t open = -1, known = 1;
  for (int64_t axis = 0; axis < count; ++axis) {
    axes[axis] = wanted[axis];
    if (wanted[axis] == 0) axes[axis] = shape[axis_of(axis, shape.size(), what)];
    if (wanted[axis] == -1) {
      require(open < 0, what);
      open = axis;
    } else {
      require(axes[axis] >= 0, what);
      known *= axes[axis];
    }
  }
  if (open >= 0) {
    require(known > 0 && size % known == 0, what);
    axes[open] = size / known;
  } else {
    require(known == size, what);
  }
  return Shape(axes.data(), count);
}

inline Shape unchanged(const Context& context) { return context.shape(0); }

// data -> its axes from `start` to `end`
inline void shape_op(const StandardAttributes& attributes, const Context& context) {
  const Shape shape = context.shape(0);
  const int64_t count = shape.size();
  const auto place = [&](int64_t axis) {
    return std::clamp<int64_t>(axis < 0 ? axis + count : axis, 0, count);
  };
  const int64_t start = place(attributes.start), end = std::max(start, place(attributes.end));
  int64_t* out = context.output<int64_t>(0, {end - start});
  std::copy(shape.begin() + start, shape.begin() + end, out);
}

// start, limit, delta -> the numbers from `start` to before `limit`
inline void range_op(const StandardAttributes&, const Context& context) {
  const char* what = "start, limit and delta must be single numbers, and delta not 0";
  const int64_t start = number_of<int64_t>(context, 0, what);
  const int64_t limit = number_of<int64_t>(context, 1, what);
  const int64_t delta = number_of<int64_t>(context, 2, what);
  require(delta != 0, what);
  const int64_t way = delta > 0 ? limit - start : start - limit, step = std::abs(delta);
  const int64_t count = way > 0 ? (way - 1) / step + 1 : 0;
  int64_t* out = context.output<int64_t>(0, {count});
  for (int64_t i = 0; i < count; ++i) out[i] = start + i * delta;
}

// numbers, lowest, highest -> the numbers, cut off at these, either of which may be missing
inline void clip_op(const StandardAttributes&, const Context& context) {
  const char* what = "the lowest and the highest must be single numbers";
  const Shape shape = context.shape(0);
  const int64_t least =
      context.has(1) ? number_of<int64_t>(context, 1, what) : std::numeric_limits<int64_t>::min();
  const int64_t most =
      context.has(2) ? number_of<int64_t>(context, 2, what) : std::numeric_limits<int64_t>::max();
  const int64_t* x = context.input<int64_t>(0);
  int64_t* out = context.output<int64_t>(0, shape);
  for (int64_t i = 0; i < size_of(shape); ++i) out[i] = std::min(std::max(x[i], least), most);
}

// Tensors -> one, in which they lie behind one another along an axis
inline void concat_op(const StandardAttributes& attributes, const Context& context) {
  const char* what = "tensors must have the same shape but for the axis";
  Shape shape = context.shape(0);
  const size_t axis = axis_of(attributes.axis, shape.size(), what);
  const int64_t width = width_of(context.type(0));
  int64_t outer = 1, inner = width;
  for (size_t i = 0; i < shape.size(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : shape[i];
  const size_t count = context.count();
  for (size_t i = 1; i < count; ++i) {
    Shape other = context.shape(i);
    require(context.type(i) == context.type(0) && other.size() == shape.size(), what);
    shape.axis(axis) += other[axis];
    other.axis(axis) = shape[axis];
    require(other == shape, what);
  }
  char* out = context.output<char>(0, shape);
  for (int64_t row = 0; row < outer; ++row)
    for (size_t i = 0; i < count; ++i) {
      const int64_t size = context.shape(i)[axis] * inner;
      if (size) std::memcpy(out, context.input<char>(i) + row * size, size);
      out += size;
    }
}

// The shape that two broadcast ones have together.
inline Shape together(const Shape& a, const Shape& b) {
  const size_t count = std::max(a.size(), b.size());
  std::array<int64_t, 6> axes{};
  for (size_t i = 0; i < count; ++i) {
    const int64_t left = i + a.size() < count ? 1 : a[i + a.size() - count];
    const int64_t right = i + b.size() < count ? 1 : b[i + b.size() - count];
    require(left == right || left == 1 || right == 1, "the shapes do not fit together");
    axes[i] = left == 1 ? right : left;
  }
  return Shape(axes.data(), count);
}

// Where the numbers of a broadcast tensor lie, in the order of the shape that it is broadcast to.
inline std::vector<int64_t> broadcast(const Shape& shape, const Shape& to) {
  std::vector<int64_t> places(1, 0);
  int64_t stride = 1;
  for (size_t axis = to.size(); axis-- > 0;) {
    const size_t missing = to.size() - shape.size();
    const int64_t own = axis < missing ? 1 : shape[axis - missing];
    std::vector<int64_t> next;
    next.reserve(places.size() * to[axis]);
    for (int64_t i = 0; i < to[axis]; ++i)
      for (int64_t place : places) next.push_back(place + (own == 1 ? 0 : i * stride));
    places = std::move(next);
    stride *= own;
  }
  return places;
}

// data, shape -> data, broadcast to a shape that it fits together with
inline void expand_op(const StandardAttributes&, const Context& context) {
  const Shape shape = context.shape(0);
  const int64_t* wanted = context.input<int64_t>(1);
  for (int64_t i = 0; i < size_of(context.shape(1)); ++i)
    require(wanted[i] >= 0, "sizes must not be negative");
  const Shape whole = together(shape, Shape(wanted, size_of(context.shape(1))));
  const int64_t width = width_of(context.type(0)), size = size_of(whole);
  const char* from = context.input<char>(0);
  char* out = context.output<char>(0, whole);
  if (size_of(shape) == size) {
    if (size) std::memcpy(out, from, size * width);
    return;
  }
  const std::vector<int64_t> places = broadcast(shape, whole);
  for (int64_t i = 0; i < size; ++i) std::memcpy(out + i * width, from + places[i] * width, width);
}

// a, b -> their products
inline void mul_op(const StandardAttributes&, const Context& context) {
  const Shape first = context.shape(0), second = context.shape(1);
  const Shape whole = together(first, second);
  const float* a = context.input<float>(0);
  const float* b = context.input<float>(1);
  const int64_t size = size_of(whole);
  float* out = context.output<float>(0, whole);
  if (size_of(second) == 1) {
    for (int64_t i = 0; i < size; ++i) out[i] = a[i] * b[0];
    return;
  }
  const std::vector<int64_t> left = broadcast(first, whole), right = broadcast(second, whole);
  for (int64_t i = 0; i < size; ++i) out[i] = a[left[i]] * b[right[i]];
}

inline void relu_op(const StandardAttributes&, const Context& context) {
  const Shape shape = context.shape(0);
  const float* x = context.input<float>(0);
  float* out = context.output<float>(0, shape);
  for (int64_t i = 0; i < size_of(shape); ++i) out[i] = x[i] < 0.0f ? 0.0f : x[i];
}

// x, scale, zero point -> x in 8 bits. It divides as the standard says; `quantize` multiplies by
// the inverse, which may round differently.
inline void quantize_op(const StandardAttributes&, const Context& context) {
  const char* what = "scale and zero point must be single numbers";
  const Shape shape = context.shape(0);
  const float scale = number_of<float>(context, 1, what);
  const int zero_point = number_of<uint8_t>(context, 2, what);
  const float lowest = static_cast<float>(-zero_point), highest = lowest + 255.0f;
  const int64_t size = size_of(shape);
  const float* x = context.input<float>(0);
  uint8_t* out = context.output<uint8_t>(0, shape);
  for (int64_t i = 0; i < size; ++i) {
    float scaled = x[i] / scale;
    scaled = scaled > lowest ? scaled : lowest;  // NaN becomes the lowest
    scaled = scaled > highest ? highest : scaled;
    out[i] = static_cast<uint8_t>(
        static_cast<int32_t>((scaled + 12582912.0f) - 12582912.0f) + zero_point);
  }
}

// data, and maybe the sizes of the parts -> parts of it along an axis, equal ones if there are no
// sizes
inline void split_op(const StandardAttributes& attributes, const Context& context) {
  const char* what = "the parts must make up the axis";
  Shape shape = context.shape(0);
  const size_t axis = axis_of(attributes.axis, shape.size(), what);
  const int64_t whole = shape[axis], count = context.outputs();
  require(context.has(1) ? size_of(context.shape(1)) == count : attributes.parts == count, what);
  int64_t outer = 1, inner = width_of(context.type(0));
  for (size_t i = 0; i < shape.size(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : shape[i];
  const char* from = context.input<char>(0);
  int64_t done = 0;
  for (int64_t part = 0; part < count; ++part) {
    const int64_t equal = (whole + count - 1) / count;
    const int64_t own =
        context.has(1) ? context.input<int64_t>(1)[part] : std::min(equal, whole - done);
    require(own >= 0 && done + own <= whole, what);
    shape.axis(axis) = own;
    char* out = context.output<char>(part, shape);
    for (int64_t row = 0; row < outer && own > 0; ++row)
      std::memcpy(out + row * own * inner, from + (row * whole + done) * inner, own * inner);
    done += own;
  }
  require(done == whole, what);
}

// Refuses a constant input that is not a single number, before the first run.
inline void require_single(const void* info, size_t input) {
  int constant = 0;
  const void* found = nullptr;
  runtime().ignore(runtime().call(Runtime::kGetConstantInput, info, input, &constant, &found));
  require(!constant || size_of(shape_of(runtime(), found)) == 1,
          "scale and zero point must be single numbers");
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
      runtime().attribute(Runtime::kGetAttributeInt, info, "axis", &found.axis);
      runtime().attribute(Runtime::kGetAttributeInt, info, "start", &found.start);
      runtime().attribute(Runtime::kGetAttributeInt, info, "end", &found.end);
      runtime().attribute(Runtime::kGetAttributeInt, info, "num_outputs", &found.parts);
      if (standard.run == quantize_op) {
        require_single(info, 1);
        require_single(info, 2);
      }
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

inline std::array<Standard, 13>& standards() {
  static std::array<Standard, 13> all{{
      {{standard_table(), "Identity", {kAny}, {kAny}, nullptr}, 1, 1, unchanged, nullptr},
      {{standard_table(), "Reshape", {kAny, kInt64}, {kAny}, nullptr}, 2, 2, reshaped, nullptr},
      {{standard_table(), "Squeeze", {kAny, kInt64}, {kAny}, nullptr}, 1, 2, squeezed, nullptr},
      {{standard_table(), "Unsqueeze", {kAny, kInt64}, {kAny}, nullptr}, 2, 2, unsqueezed, nullptr},
      {{standard_table(), "Shape", {kAny}, {kInt64}, nullptr}, 1, 1, nullptr, shape_op},
      {{standard_table(), "Range", {kInt64, kInt64, kInt64}, {kInt64}, nullptr}, 3, 3, nullptr, range_op},
      {{standard_table(), "Clip", {kInt64, kInt64, kInt64}, {kInt64}, nullptr}, 1, 3, nullptr, clip_op},
      {{standard_table(), "Concat", {kAny}, {kAny}, nullptr}, 1, SIZE_MAX, nullptr, concat_op},
      {{standard_table(), "Expand", {kAny, kInt64}, {kAny}, nullptr}, 2, 2, nullptr, expand_op},
      {{standard_table(), "Mul", {kFloat, kFloat}, {kFloat}, nullptr}, 2, 2, nullptr, mul_op},
      {{standard_table(), "Relu", {kFloat}, {kFloat}, nullptr}, 1, 1, nullptr, relu_op},
      {{standard_table(), "QuantizeLinear", {kFloat, kFloat, kUint8}, {kUint8}, nullptr}, 3, 3, nullptr,
       quantize_op},
      {{standard_table(), "Split", {kAny, kInt64}, {kAny}, nullptr}, 1, 2, nullptr, split_op},
  }};
  return all;
}

}  // namespace macaron
