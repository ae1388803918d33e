// The standard operators of ONNX that compute: single numbers, sums, norms.

#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels.h"
#include "strides.h"

namespace macaron {

// Calls `work` with a number of the type that the inputs from `input` on have.
template <typename Work>
void by_type(const Context& context, size_t input, Work work) {
  if (context.type(input) == kFloat)
    work(float{});
  else
    work(int64_t{});
}

// start, limit, delta -> the numbers from `start` to before `limit`
inline void range_op(const StandardAttributes&, const Context& context) {
  const char* what = "start, limit and delta must be single numbers, and delta not 0";
  const int64_t start = number_of<int64_t>(context, 0, what);
  const int64_t limit = number_of<int64_t>(context, 1, what);
  const int64_t delta = number_of<int64_t>(context, 2, what);
  require(delta != 0, what);
  int64_t way = 0;
  const bool up = delta > 0, far = up ? __builtin_sub_overflow(limit, start, &way)
                                      : __builtin_sub_overflow(start, limit, &way);
  require(!far && delta > kUnset, what);
  const int64_t count = way > 0 ? (way - 1) / (up ? delta : -delta) + 1 : 0;
  int64_t* out = context.output<int64_t>(0, {count});
  for (int64_t i = 0; i < count; ++i) out[i] = start + i * delta;
}

// numbers, lowest, highest -> the numbers, cut off at these, either of which may be missing
inline void clip_op(const StandardAttributes&, const Context& context) {
  const char* what = "the lowest and the highest must be single numbers";
  by_type(context, 0, [&](auto type) {
    using T = decltype(type);
    const Shape shape = context.shape(0);
    const T least = context.has(1) ? number_of<T>(context, 1, what) : std::numeric_limits<T>::lowest();
    const T most = context.has(2) ? number_of<T>(context, 2, what) : std::numeric_limits<T>::max();
    const T* x = context.input<T>(0);
    T* out = context.output<T>(0, shape);
    const int64_t size = size_of(shape);
    for (int64_t i = 0; i < size; ++i) out[i] = std::min(std::max(x[i], least), most);
  });
}

// Writes the first output: an operation on the numbers of two inputs, which are broadcast.
template <typename T, typename Out, typename Operation>
void on_pairs(const Context& context, Operation operation) {
  const Shape first = context.shape(0), second = context.shape(1);
  const Shape whole = together(first, second);
  const T* a = context.input<T>(0);
  const T* b = context.input<T>(1);
  Out* out = context.output<Out>(0, whole);
  each_row<2>(whole, {broadcast_strides(first, whole), broadcast_strides(second, whole)},
              [&](int64_t begin, int64_t count, auto& place, auto& step) {
                const T *x = a + place[0], *y = b + place[1];
                Out* to = out + begin;
                if (count > 1 && step[0] && step[1])
                  for (int64_t i = 0; i < count; ++i) to[i] = operation(x[i], y[i]);
                else if (count > 1 && step[0])
                  for (int64_t i = 0; i < count; ++i) to[i] = operation(x[i], *y);
                else
                  for (int64_t i = 0; i < count; ++i) to[i] = operation(*x, y[count > 1 ? i : 0]);
              });
}

// Whole numbers that are too large go round, as the processor's do.
struct Sum {
  float operator()(float a, float b) const { return a + b; }
  int64_t operator()(int64_t a, int64_t b) const { return int64_t(uint64_t(a) + uint64_t(b)); }
};
struct Difference {
  float operator()(float a, float b) const { return a - b; }
  int64_t operator()(int64_t a, int64_t b) const { return int64_t(uint64_t(a) - uint64_t(b)); }
};
struct Multiplied {
  float operator()(float a, float b) const { return a * b; }
  int64_t operator()(int64_t a, int64_t b) const { return int64_t(uint64_t(a) * uint64_t(b)); }
};
struct Quotient {
  float operator()(float a, float b) const { return a / b; }
};

// a, b -> the operation on them
template <typename Operation>
void pairs_op(const StandardAttributes&, const Context& context) {
  by_type(context, 0, [&](auto type) {
    on_pairs<decltype(type), decltype(type)>(context, Operation{});
  });
}

template <>
inline void pairs_op<Quotient>(const StandardAttributes&, const Context& context) {
  on_pairs<float, float>(context, Quotient{});
}

// a, b -> whether they compare so
template <template <typename> typename Compare>
void compare_op(const StandardAttributes&, const Context& context) {
  by_type(context, 0, [&](auto type) {
    using T = decltype(type);
    on_pairs<T, uint8_t>(context, [](T a, T b) -> uint8_t { return Compare<T>{}(a, b); });
  });
}

// Truth values are bytes, of which each but 0 is true.
template <template <typename> typename Combine>
void logic_op(const StandardAttributes&, const Context& context) {
  on_pairs<uint8_t, uint8_t>(
      context, [](uint8_t a, uint8_t b) -> uint8_t { return Combine<bool>{}(a, b); });
}

inline void not_op(const StandardAttributes&, const Context& context) {
  const Shape shape = context.shape(0);
  const uint8_t* x = context.input<uint8_t>(0);
  uint8_t* out = context.output<uint8_t>(0, shape);
  const int64_t size = size_of(shape);
  for (int64_t i = 0; i < size; ++i) out[i] = !x[i];
}

// condition, a, b -> a where the condition holds, else b
inline void where_op(const StandardAttributes&, const Context& context) {
  by_type(context, 1, [&](auto type) {
    using T = decltype(type);
    const Shape one = context.shape(0), two = context.shape(1), three = context.shape(2);
    const Shape whole = together(together(one, two), three);
    const uint8_t* holds = context.input<uint8_t>(0);
    const T* a = context.input<T>(1);
    const T* b = context.input<T>(2);
    T* out = context.output<T>(0, whole);
    each_row<3>(whole,
                {broadcast_strides(one, whole), broadcast_strides(two, whole),
                 broadcast_strides(three, whole)},
                [&](int64_t begin, int64_t count, auto& place, auto& step) {
                  for (int64_t i = 0; i < count; ++i)
                    out[begin + i] = holds[place[0] + i * step[0]] ? a[place[1] + i * step[1]]
                                                                   : b[place[2] + i * step[2]];
                });
  });
}

// x -> a function of each of its numbers
template <float (*function)(float)>
void each_op(const StandardAttributes&, const Context& context) {
  const Shape shape = context.shape(0);
  const float* x = context.input<float>(0);
  float* out = context.output<float>(0, shape);
  const int64_t size = size_of(shape);
  for (int64_t i = 0; i < size; ++i) out[i] = function(x[i]);
}

inline float relu(float x) { return x < 0.0f ? 0.0f : x; }
inline float root(float x) { return std::sqrt(x); }
inline float sine(float x) { return std::sin(x); }
inline float cosine(float x) { return std::cos(x); }

inline Floats sigmoid(Floats x) { return times_logistic(spread(1.0f), x); }

// Near 0, where 1 - e^-2x has few digits, it is the first terms of its series.
inline Floats hyperbolic_tangent(Floats x) {
  const Floats a = magnitude(x), s = x * x, e = exponential(-2.0f * a);
  const Floats near = a + a * s * (-0.333333333f + s * (0.133333333f - s * 0.053968254f));
  const Floats y = a < 0.25f ? near : (1.0f - e) / (1.0f + e);
  return x < 0.0f ? -y : y;
}

// x -> a function of its numbers, vector by vector
template <Floats (*function)(Floats)>
void lanes_op(const StandardAttributes&, const Context& context) {
  const Shape shape = context.shape(0);
  const int64_t size = size_of(shape);
  const float* x = context.input<float>(0);
  float* out = context.output<float>(0, shape);
  for (int64_t i = 0; i < size; i += kLanes) {
    float lanes[kLanes] = {};
    const int64_t count = std::min<int64_t>(kLanes, size - i);
    std::copy(x + i, x + i + count, lanes);
    store(lanes, function(load(lanes)));
    std::copy(lanes, lanes + count, out + i);
  }
}

// x -> softmax along the last axis
inline void softmax_op(const StandardAttributes&, const Context& context) {
  const Shape shape = context.shape(0);
  const int64_t dim = shape.back(), rows = dim ? rows_of(shape) : 0;
  const float* x = context.input<float>(0);
  float* out = context.output<float>(0, shape);
  for (int64_t row = 0; row < rows; ++row, x += dim, out += dim) {
    Floats most = spread(-kInfinity);
    int64_t begin = 0;
    for (; begin + kLanes <= dim; begin += kLanes) most = higher(most, load(x + begin));
    float largest = highest(most);
    for (; begin < dim; ++begin) largest = std::max(largest, x[begin]);
    const float share = 1.0f / sum_exponentials(x, dim, largest, out);
    for (int64_t i = 0; i < dim; ++i) out[i] *= share;
  }
}

// x, exponent -> x to this power
inline void pow_op(const StandardAttributes&, const Context& context) {
  const Shape shape = context.shape(0);
  const char* what = "the exponent must be a single number";
  const float power = number_of<float>(context, 1, what);
  require(context.shape(1).size() <= shape.size(), what);
  const float* x = context.input<float>(0);
  float* out = context.output<float>(0, shape);
  const int64_t size = size_of(shape);
  if (power == 2.0f)
    for (int64_t i = 0; i < size; ++i) out[i] = x[i] * x[i];
  else
    for (int64_t i = 0; i < size; ++i) out[i] = std::pow(x[i], power);
}

// Whole or real numbers -> real ones
inline void cast_op(const StandardAttributes&, const Context& context) {
  by_type(context, 0, [&](auto type) {
    const Shape shape = context.shape(0);
    const auto* x = context.input<decltype(type)>(0);
    float* out = context.output<float>(0, shape);
    const int64_t size = size_of(shape);
    for (int64_t i = 0; i < size; ++i) out[i] = static_cast<float>(x[i]);
  });
}

// shape -> zeros
inline void zeros_op(const StandardAttributes&, const Context& context) {
  const int64_t* wanted = context.input<int64_t>(0);
  const Shape shape(wanted, size_of(context.shape(0)));
  for (int64_t size : shape) require(size >= 0, "sizes must not be negative");
  float* out = context.output<float>(0, shape);
  std::fill(out, out + size_of(shape), 0.0f);
}

struct Summed {
  static double term(double x) { return x; }
  static double total(double sum, double) { return sum; }
};
struct Mean {
  static double term(double x) { return x; }
  static double total(double sum, double count) { return count > 0 ? sum / count : 0.0; }
};
struct Norm {
  static double term(double x) { return x * x; }
  static double total(double sum, double) { return std::sqrt(sum); }
};

// The sum of the terms of a row, in eight parts.
template <typename Of>
double row_sum(const float* x, int64_t count) {
  std::array<double, 8> parts{};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (size_t part = 0; part < 8; ++part) parts[part] += Of::term(x[i + part]);
  for (; i < count; ++i) parts[0] += Of::term(x[i]);
  for (size_t half = 4; half > 0; half /= 2)
    for (size_t part = 0; part < half; ++part) parts[part] += parts[part + half];
  return parts[0];
}

// x, axes -> one number of those along these axes
template <typename Of>
void reduce_op(const StandardAttributes& attributes, const Context& context) {
  const Shape shape = context.shape(0);
  std::array<bool, 6> summed =
      marked(context, 1, shape.size(), "axes must be different ones of x");
  if (size_of(context.shape(1)) == 0) summed.fill(true);
  std::array<int64_t, 6> axes{};
  Strides strides{};  // of the output, 0 along the axes that are summed
  int64_t stride = 1;
  size_t count = 0;
  for (size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = summed[axis] ? 0 : stride;
    if (!summed[axis]) stride *= shape[axis];
  }
  for (size_t axis = 0; axis < shape.size(); ++axis)
    if (!summed[axis] || attributes.keep_axes) axes[count++] = summed[axis] ? 1 : shape[axis];
  const float* x = context.input<float>(0);
  float* out = context.output<float>(0, Shape(axes.data(), count));
  std::vector<double> totals(stride, 0.0);
  each_row<1>(shape, {strides}, [&](int64_t begin, int64_t length, auto& place, auto& step) {
    double* to = totals.data() + place[0];
    if (step[0])
      for (int64_t i = 0; i < length; ++i) to[i * step[0]] += Of::term(x[begin + i]);
    else
      *to += row_sum<Of>(x + begin, length);
  });
  const double terms = stride ? double(size_of(shape)) / stride : 0.0;
  for (int64_t i = 0; i < stride; ++i) out[i] = static_cast<float>(Of::total(totals[i], terms));
}

// x [M,K], weight [N,K], and maybe bias [N] -> their products [M,N]
inline void gemm_op(const StandardAttributes&, const Context& context) {
  const char* what = "x, weight and bias must be [M,K], [N,K] and [N]";
  const Shape rows = context.shape(0), weights = context.shape(1);
  require(rows.size() == 2 && weights.size() == 2 && rows[1] == weights[1], what);
  const int64_t count = rows[0], inputs = rows[1], outputs = weights[0];
  require(!context.has(2) || context.shape(2) == Shape{outputs}, what);
  const float* x = context.input<float>(0);
  const float* weight = context.input<float>(1);
  const float* bias = context.has(2) ? context.input<float>(2) : nullptr;
  float* out = context.output<float>(0, {count, outputs});
  share_out(context, outputs, count * inputs, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n)
      for (int64_t m = 0; m < count; ++m)
        out[m * outputs + n] =
            dot(x + m * inputs, weight + n * inputs, inputs) + (bias ? bias[n] : 0.0f);
  });
}

