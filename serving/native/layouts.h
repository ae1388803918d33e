// The standard operators of ONNX that move numbers and compute nothing.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "strides.h"

namespace macaron {

inline Shape unsqueezed(const StandardAttributes&, const Context& context) {
  const char* what = "axes must be different ones of the output, of at most 6";
  const Shape shape = context.shape(0);
  const size_t count = shape.size() + size_of(context.shape(1));
  const std::array<bool, 6> added = marked(context, 1, count, what);
  std::array<int64_t, 6> axes{};
  size_t from = 0;
  for (size_t axis = 0; axis < count; ++axis) axes[axis] = added[axis] ? 1 : shape[from++];
  return Shape(axes.data(), count);
}

inline Shape squeezed(const StandardAttributes&, const Context& context) {
  const char* what = "axes must be different ones of size 1";
  const Shape shape = context.shape(0);
  std::array<bool, 6> dropped{};
  if (context.has(1) && size_of(context.shape(1)) > 0)
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

inline Shape reshaped(const StandardAttributes& attributes, const Context& context) {
  const char* what = "the new shape must have as many numbers";
  const Shape shape = context.shape(0);
  const int64_t* wanted = context.input<int64_t>(1);
  const int64_t count = size_of(context.shape(1)), size = size_of(shape);
  require(count <= 6, "a tensor has more than 6 axes");
  std::array<int64_t, 6> axes{};
  int64_t open = -1, known = 1;
  for (int64_t axis = 0; axis < count; ++axis) {
    axes[axis] = wanted[axis];
    if (wanted[axis] == 0 && !attributes.allow_zero) axes[axis] = shape[axis_of(axis, shape.size(), what)];
    if (wanted[axis] == -1) {
      require(open < 0, what);
      open = axis;
    } else {
      require(axes[axis] >= 0 && !__builtin_mul_overflow(known, axes[axis], &known), what);
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

inline Shape unchanged(const StandardAttributes&, const Context& context) {
  return context.shape(0);
}

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

// data, shape -> data, broadcast to a shape that it fits together with
inline void expand_op(const StandardAttributes&, const Context& context) {
  const Shape shape = context.shape(0);
  const int64_t* wanted = context.input<int64_t>(1);
  for (int64_t i = 0; i < size_of(context.shape(1)); ++i)
    require(wanted[i] >= 0, "sizes must not be negative");
  const Shape whole = together(shape, Shape(wanted, size_of(context.shape(1))));
  copy_strided(context, whole, broadcast_strides(shape, whole), 0);
}

// data, starts, ends, and maybe axes and steps -> the numbers between these places of the axes
inline void slice_op(const StandardAttributes&, const Context& context) {
  const char* what = "starts, ends, axes and steps must be as many, for different axes";
  Shape shape = context.shape(0);
  const int64_t cuts = size_of(context.shape(1));
  for (size_t input = 2; input < context.count(); ++input)
    require(!context.has(input) || size_of(context.shape(input)) == cuts, what);
  Strides strides = strides_of(shape);
  std::array<bool, 6> seen{};
  int64_t first = 0;
  for (int64_t i = 0; i < cuts; ++i) {
    const int64_t named = context.has(3) ? context.input<int64_t>(3)[i] : i;
    const int64_t step = context.has(4) ? context.input<int64_t>(4)[i] : 1;
    const size_t axis = axis_of(named, shape.size(), what);
    require(!seen[axis] && step, "a step must not be 0, and each axis is named once");
    seen[axis] = true;
    const bool up = step > 0;
    const int64_t size = shape[axis], last = up ? size : size - 1;
    const auto place = [&](size_t input, int64_t least) {
      const int64_t at = context.input<int64_t>(input)[i];
      return size ? std::clamp(at < 0 ? at + size : at, least, last) : 0;
    };
    const int64_t start = place(1, 0), end = place(2, up ? 0 : -1);
    const int64_t way = up ? end - start : start - end;
    const uint64_t width = up ? step : -uint64_t(step);
    shape.axis(axis) = way > 0 ? (way - 1) / width + 1 : 0;
    first += start * strides[axis];
    strides[axis] *= shape[axis] > 1 ? step : 0;
  }
  copy_strided(context, shape, strides, first);
}

// data -> the same with its axes in another order, the opposite one if none is given
inline void transpose_op(const StandardAttributes& attributes, const Context& context) {
  const char* what = "the order must name each axis once";
  const Shape shape = context.shape(0);
  const Strides own = strides_of(shape);
  const size_t count = shape.size();
  const bool given = count && attributes.order[0] != kUnset;
  Shape turned = shape;
  Strides strides{};
  std::array<bool, 6> seen{};
  for (size_t axis = 0; axis < count; ++axis) {
    const int64_t from = given ? attributes.order[axis] : int64_t(count - 1 - axis);
    require(from >= 0 && from < int64_t(count) && !seen[from], what);
    seen[from] = true;
    turned.axis(axis) = shape[from];
    strides[axis] = own[from];
  }
  require(count == seen.size() || attributes.order[count] == kUnset, what);
  copy_strided(context, turned, strides, 0);
}

// A place of an axis, counted from its end if it is negative.
inline int64_t place_of(int64_t at, int64_t size) {
  require(at >= -size && at < size, "an index is out of the axis");
  return at < 0 ? at + size : at;
}

// data, indices -> the parts of data at these places of an axis
inline void gather_op(const StandardAttributes& attributes, const Context& context) {
  const Shape shape = context.shape(0), indices = context.shape(1);
  const size_t axis = axis_of(attributes.axis, shape.size(), "data must have the axis");
  std::array<int64_t, 6> axes{};
  size_t count = 0;
  const auto add = [&](const int64_t* begin, const int64_t* end) {
    for (; begin < end; ++begin) {
      require(count < axes.size(), "a tensor has more than 6 axes");
      axes[count++] = *begin;
    }
  };
  add(shape.begin(), shape.begin() + axis);
  add(indices.begin(), indices.end());
  add(shape.begin() + axis + 1, shape.end());
  const int64_t parts = size_of(indices), size = shape[axis];
  int64_t outer = 1, inner = width_of(context.type(0));
  for (size_t i = 0; i < shape.size(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : shape[i];
  const char* from = context.input<char>(0);
  const int64_t* wanted = context.input<int64_t>(1);
  char* out = context.output<char>(0, Shape(axes.data(), count));
  for (int64_t row = 0; row < outer; ++row)
    for (int64_t i = 0; i < parts; ++i, out += inner) {
      const int64_t place = row * size + place_of(wanted[i], size);
      if (inner) std::memcpy(out, from + place * inner, inner);
    }
}

// data, indices -> for each index, the number of data there along an axis, and else at the index's
// own place
inline void gather_elements_op(const StandardAttributes& attributes, const Context& context) {
  const char* what = "indices must have the axes of data, and be within them";
  const Shape shape = context.shape(0), indices = context.shape(1);
  const size_t axis = axis_of(attributes.axis, shape.size(), what);
  require(indices.size() == shape.size(), what);
  for (size_t i = 0; i < shape.size(); ++i)
    require(i == axis || indices[i] <= shape[i], what);
  Strides strides = strides_of(shape);
  const int64_t along = strides[axis], size = shape[axis];
  strides[axis] = 0;
  const int64_t* wanted = context.input<int64_t>(1);
  by_width(context.type(0), [&](auto number) {
    using T = decltype(number);
    const T* from = context.input<T>(0);
    T* out = context.output<T>(0, indices);
    each_row<1>(indices, {strides}, [&](int64_t begin, int64_t count, auto& place, auto& step) {
      for (int64_t i = 0; i < count; ++i)
        out[begin + i] = from[place[0] + i * step[0] + place_of(wanted[begin + i], size) * along];
    });
  });
}

// data, indices [..., N] -> the parts of data at these places of its N axes behind the first ones,
// which data and indices share
inline void gather_nd_op(const StandardAttributes& attributes, const Context& context) {
  const char* what = "indices must be places of the axes of data, behind those that both have";
  const Shape shape = context.shape(0), indices = context.shape(1);
  const int64_t batches = attributes.batches, last = int64_t(indices.size()) - 1;
  require(batches >= 0 && last >= batches, what);
  const int64_t depth = indices.back(), rank = shape.size();
  require(depth >= 1 && depth <= rank && batches + depth <= rank, what);
  int64_t outer = 1, inner = width_of(context.type(0)), rows = 1, whole = 1;
  for (int64_t i = 0; i < batches; ++i) {
    require(shape[i] == indices[i], what);
    outer *= shape[i];
  }
  for (int64_t i = batches; i < batches + depth; ++i) whole *= shape[i];
  for (int64_t i = batches + depth; i < rank; ++i) inner *= shape[i];
  for (int64_t i = batches; i < last; ++i) rows *= indices[i];
  std::array<int64_t, 6> axes{};
  const int64_t rest = rank - batches - depth;
  require(last + rest <= int64_t(axes.size()), "a tensor has more than 6 axes");
  std::copy(indices.begin(), indices.begin() + last, axes.begin());
  std::copy(shape.end() - rest, shape.end(), axes.begin() + last);
  const char* from = context.input<char>(0);
  const int64_t* wanted = context.input<int64_t>(1);
  char* out = context.output<char>(0, Shape(axes.data(), last + rest));
  for (int64_t batch = 0; batch < outer; ++batch)
    for (int64_t row = 0; row < rows; ++row, wanted += depth, out += inner) {
      int64_t place = 0;
      for (int64_t i = 0; i < depth; ++i)
        place = place * shape[batches + i] + place_of(wanted[i], shape[batches + i]);
      if (inner) std::memcpy(out, from + (batch * whole + place) * inner, inner);
    }
}

// cache [B,...], update, and maybe indices [B] -> the cache with the update in it, along an axis
// from the index of each B
inline void tensor_scatter_op(const StandardAttributes& attributes, const Context& context) {
  const char* what = "the update must fit into the cache along the axis, from its index on";
  const Shape shape = context.shape(0), update = context.shape(1);
  const size_t axis = axis_of(attributes.axis, shape.size(), what);
  require(axis > 0 && update.size() == shape.size() && context.type(0) == context.type(1), what);
  for (size_t i = 0; i < shape.size(); ++i) require(i == axis || update[i] == shape[i], what);
  const int64_t room = shape[axis], places = update[axis], batches = shape[0];
  require(!context.has(2) || size_of(context.shape(2)) == batches, what);
  int64_t middle = 1, inner = width_of(context.type(0));
  for (size_t i = 1; i < shape.size(); ++i) (i < axis ? middle : inner) *= i == axis ? 1 : shape[i];
  const int64_t* begins = context.has(2) ? context.input<int64_t>(2) : nullptr;
  require(places <= room, what);
  for (int64_t batch = 0; begins && batch < batches; ++batch)
    require(begins[batch] >= 0 && begins[batch] <= room - places, what);
  const char* cache = context.input<char>(0);
  const char* from = context.input<char>(1);
  char* out = context.output<char>(0, shape);
  const int64_t bytes = size_of(shape) * width_of(context.type(0));
  if (out != cache && bytes) std::memcpy(out, cache, bytes);  // the same memory if it is bound so
  for (int64_t batch = 0; batch < batches; ++batch) {
    const int64_t at = begins ? begins[batch] : 0;
    for (int64_t row = batch * middle; row < (batch + 1) * middle && places * inner > 0; ++row)
      std::memcpy(out + (row * room + at) * inner, from + row * places * inner, places * inner);
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
    require(own >= 0 && own <= whole - done && (context.has(1) || own > 0 || !whole), what);
    shape.axis(axis) = own;
    char* out = context.output<char>(part, shape);
    for (int64_t row = 0; row < outer && own > 0; ++row)
      std::memcpy(out + row * own * inner, from + (row * whole + done) * inner, own * inner);
    done += own;
  }
  require(done == whole, what);
}

}  // namespace macaron
