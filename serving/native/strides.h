// What standard operators have in common: their attributes and types, axes, and walks over tensors
// that are broadcast or cut.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>

#include "operator.h"

namespace macaron {

constexpr int64_t kUnset = std::numeric_limits<int64_t>::min();

struct StandardAttributes {
  int64_t axis = 0, start = 0, end = std::numeric_limits<int64_t>::max(), parts = 0;
  int64_t allow_zero = 0, batches = 0, keep_axes = 1, to = 0, turned = 0;
  float epsilon = 1e-5f;
  std::array<int64_t, 6> order{kUnset, kUnset, kUnset, kUnset, kUnset, kUnset};  // of axes
};

// Types of inputs and outputs that are not one type of numbers. As outputs they are the type of the
// first such input.
constexpr ElementType kAny = ElementType(0);
constexpr ElementType kNumber = ElementType(-1);  // kFloat or kInt64, the same for all inputs

inline int64_t width_of(int type) {
  switch (type) {
    case kUint8:
    case kInt8:
    case kBool:
      return 1;
    case kFloat:
    case kInt32:
      return 4;
    case kInt64:
      return 8;
  }
  throw std::invalid_argument("a tensor has an unknown type");
}

// Refuses shapes whose sizes, or the sizes of whose parts, could overflow. An axis of 0 does not
// make the others small.
inline void require_size(const Shape& shape) {
  constexpr int64_t kMost = int64_t{1} << 56;
  int64_t size = 1;
  for (int64_t axis : shape)
    require(axis >= 0 && !__builtin_mul_overflow(size, std::max<int64_t>(axis, 1), &size) &&
                size <= kMost,
            "a tensor would be too large");
}

// Calls `work` with a number as wide as those of a type.
template <typename Work>
void by_width(int type, Work work) {
  switch (width_of(type)) {
    case 1:
      return work(uint8_t{});
    case 4:
      return work(uint32_t{});
    default:
      return work(uint64_t{});
  }
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

// For each axis of a tensor, how many numbers lie between its places.
using Strides = std::array<int64_t, 6>;

inline Strides strides_of(const Shape& shape) {
  Strides strides{};
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0; stride *= shape[axis]) strides[axis] = stride;
  return strides;
}

// Those of a tensor that is broadcast to a shape: 0 for an axis along which it is repeated.
inline Strides broadcast_strides(const Shape& shape, const Shape& to) {
  const Strides own = strides_of(shape);
  const size_t missing = to.size() - shape.size();
  Strides strides{};
  for (size_t axis = 0; axis < shape.size(); ++axis)
    strides[missing + axis] = shape[axis] == 1 ? 0 : own[axis];
  return strides;
}

// Walks over the numbers of a shape in order, in rows that are as long as they can be: calls `row`
// with the place of its first number, how many there are, and for each of N tensors of such strides
// where its own first number lies and how far apart its numbers are.
template <size_t N, typename Row>
void each_row(const Shape& shape, const std::array<Strides, N>& strides, Row row) {
  std::array<int64_t, N> place{}, step{};
  size_t axes = shape.size();
  int64_t length = 1;
  const auto fits = [&](size_t axis) {
    for (size_t n = 0; n < N; ++n)
      if (length > 1 && strides[n][axis] != step[n] * length) return false;
    return true;
  };
  for (; axes > 0 && (shape[axes - 1] == 1 || fits(axes - 1)); --axes) {
    if (shape[axes - 1] == 1) continue;
    if (length == 1)
      for (size_t n = 0; n < N; ++n) step[n] = strides[n][axes - 1];
    length *= shape[axes - 1];
  }
  const int64_t size = size_of(shape);
  std::array<int64_t, 6> at{};
  for (int64_t begin = 0; begin < size; begin += length) {
    row(begin, length, place, step);
    for (size_t axis = axes; axis-- > 0;) {
      for (size_t n = 0; n < N; ++n) place[n] += strides[n][axis];
      if (++at[axis] < shape[axis]) break;
      for (size_t n = 0; n < N; ++n) place[n] -= strides[n][axis] * shape[axis];
      at[axis] = 0;
    }
  }
}

// Writes the first output: the numbers of the first input from the place `first` on, by strides.
inline void copy_strided(const Context& context, const Shape& shape, const Strides& strides,
                         int64_t first) {
  by_width(context.type(0), [&](auto number) {
    using T = decltype(number);
    const T* from = context.input<T>(0);
    T* out = context.output<T>(0, shape);
    each_row<1>(shape, {strides}, [&](int64_t begin, int64_t count, auto& place, auto& step) {
      const T* own = from + first + place[0];
      T* to = out + begin;
      if (step[0] == 1 || count == 1)
        std::copy(own, own + count, to);
      else if (step[0] == 0)
        std::fill(to, to + count, *own);
      else
        for (int64_t i = 0; i < count; ++i) to[i] = own[i * step[0]];
    });
  });
}

}  // namespace macaron