// Calls `work` with the numbers and the place of each row of the first input.
template <typename Work>
void each_norm(const Context& context, const char* what, Work work) {
  const Shape shape = context.shape(0);
  const int64_t dim = shape.back(), rows = rows_of(shape);
  for (size_t input = 1; input < context.count(); ++input)
    require(!context.has(input) || context.shape(input) == Shape{dim}, what);
  const float* x = context.input<float>(0);
  float* out = context.output<float>(0, shape);
  share_out(context, rows, 4 * dim, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) work(x + row * dim, dim, out + row * dim);
  });
}

// x, weight, and maybe bias -> layer normalisation of the last axis
inline void layer_norm_op(const StandardAttributes& attributes, const Context& context) {
  const float* weight = context.input<float>(1);
  const bool biased = context.has(2);
  const std::vector<float> none(biased ? 0 : context.shape(0).back(), 0.0f);
  const float* bias = biased ? context.input<float>(2) : none.data();
  each_norm(context, "weight and bias must be as long as the last axis",
            [&](const float* x, int64_t dim, float* out) {
              layer_norm(x, weight, bias, dim, attributes.epsilon, out);
            });
}

// x, weight -> RMS normalisation of the last axis
inline void rms_norm_op(const StandardAttributes& attributes, const Context& context) {
  const float* weight = context.input<float>(1);
  each_norm(context, "the weight must be as long as the last axis",
            [&](const float* x, int64_t dim, float* out) {
              rms_norm(x, weight, dim, attributes.epsilon, out);
            });
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

}  // namespace macaron
