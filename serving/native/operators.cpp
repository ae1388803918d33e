// The operators of domain `macaron`, for ONNX Runtime's CPU provider.
//
// In the graphs, each is also a local function of standard operators, which ONNX Runtime runs if
// this library is not loaded (export/passes/fusing/groups.py).

#include <algorithm>
#include <array>
#include <mutex>
#include <stdexcept>

#include "kernels.h"
#include "lines.h"
#include "operator.h"
#include "product_operator.h"
#include "program.h"
#include "shortlist.h"

namespace macaron {
namespace {

// The output for rows of D floats: the rows as they are, or rounded to 8 bits, all by one scale or
// each by its own.
class Rows {
 public:
  Rows(const Context& context, const Shape& shape)
      : dim_(shape.back()), floats_(context.output<float>(0, shape)) {}

  // Output 0 has 8 bits. `scale` is the input with the scale; the next one has the zero point.
  Rows(const Context& context, const Shape& shape, size_t scale)
      : dim_(shape.back()), buffer_(dim_), bytes_(context.output<uint8_t>(0, shape)) {
    const char* what = "scale and zero point of a context or norm must be single numbers";
    scale_ = number_of<float>(context, scale, what);
    zero_point_ = number_of<uint8_t>(context, scale + 1, what);
  }

  // Output 0 is [M,D] of 8 bits, and output 1 has the scales [M,1]. The inputs from `zero_points`
  // on are the zero points [M], the smallest peak, and the factor from a peak to its scale. The
  // outputs have `times` M rows.
  static Rows each(const Context& context, const Shape& shape, size_t zero_points,
                   int64_t times = 1) {
    const int64_t count = rows_of(shape);
    require(size_of(context.shape(zero_points)) == count &&
                size_of(context.shape(zero_points + 1)) == 1 &&
                size_of(context.shape(zero_points + 2)) == 1,
            "zero points, least peak and level must be [M], one number and one number");
    Rows rows;
    rows.dim_ = shape.back();
    rows.buffer_.resize(rows.dim_);
    rows.count_ = count;
    rows.bytes_ = context.output<uint8_t>(0, {times * count, rows.dim_});
    rows.scales_ = context.output<float>(1, {times * count, 1});
    rows.zero_points_ = context.input<uint8_t>(zero_points);
    rows.least_ = *context.input<float>(zero_points + 1);
    rows.level_ = *context.input<float>(zero_points + 2);
    return rows;
  }

  // Memory for row `index`; `done` must be called when it is filled.
  float* begin(int64_t index) { return floats_ ? floats_ + index * dim_ : buffer_.data(); }

  void done(int64_t index) {
    if (!floats_) round(buffer_.data(), index);
  }

  // Rounds a row to 8 bits, as row `index` of the output.
  void round(const float* row, int64_t index) {
    if (scales_) {
      scale_ = scales_[index] = std::max(peak(row, dim_), least_) * level_;
      zero_point_ = zero_points_[index % count_];
    }
    quantize(row, dim_, scale_, zero_point_, bytes_ + index * dim_);
  }

  // Rounds a row, and what that leaves of it: this becomes the row `count_` rows further on. `room`
  // is memory for one row.
  void round_twice(const float* row, int64_t index, float* room) {
    round(row, index);
    const uint8_t* levels = bytes_ + index * dim_;
    for (int64_t i = 0; i < dim_; ++i)
      room[i] = row[i] - (static_cast<float>(levels[i]) - static_cast<float>(zero_point_)) * scale_;
    round(room, index + count_);
  }

 private:
  Rows() = default;

  int64_t dim_ = 0, count_ = 0;
  RowBuffer buffer_;
  float scale_ = 1.0f, least_ = 0.0f, level_ = 1.0f;
  int zero_point_ = 0;
  const uint8_t* zero_points_ = nullptr;
  float* scales_ = nullptr;
  float* floats_ = nullptr;
  uint8_t* bytes_ = nullptr;
};

// The places that each query sees. Input `mask` is [B,1,Q,C]; B or Q is 1 if it is the same for all
// sentences or queries.
class Mask {
 public:
  Mask(const Context& context, size_t mask, int64_t rows, int64_t queries, int64_t capacity)
      : capacity_(capacity), visible_(context.input<float>(mask)) {
    const Shape shape = context.shape(mask);
    require(shape.size() == 4 && (shape[0] == 1 || shape[0] == rows) && shape[1] == 1 &&
                (shape[2] == 1 || shape[2] == queries) && shape[3] == capacity,
            "a mask must be [B,1,Q,C], where B and Q may be 1");
    query_step_ = shape[2] > 1 ? capacity : 0;
    row_step_ = shape[0] > 1 ? shape[2] * capacity : 0;
  }

  const std::vector<int64_t>& seen(int64_t row, int64_t query) {
    const float* visible = visible_ + row * row_step_ + query * query_step_;
    if (visible != last_) find_seen(visible, capacity_, seen_);
    last_ = visible;
    return seen_;
  }

 private:
  int64_t capacity_, query_step_, row_step_;
  const float* visible_;
  const float* last_ = nullptr;
  std::vector<int64_t> seen_;
};

// What is added to the scores of each query. Input `bias` is [B,H,Q,C]; B or Q is 1 if it is the
// same for all sentences or queries.
class Bias {
 public:
  Bias() = default;

  Bias(const Context& context, size_t bias, int64_t rows, int64_t heads, int64_t queries,
       int64_t capacity) {
    const Shape shape = context.shape(bias);
    require((shape[0] == 1 || shape[0] == rows) && shape[1] == heads &&
                (shape[2] == 1 || shape[2] == queries) && shape[3] == capacity,
            "a bias must be [B,H,Q,C], where B and Q may be 1");
    first_ = {context.input<float>(bias), shape[2] * capacity};
    query_step_ = shape[2] > 1 ? capacity : 0;
    row_step_ = shape[0] > 1 ? heads * shape[2] * capacity : 0;
  }

  QueryBias of(int64_t row, int64_t query) const {
    if (!first_.numbers) return first_;
    return {first_.numbers + row * row_step_ + query * query_step_, first_.head};
  }

 private:
  QueryBias first_;
  int64_t query_step_ = 0, row_step_ = 0;
};

// The vectors that are added to the keys and values of each query. Input `places` is [B,Q,C]; the
// next two are the tables [R,E] of keys and of values.
class Vectors {
 public:
  Vectors() = default;

  Vectors(const Context& context, size_t places, const Shape& given, int64_t width) {
    const Shape tables = context.shape(places + 1);
    require(context.shape(places) == given && tables.size() == 2 && tables[1] == width &&
                context.shape(places + 2) == tables,
            "places and tables must be [B,Q,C], [R,E] and [R,E]");
    require_within(context, places, 0, tables[0], "places must be rows of the tables");
    first_ = {context.input<int64_t>(places), context.input<float>(places + 1),
              context.input<float>(places + 2)};
    queries_ = given[1];
    capacity_ = given[2];
  }

  QueryVectors of(int64_t row, int64_t query) const {
    QueryVectors own = first_;
    if (own.rows) own.rows += (row * queries_ + query) * capacity_;
    return own;
  }

 private:
  QueryVectors first_;
  int64_t queries_ = 0, capacity_ = 0;
};

// The memory of an output that begins as an input. It is the input's own memory as a rule;
// otherwise the input is copied.
float* continued(const Context& context, size_t input, size_t output, const Shape& shape) {
  const float* given = context.input<float>(input);
  float* wanted = context.output<float>(output, shape);
  if (given != wanted) std::copy(given, given + size_of(shape), wanted);
  return wanted;
}

// The heads in qkv [B,Q,P], found from the `flat` heads in caches [B,C,D], or those of [B,H,C,E]:
// P has `asking` heads of queries, then `kept` heads of keys and `kept` of values, each of `width`
// numbers.
struct Heads {
  Heads(int64_t flat, const Shape& qkv, const Shape& cache)
      : by_head(cache.size() == 4), kept(by_head ? cache[1] : flat) {
    require(kept > 0, "attention must have a head");
    width = by_head ? cache[3] : cache.back() / kept;
    asking = width ? qkv.back() / width - 2 * kept : 0;
    require(qkv.size() == 3 && asking > 0 && asking % kept == 0 &&
                (asking + 2 * kept) * width == qkv[2] &&
                cache == (by_head ? Shape{qkv[0], kept, cache[2], width}
                                  : Shape{qkv[0], cache[1], kept * width}),
            "qkv and caches must be [B,Q,P] and [B,C,D] or [B,H,C,E]");
  }

  bool by_head;
  int64_t kept, width = 0, asking = 0;
};

// What a tree attention has beside queries, keys and values, from input 5 on: nothing, a bias, or
// vectors of distances and the scale, which an attribute has otherwise.
enum class Beside { kNothing, kBias, kVectors };

constexpr size_t inputs_of(Beside beside) {
  return beside == Beside::kNothing ? 5 : beside == Beside::kBias ? 6 : 9;
}

// The heads of a tree attention: those of the bias, as many as are as wide as the vectors, or those
// of an attribute.
template <Beside beside>
Heads heads_of(const Attributes& attributes, const Context& context) {
  int64_t flat = attributes.heads;
  if constexpr (beside == Beside::kBias) {
    require(context.shape(5).size() == 4, "a bias must be [B,H,Q,C], where B and Q may be 1");
    flat = context.shape(5)[1];
  } else if constexpr (beside == Beside::kVectors) {
    const int64_t width = context.shape(6).size() ? context.shape(6).back() : 0;
    const Shape cache = context.shape(1);
    require(width > 0 && cache.size() == 3 && cache[2] % width == 0,
            "caches and tables must be [B,C,D] and [R,E], D a multiple of E");
    flat = cache[2] / width;
  }
  return Heads(flat, context.shape(0), context.shape(1));
}

// qkv [B,Q,P], keys and values [B,C,D] or by head [B,H,C,E], write_index [B], mask, and what is
// `beside` -> context [B,Q, width of all heads of queries], keys and values with the Q new
// ones from slot `write_index` on
template <Beside beside>
void tree_attention(const Attributes& attributes, const Context& context, const Shape& shape,
                    Rows& out) {
  const Shape cache = context.shape(1);
  const Heads heads = heads_of<beside>(attributes, context);
  require(context.shape(2) == cache, "qkv and caches must be [B,Q,P] and [B,C,D] or [B,H,C,E]");
  const int64_t queries = shape[1], width = heads.width, dim = heads.kept * width;
  const int64_t capacity = cache[heads.by_head ? 2 : 1];
  const char* no_room = "write_index must leave room for the new slots of each row";
  require(size_of(context.shape(3)) == shape[0], no_room);
  require_within(context, 3, 0, capacity - queries + 1, no_room);
  const Layout layout = heads.by_head ? Layout{width, capacity * width} : Layout{dim, width};
  const float* qkv = context.input<float>(0);
  const int64_t* write_index = context.input<int64_t>(3);
  float* keys = continued(context, 1, 1, cache);
  float* values = continued(context, 2, 2, cache);
  Mask mask(context, 4, shape[0], queries, capacity);
  Bias bias;
  Vectors vectors;
  float scale = attributes.scale;
  if constexpr (beside == Beside::kBias) {
    bias = Bias(context, 5, shape[0], heads.asking, queries, capacity);
  } else if constexpr (beside == Beside::kVectors) {
    vectors = Vectors(context, 5, {shape[0], queries, capacity}, width);
    scale = number_of<float>(context, 8, "the scale must be a single number");
  }
  RowBuffer scores(heads.asking * score_room(capacity));
  for (int64_t b = 0; b < shape[0]; ++b) {
    float* own_keys = keys + b * capacity * dim;
    float* own_values = values + b * capacity * dim;
    const float* rows = qkv + b * queries * shape[2];
    for (int64_t q = 0; q < queries; ++q)
      for (int64_t h = 0; h < heads.kept; ++h) {
        const float* key = rows + q * shape[2] + (heads.asking + h) * width;
        const int64_t place = (write_index[b] + q) * layout.place + h * layout.head;
        std::copy(key, key + width, own_keys + place);
        std::copy(key + dim, key + dim + width, own_values + place);
      }
    for (int64_t q = 0; q < queries; ++q) {
      attend(rows + q * shape[2], own_keys, own_values, layout, mask.seen(b, q), heads.asking,
             heads.asking / heads.kept, width, scale, attributes.cap, bias.of(b, q),
             vectors.of(b, q), scores.data(), out.begin(b * queries + q));
      out.done(b * queries + q);
    }
  }
}

template <Beside beside>
Shape context_shape(const Attributes& attributes, const Context& context) {
  const Shape qkv = context.shape(0);
  const Heads heads = heads_of<beside>(attributes, context);
  return {qkv[0], qkv[1], heads.asking * heads.width};
}

template <Beside beside = Beside::kNothing>
void tree_attention_op(const Attributes& attributes, const Context& context) {
  const Shape qkv = context.shape(0);
  Rows out(context, context_shape<beside>(attributes, context));
  tree_attention<beside>(attributes, context, qkv, out);
}

// With two more inputs, scale and zero_point, the context has 8 bits.
template <Beside beside = Beside::kNothing>
void tree_attention_quantize_op(const Attributes& attributes, const Context& context) {
  const Shape qkv = context.shape(0);
  Rows out(context, context_shape<beside>(attributes, context), inputs_of(beside));
  tree_attention<beside>(attributes, context, qkv, out);
}

// query [B,Q,D], keys and values [B,C,D], mask -> context [B,Q,D]
void masked_attention(const Attributes& attributes, const Context& context, const Shape& shape,
                      Rows& out) {
  const int64_t queries = shape[1], dim = shape[2], capacity = context.shape(1)[1];
  require(attributes.heads > 0, "attention must have a head");
  const int64_t width = dim / attributes.heads;
  const Shape memory{shape[0], capacity, dim};
  require(shape.size() == 3 && width > 0 && width * attributes.heads == dim &&
              context.shape(1) == memory && context.shape(2) == memory,
          "queries, keys and values must be [B,Q,D], [B,C,D] and [B,C,D], D a multiple of heads");
  const float* query = context.input<float>(0);
  const float* keys = context.input<float>(1);
  const float* values = context.input<float>(2);
  Mask mask(context, 3, shape[0], queries, capacity);
  RowBuffer scores(attributes.heads * score_room(capacity));
  for (int64_t row = 0; row < shape[0] * queries; ++row) {
    const int64_t begin = row / queries * capacity * dim;
    attend(query + row * dim, keys + begin, values + begin, {dim, width},
           mask.seen(row / queries, row % queries), attributes.heads, 1, width, attributes.scale,
           attributes.cap, {}, {}, scores.data(), out.begin(row));
    out.done(row);
  }
}

void masked_attention_op(const Attributes& attributes, const Context& context) {
  const Shape shape = context.shape(0);
  Rows out(context, shape);
  masked_attention(attributes, context, shape, out);
}

// With two more inputs, scale and zero_point, the context has 8 bits.
void masked_attention_quantize_op(const Attributes& attributes, const Context& context) {
  const Shape shape = context.shape(0);
  Rows out(context, shape, 4);
  masked_attention(attributes, context, shape, out);
}

// qkv [..,3D] of M ids, whose thirds are queries, keys and values; the places [B,S] of each text's
// queries, keys and values in qkv, in units of D floats; the factor of the queries; mask [B,1,S,S];
// the place [1,M] of each id in B * S -> context [1,M,D]
void packed_attention(const Attributes& attributes, const Context& context, const Shape& shape,
                      Rows& out) {
  const int64_t dim = shape[2], count = shape[1], heads = attributes.heads;
  const Shape slots = context.shape(1);
  const int64_t width = heads > 0 ? dim / heads : 0;
  require(width > 0 && width * heads == dim && context.shape(0).back() == 3 * dim &&
              slots.size() == 2 && context.shape(2) == slots && context.shape(3) == slots &&
              size_of(context.shape(4)) == 1,
          "qkv must be [..,3D], D a multiple of the heads, and places [B,S]");
  const int64_t places = slots[1], room = size_of(slots);
  const char* not_there = "places must be of qkv, and rows of places";
  require_within(context, 1, 0, rows_of(context.shape(0)) * 3 - 2, not_there);
  require_within(context, 6, 0, room, not_there);
  const int64_t* own = context.input<int64_t>(1);
  const int64_t* keys = context.input<int64_t>(2);
  const int64_t* values = context.input<int64_t>(3);
  for (int64_t i = 0; i < room; ++i)
    require(keys[i] == own[i] + 1 && values[i] == own[i] + 2,
            "keys and values must lie behind their queries");
  const float* qkv = context.input<float>(0);
  const float scale = attributes.scale * *context.input<float>(4);
  const int64_t* rows = context.input<int64_t>(6);
  const Mask whole(context, 5, slots[0], places, places);
  share_out(context, count, places * dim, [&](int64_t begin, int64_t end) {
    Mask mask = whole;
    Rows part = out;
    RowBuffer scores(heads * score_room(places));
    std::vector<int64_t> seen;
    for (int64_t m = begin; m < end; ++m) {
      const int64_t* text = own + rows[m] / places * places;
      seen.clear();
      for (int64_t place : mask.seen(rows[m] / places, rows[m] % places))
        seen.push_back(text[place]);
      attend(qkv + own[rows[m]] * dim, qkv + dim, qkv + 2 * dim, {dim, width}, seen, heads, 1,
             width, scale, 0.0f, {}, {}, scores.data(), part.begin(m));
      part.done(m);
    }
  });
}

Shape packed_shape(const Context& context) {
  return {1, size_of(context.shape(6)), context.shape(0).back() / 3};
}

void packed_attention_op(const Attributes& attributes, const Context& context) {
  const Shape shape = packed_shape(context);
  Rows out(context, shape);
  packed_attention(attributes, context, shape, out);
}

// With two more inputs, scale and zero_point, the context has 8 bits.
void packed_attention_quantize_op(const Attributes& attributes, const Context& context) {
  const Shape shape = packed_shape(context);
  Rows out(context, shape, 7);
  packed_attention(attributes, context, shape, out);
}

// With three more inputs, zero points, smallest peak and factor (`Rows::each`), the context [M,D]
// has 8 bits, and each row its own scale.
void packed_attention_quantize_rows_op(const Attributes& attributes, const Context& context) {
  const Shape shape = packed_shape(context);
  Rows out = Rows::each(context, shape, 7);
  packed_attention(attributes, context, shape, out);
}

// x [B,Q,D], cache [B,C,D], write_index [B], ancestors [B,Q,W] (slots, nearest first, -1 after the
// last), kernel [B,Q,H,K] with K taps, where B and Q may be 1
// -> [B,Q,D], for each head the first tap times x plus the other taps times its K - 1 nearest
// ancestors; the cache with x from slot `write_index` on
void ancestor_convolution(const Context& context, const Shape& shape, Rows& out) {
  const Shape cache = context.shape(1), slots = context.shape(3), taps = context.shape(4);
  require(shape.size() == 3 && cache.size() == 3 && slots.size() == 3 && taps.size() == 4,
          "x, cache, ancestors and kernel must be [B,Q,D], [B,C,D], [B,Q,W] and [B,Q,H,K]");
  const int64_t rows = shape[0], queries = shape[1], dim = shape[2], capacity = cache[1];
  const int64_t heads = taps[2], width = taps[3];
  require(cache == Shape{rows, capacity, dim} && slots[0] == rows && slots[1] == queries &&
              (taps[0] == 1 || taps[0] == rows) && (taps[1] == 1 || taps[1] == queries),
          "x, cache, ancestors and kernel must be [B,Q,D], [B,C,D], [B,Q,W] and [B,Q,H,K]");
  require(heads > 0 && dim % heads == 0 && width > 0 && width <= slots[2] + 1,
          "a kernel must have heads that divide D, and at most W + 1 taps");
  const char* no_room = "write_index must leave room for the new slots of each row";
  require(size_of(context.shape(2)) == rows, no_room);
  require_within(context, 2, 0, capacity - queries + 1, no_room);
  require_within(context, 3, -1, capacity, "ancestors must be slots, or -1");
  const int64_t* ancestors = context.input<int64_t>(3);
  const float* x = context.input<float>(0);
  const int64_t* write_index = context.input<int64_t>(2);
  const float* kernel = context.input<float>(4);
  float* kept = continued(context, 1, 1, cache);
  std::vector<int64_t> seen;
  for (int64_t b = 0; b < rows; ++b) {
    float* own = kept + b * capacity * dim;
    const float* first = x + b * queries * dim;
    std::copy(first, first + queries * dim, own + write_index[b] * dim);
    for (int64_t q = 0; q < queries; ++q) {
      seen.assign(1, write_index[b] + q);
      const int64_t* told = ancestors + (b * queries + q) * slots[2];
      for (int64_t w = 0; w + 1 < width && told[w] >= 0; ++w) seen.push_back(told[w]);
      const int64_t row = (taps[0] > 1 ? b : 0) * taps[1] + (taps[1] > 1 ? q : 0);
      float* sums = out.begin(b * queries + q);
      for (int64_t h = 0; h < heads; ++h)
        weigh(kernel + (row * heads + h) * width, own + h * (dim / heads), seen, dim, dim / heads,
              1.0f, sums + h * (dim / heads));
      out.done(b * queries + q);
    }
  }
}

void ancestor_convolution_op(const Attributes&, const Context& context) {
  const Shape shape = context.shape(0);
  Rows out(context, shape);
  ancestor_convolution(context, shape, out);
}

// With two more inputs, scale and zero_point, the sums have 8 bits.
void ancestor_convolution_quantize_op(const Attributes&, const Context& context) {
  const Shape shape = context.shape(0);
  Rows out(context, shape, 5);
  ancestor_convolution(context, shape, out);
}

// visible [B,1,Q,C], positions [B,Q] and slot_positions [B,C] -> visible, with -inf also where a
// slot's position is later than the query's, or `reach` or more before it
void reach_mask_op(const Attributes& attributes, const Context& context) {
  const Shape shape = context.shape(0);
  const int64_t rows = shape[0], queries = shape[2], capacity = shape[3];
  require(shape.size() == 4 && size_of(context.shape(1)) == rows * queries &&
              size_of(context.shape(2)) == rows * capacity && shape[1] == 1,
          "visible, positions and their slots' must be [B,1,Q,C], [B,Q] and [B,C]");
  const float* visible = context.input<float>(0);
  const int64_t* positions = context.input<int64_t>(1);
  const int64_t* slots = context.input<int64_t>(2);
  const uint64_t reach = std::max<int64_t>(attributes.reach, 0);
  float* out = context.output<float>(0, shape);
  for (int64_t row = 0; row < rows * queries; ++row)
    for (int64_t c = 0; c < capacity; ++c) {
      const int64_t position = positions[row], slot = slots[row / queries * capacity + c];
      const uint64_t back = uint64_t(position) - uint64_t(slot);  // unsigned: cannot overflow
      const bool within = slot <= position && back < reach;
      out[row * capacity + c] = within ? visible[row * capacity + c] : -kInfinity;
    }
}

// One of the two terms of a sum; its axes of 1 are broadcast.
struct Addend {
  Addend(const Context& context, size_t input)
      : shape(context.shape(input)), numbers(context.input<float>(input)) {}

  // The beginning of the numbers that belong to row `index` of the sum.
  const float* row(int64_t index, const Shape& sum) const {
    const float* found = numbers;
    int64_t step = shape.back();
    for (size_t axis = 2; axis <= shape.size(); ++axis) {
      const int64_t all = sum[sum.size() - axis], own = shape[shape.size() - axis];
      if (own > 1) found += index % all * step;
      index /= all;
      step *= own;
    }
    return found;
  }

  Shape shape;
  const float* numbers;
};

// How a sum is normalised: by mean and variance with a weight and a bias, or by its root mean square
// with a weight alone.
enum class Norm { kLayer, kRms };

// The inputs x and y, and the weight [D] of the norm of their sum [..,D], with its bias if it has one.
template <Norm norm_kind = Norm::kLayer>
class Residual {
 public:
  explicit Residual(const Context& context)
      : x_(context, 0), y_(context, 1), shape_(longer()), weight_(context.input<float>(2)),
        bias_(norm_kind == Norm::kLayer ? context.input<float>(3) : nullptr) {
    for (const Addend* each : {&x_, &y_})
      for (size_t axis = 1; axis <= each->shape.size(); ++axis) {
        int64_t& all = shape_.axis(shape_.size() - axis);
        const int64_t own = each->shape[each->shape.size() - axis];
        require(own == all || own == 1 || all == 1, "x and y must have shapes that go together");
        all = all == 1 ? own : all;
      }
    require(size_of(context.shape(2)) == dim() &&
                (norm_kind == Norm::kRms || size_of(context.shape(3)) == dim()),
            "weight and bias of a norm must be [D]");
  }

  const Shape& shape() const { return shape_; }
  int64_t dim() const { return shape_.back(); }

  // Computes a row of the sum, and its norm.
  void read(int64_t row, float epsilon, float* total, float* norm) const {
    const float* x = x_.row(row, shape_);
    const float* y = y_.row(row, shape_);
    const int64_t x_step = x_.shape.back() > 1, y_step = y_.shape.back() > 1;
    if (x_step && y_step)
      for (int64_t i = 0; i < dim(); ++i) total[i] = x[i] + y[i];
    else
      for (int64_t i = 0; i < dim(); ++i) total[i] = x[i * x_step] + y[i * y_step];
    if constexpr (norm_kind == Norm::kLayer)
      layer_norm(total, weight_, bias_, dim(), epsilon, norm);
    else
      rms_norm(total, weight_, dim(), epsilon, norm);
  }

 private:
  const Shape& longer() const { return x_.shape.size() < y_.shape.size() ? y_.shape : x_.shape; }

  Addend x_, y_;
  Shape shape_;
  const float *weight_, *bias_;
};

// Which one other operators need as floats: the sum or its norm.
enum class Kept { kSum, kNorm };

// Rounds the norms of x + y to 8 bits; the sums or the norms go to `kept` as floats.
template <Kept wanted>
void round_norms(const Attributes& attributes, const Context& context, const Residual<>& residual,
                 const Rows& out, float* kept) {
  const int64_t dim = residual.dim();
  share_out(context, rows_of(residual.shape()), dim, [&](int64_t begin, int64_t end) {
    Rows part = out;
    RowBuffer room(dim);
    for (int64_t row = begin; row < end; ++row) {
      float* own = kept + row * dim;
      float* total = wanted == Kept::kSum ? own : room.data();
      float* norm = wanted == Kept::kSum ? room.data() : own;
      residual.read(row, attributes.epsilon, total, norm);
      part.round(norm, row);
    }
  });
}

// x, y, weight, bias, scale, zero_point -> the norm of x + y in 8 bits, the sum or norm as floats
template <Kept wanted>
void norm_quantize_op(const Attributes& attributes, const Context& context) {
  const Residual<> residual(context);
  const Rows out(context, residual.shape(), 4);
  float* kept = context.output<float>(1, residual.shape());
  round_norms<wanted>(attributes, context, residual, out, kept);
}

// x, y, weight, bias, zero points, smallest peak, factor (`Rows::each`) -> the norm of x + y [M,D]
// in 8 bits, its scales [M,1], the sum or norm as floats
template <Kept wanted>
void norm_quantize_rows_op(const Attributes& attributes, const Context& context) {
  const Residual<> residual(context);
  const Rows out = Rows::each(context, residual.shape(), 4);
  float* kept = context.output<float>(2, residual.shape());
  round_norms<wanted>(attributes, context, residual, out, kept);
}

// x, y, weight, bias -> the norm of x + y
void add_post_norm_op(const Attributes& attributes, const Context& context) {
  const Residual<> residual(context);
  float* out = context.output<float>(0, residual.shape());
  const int64_t dim = residual.dim();
  share_out(context, rows_of(residual.shape()), dim, [&](int64_t begin, int64_t end) {
    RowBuffer total(dim);
    for (int64_t row = begin; row < end; ++row)
      residual.read(row, attributes.epsilon, total.data(), out + row * dim);
  });
}

// x, y, weight -> the RMS norm of x + y, and x + y
void add_rms_norm_op(const Attributes& attributes, const Context& context) {
  const Residual<Norm::kRms> residual(context);
  float* norm = context.output<float>(0, residual.shape());
  float* total = context.output<float>(1, residual.shape());
  const int64_t dim = residual.dim();
  share_out(context, rows_of(residual.shape()), dim, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      residual.read(row, attributes.epsilon, total + row * dim, norm + row * dim);
  });
}

// The floats that could be read in the time of one Gelu, and of one SiLU or Gelu by tanh.
constexpr int64_t kGelu = 16, kSilu = 8;

// x [..,2F] -> the first half's activation times the second half [M,F]
template <Floats (*activation)(Floats)>
void glu_op(const Attributes&, const Context& context) {
  const Shape shape = context.shape(0);
  require(shape.size() && shape.back() % 2 == 0, "x must be [..,2F]");
  const int64_t rows = rows_of(shape), dim = shape.back() / 2;
  const float* x = context.input<float>(0);
  float* out = context.output<float>(0, {rows, dim});
  share_out(context, rows, dim * kSilu, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) glu<activation>(x + row * 2 * dim, dim, out + row * dim);
  });
}

// x [B,Q,P], cosines and sines [B,Q,1,W] of the angles, where B may be 1, the two sizes of the parts
// of P that are turned and that are not, and three shapes that the standard operators need, of which
// the first ends with W -> x [B,Q,P], turned
void rotary_op(const Attributes&, const Context& context) {
  const Shape shape = context.shape(0), angles = context.shape(1);
  require(shape.size() == 3 && angles.size() == 4 && (angles[0] == 1 || angles[0] == shape[0]) &&
              angles[1] == shape[1] && angles[2] == 1 && context.shape(2) == angles,
          "x, cosines and sines must be [B,Q,P] and [B,Q,1,W]");
  const int64_t half = angles[3], dim = shape[2], per_turn = angles[0] * angles[1];
  require(size_of(context.shape(3)) == 2, "there must be two sizes");
  const int64_t pairs = size_of(context.shape(4));
  require(pairs > 0 && context.input<int64_t>(4)[pairs - 1] == half,
          "the halves of heads must be as wide as their angles");
  const int64_t* sizes = context.input<int64_t>(3);
  require(half > 0 && sizes[0] >= 0 && sizes[1] >= 0 && sizes[0] % (2 * half) == 0 &&
              sizes[0] + sizes[1] == dim,
          "the sizes must add up to P, and the first be of whole heads of 2W");
  const int64_t turned = sizes[0];
  const float* x = context.input<float>(0);
  const float* cosines = context.input<float>(1);
  const float* sines = context.input<float>(2);
  float* out = context.output<float>(0, shape);
  share_out(context, shape[0] * shape[1], dim, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t angle = row % per_turn * half;
      rotate(x + row * dim, cosines + angle, sines + angle, half, turned, dim, out + row * dim);
    }
  });
}

// A function of a row of x: the row itself, or its Relu or Gelu in `room`.
using RowOf = const float* (*)(const float* x, int64_t dim, float* room);

const float* same(const float* x, int64_t, float*) { return x; }

const float* relu_of(const float* x, int64_t dim, float* room) {
  for (int64_t i = 0; i < dim; ++i) room[i] = x[i] < 0.0f ? 0.0f : x[i];
  return room;
}

const float* gelu_of(const float* x, int64_t dim, float* room) {
  gelu(x, dim, room);
  return room;
}

// x [M,K], zero points [M], smallest peak, factor (`Rows::each`) -> row_of(x) [M,K] in 8 bits,
// scales [M,1]. `work` is the time for one number, as the floats that could be read in it.
template <RowOf row_of, int64_t work>
void quantize_rows_op(const Attributes&, const Context& context) {
  const Shape shape = context.shape(0);
  require(shape.size() == 2, "x must be [M,K]");
  const int64_t rows = shape[0], dim = shape[1];
  const float* x = context.input<float>(0);
  const Rows out = Rows::each(context, shape, 1);
  share_out(context, rows, dim * work, [&](int64_t begin, int64_t end) {
    Rows part = out;
    RowBuffer room(dim);
    for (int64_t row = begin; row < end; ++row) part.round(row_of(x + row * dim, dim, room.data()), row);
  });
}

// x [M,K], zero points [M], smallest peak, factor (`Rows::each`) -> [2M,K] in 8 bits, scales
// [2M,1]: the rows, and after them what their rounding leaves
template <RowOf row_of>
void quantize_rows_twice_op(const Attributes&, const Context& context) {
  const Shape shape = context.shape(0);
  require(shape.size() == 2, "x must be [M,K]");
  const int64_t rows = shape[0], dim = shape[1];
  const float* x = context.input<float>(0);
  const Rows out = Rows::each(context, shape, 1, 2);
  share_out(context, rows, 2 * dim, [&](int64_t begin, int64_t end) {
    Rows part = out;
    RowBuffer room(dim), rest(dim);
    for (int64_t row = begin; row < end; ++row)
      part.round_twice(row_of(x + row * dim, dim, room.data()), row, rest.data());
  });
}

// x [..,K], scale, zero_point -> Gelu of x in 8 bits
void gelu_quantize_op(const Attributes&, const Context& context) {
  const Shape shape = context.shape(0);
  require(size_of(context.shape(1)) == 1 && size_of(context.shape(2)) == 1,
          "scale and zero point must be single numbers");
  const int64_t dim = shape.back();
  const float* x = context.input<float>(0);
  const float scale = *context.input<float>(1);
  const uint8_t zero_point = *context.input<uint8_t>(2);
  uint8_t* out = context.output<uint8_t>(0, shape);
  share_out(context, rows_of(shape), dim * kGelu, [&](int64_t begin, int64_t end) {
    RowBuffer room(dim);
    for (int64_t row = begin; row < end; ++row) {
      gelu(x + row * dim, dim, room.data());
      quantize(room.data(), dim, scale, zero_point, out + row * dim);
    }
  });
}

// table [V,D] of 8 bits, scales [V,1], ids [B,Q] -> rows [B,Q,D]
void gather_dequantize(ReadSeldom& reading, const Context& context) {
  const Shape table = context.shape(0), shape = context.shape(2);
  const int64_t dim = table[1], count = size_of(shape);
  require(table.size() == 2 && shape.size() == 2 && size_of(context.shape(1)) == table[0],
          "table, scales and ids must be [V,D], [V,1] and [B,Q]");
  require_within(context, 2, 0, table[0], "ids must be rows of the table");
  const int8_t* rows = context.input<int8_t>(0);
  const float* scales = context.input<float>(1);
  const int64_t* ids = context.input<int64_t>(2);
  float* out = context.output<float>(0, {shape[0], shape[1], dim});
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t d = 0; d < dim; ++d)
      out[i * dim + d] = static_cast<float>(rows[ids[i] * dim + d]) * scales[ids[i]];
    reading.another();
  }
}

// The kernel of a lookup, with its table.
struct LookupKernel {
  const Operator& made_by;
  ReadSeldom table;
};

OperatorTable lookup_table() {
  OperatorTable table = make_table();
  table.create_v2 = [](const OperatorTable* t, const void*, const void* info, void** kernel) {
    return guarded(of(t), [&] {
      const void* weight = constant_input(info, 0, "the table must be a constant");
      const int64_t size = size_of(shape_of(runtime(), weight));
      *kernel = new LookupKernel{of(t), {data_of<int8_t>(runtime(), weight), size}};
    });
  };
  table.compute_v2 = [](void* kernel, void* context) {
    LookupKernel& made = *static_cast<LookupKernel*>(kernel);
    return guarded_run(made.made_by, context,
                       [&](const Context& given) { gather_dequantize(made.table, given); });
  };
  table.destroy = [](void* kernel) { delete static_cast<LookupKernel*>(kernel); };
  return table;
}

// positions [B,Q], offset, frequencies [D/2] -> sinusoids [B,Q,D]
void sinusoids_op(const Attributes&, const Context& context) {
  const Shape shape = context.shape(0);
  const int64_t half = context.shape(2)[0], count = size_of(shape);
  require(shape.size() == 2 && context.shape(2).size() == 1 && size_of(context.shape(1)) == 1,
          "positions, offset and frequencies must be [B,Q], one number and [D/2]");
  const int64_t* positions = context.input<int64_t>(0);
  const float offset = *context.input<float>(1);
  const float* frequencies = context.input<float>(2);
  float* out = context.output<float>(0, {shape[0], shape[1], 2 * half});
  for (int64_t i = 0; i < count; ++i) {
    float* row = out + i * 2 * half;
    if (i && positions[i] == positions[i - 1])  // equal for the beams of a sentence
      std::copy(row - 2 * half, row, row);
    else
      sinusoid(static_cast<float>(positions[i]) + offset, frequencies, half, row);
  }
}

// The number of queries of each sentence: one for each beam, or only that of the first beam.
int64_t queries_of(int64_t logits, int64_t rows, int64_t beams) {
  const int64_t queries = rows ? logits / rows : 0;
  if (logits != queries * rows || beams < 1 || (rows && queries != beams && queries != 1))
    throw std::invalid_argument("logits must have a row for each beam of a sentence, or one");
  return queries;
}

// logits [B*Q,V], scores [B,K], labels [B,Q] -> candidates' scores, tokens and parents [B,2K],
// log-probabilities of the labels [B,Q]
void candidates_op(const Attributes&, const Context& context) {
  const Shape logits_shape = context.shape(0), shape = context.shape(1);
  const int64_t rows = shape[0], beams = shape[1], size = logits_shape[1];
  const int64_t queries = queries_of(logits_shape[0], rows, beams);
  require(logits_shape.size() == 2 && shape.size() == 2 && size > 0 &&
              size_of(context.shape(2)) == rows * queries,
          "logits, scores and labels must be [B*Q,V], [B,K] and [B,Q]");
  require_within(context, 2, 0, size, "labels must be below the size of the vocabulary");
  const float* logits = context.input<float>(0);
  const float* scores = context.input<float>(1);
  const int64_t* labels = context.input<int64_t>(2);
  const Shape wanted{rows, 2 * beams};
  float* best_scores = context.output<float>(0, wanted);
  int32_t* tokens = context.output<int32_t>(1, wanted);
  int32_t* parents = context.output<int32_t>(2, wanted);
  float* label_scores = context.output<float>(3, {rows, queries});
  Logits row(size);
  for (int64_t b = 0; b < rows; ++b) {
    Candidates found(beams);
    for (int64_t q = 0; q < queries; ++q) {
      const int64_t i = b * queries + q;
      row.read(logits + i * size);
      label_scores[i] = row.log_probability(labels[i]);
      found.add(q, row, scores[b * beams + q]);
    }
    int64_t place = 2 * b * beams;
    for (const Found& each : found.best()) {
      best_scores[place] = each.score;
      tokens[place] = each.token;
      parents[place++] = each.parent;
    }
  }
}

// logits [B,Q,L], columns [B,L], scores [B,K] -> candidates' scores, tokens and parents [B,2K]
void shortlist_candidates_op(const Attributes&, const Context& context) {
  const Shape logits_shape = context.shape(0), shape = context.shape(2);
  const int64_t rows = shape[0], beams = shape[1], length = logits_shape.back();
  const int64_t queries = queries_of(rows_of(logits_shape), rows, beams);
  if (!(context.shape(1) == Shape{rows, length}) || !length)
    throw std::invalid_argument("columns must be [B,L], as logits are [B,Q,L]");
  const float* logits = context.input<float>(0);
  const int64_t* columns = context.input<int64_t>(1);
  const float* scores = context.input<float>(2);
  const Shape wanted{rows, 2 * beams};
  float* best_scores = context.output<float>(0, wanted);
  int32_t* tokens = context.output<int32_t>(1, wanted);
  int32_t* parents = context.output<int32_t>(2, wanted);
  std::vector<float> listed(length);
  for (int64_t b = 0; b < rows; ++b) {
    const int64_t* own = columns + b * length;
    const int64_t count = std::find(own, own + length, -1) - own;
    std::fill(listed.begin() + count, listed.end(), -kInfinity);
    Logits row(std::min<int64_t>(length, (count / kLanes + 1) * kLanes));
    Candidates found(beams);
    for (int64_t q = 0; q < queries; ++q) {
      const float* from = logits + (b * queries + q) * length;
      std::copy(from, from + count, listed.begin());
      row.read(listed.data());
      found.add(q, row, scores[b * beams + q]);
    }
    int64_t place = 2 * b * beams;
    for (const Found& each : found.best()) {
      best_scores[place] = each.score;
      tokens[place] = static_cast<int32_t>(own[each.token]);
      parents[place++] = each.parent;
    }
  }
}

// logits [B*R,V], labels [B,R], ranks [T] -> the T likeliest tokens' log-probabilities and ids
// [B,R,T], log-probabilities of the labels [B,R]
void top_tokens_op(const Attributes&, const Context& context) {
  const Shape shape = context.shape(1);
  const int64_t size = context.shape(0)[1], wanted = context.shape(2)[0];
  require(context.shape(0) == Shape{size_of(shape), size} && shape.size() == 2 && wanted > 0 &&
              wanted <= size,
          "logits, labels and ranks must be [B*R,V], [B,R] and [T], T from 1 to V");
  require_within(context, 1, 0, size, "labels must be below the size of the vocabulary");
  const float* logits = context.input<float>(0);
  const int64_t* labels = context.input<int64_t>(1);
  float* scores = context.output<float>(0, {shape[0], shape[1], wanted});
  int32_t* tokens = context.output<int32_t>(1, {shape[0], shape[1], wanted});
  float* label_scores = context.output<float>(2, shape);
  Logits row(size);
  std::vector<Found> found;
  for (int64_t i = 0; i < size_of(shape); ++i)
    top_tokens(logits + i * size, row, wanted, labels[i], found, scores + i * wanted,
               tokens + i * wanted, label_scores + i);
}

// The operators are made at the first call. Nothing may run when the library is loaded, because the
// code of a level may be for another processor.
std::array<Operator, 40>& operators() {
  static std::array<Operator, 40> all{{
      {make_table(), "TreeAttention", {kFloat, kFloat, kFloat, kInt64, kFloat},
       {kFloat, kFloat, kFloat}, tree_attention_op<>},
      {make_table(), "TreeAttentionQuantize",
       {kFloat, kFloat, kFloat, kInt64, kFloat, kFloat, kUint8}, {kUint8, kFloat, kFloat},
       tree_attention_quantize_op<>},
      {make_table(), "TreeAttentionByHead", {kFloat, kFloat, kFloat, kInt64, kFloat},
       {kFloat, kFloat, kFloat}, tree_attention_op<>},
      {make_table(), "TreeAttentionByHeadQuantize",
       {kFloat, kFloat, kFloat, kInt64, kFloat, kFloat, kUint8}, {kUint8, kFloat, kFloat},
       tree_attention_quantize_op<>},
      {make_table(), "BiasedTreeAttention", {kFloat, kFloat, kFloat, kInt64, kFloat, kFloat},
       {kFloat, kFloat, kFloat}, tree_attention_op<Beside::kBias>},
      {make_table(), "BiasedTreeAttentionQuantize",
       {kFloat, kFloat, kFloat, kInt64, kFloat, kFloat, kFloat, kUint8}, {kUint8, kFloat, kFloat},
       tree_attention_quantize_op<Beside::kBias>},
      {make_table(), "RelativeTreeAttention",
       {kFloat, kFloat, kFloat, kInt64, kFloat, kInt64, kFloat, kFloat, kFloat},
       {kFloat, kFloat, kFloat}, tree_attention_op<Beside::kVectors>},
      {make_table(), "RelativeTreeAttentionQuantize",
       {kFloat, kFloat, kFloat, kInt64, kFloat, kInt64, kFloat, kFloat, kFloat, kFloat, kUint8},
       {kUint8, kFloat, kFloat}, tree_attention_quantize_op<Beside::kVectors>},
      {make_table(), "AncestorConvolution", {kFloat, kFloat, kInt64, kInt64, kFloat},
       {kFloat, kFloat}, ancestor_convolution_op},
      {make_table(), "AncestorConvolutionQuantize",
       {kFloat, kFloat, kInt64, kInt64, kFloat, kFloat, kUint8}, {kUint8, kFloat},
       ancestor_convolution_quantize_op},
      {make_table(), "ReachMask", {kFloat, kInt64, kInt64}, {kFloat}, reach_mask_op},
      {make_table(), "MaskedAttention", {kFloat, kFloat, kFloat, kFloat}, {kFloat},
       masked_attention_op},
      {make_table(), "MaskedAttentionQuantize", {kFloat, kFloat, kFloat, kFloat, kFloat, kUint8},
       {kUint8}, masked_attention_quantize_op},
      {make_table(), "AddNormQuantize", {kFloat, kFloat, kFloat, kFloat, kFloat, kUint8},
       {kUint8, kFloat}, norm_quantize_op<Kept::kSum>},
      {make_table(), "AddNormQuantizeRows",
       {kFloat, kFloat, kFloat, kFloat, kUint8, kFloat, kFloat}, {kUint8, kFloat, kFloat}, norm_quantize_rows_op<Kept::kSum>},
      {make_table(), "PackedAttention",
       {kFloat, kInt64, kInt64, kInt64, kFloat, kFloat, kInt64}, {kFloat}, packed_attention_op},
      {make_table(), "PackedAttentionQuantize",
       {kFloat, kInt64, kInt64, kInt64, kFloat, kFloat, kInt64, kFloat, kUint8}, {kUint8},
       packed_attention_quantize_op},
      {make_table(), "PackedAttentionQuantizeRows",
       {kFloat, kInt64, kInt64, kInt64, kFloat, kFloat, kInt64, kUint8, kFloat, kFloat},
       {kUint8, kFloat}, packed_attention_quantize_rows_op},
      {make_table(), "AddPostNorm", {kFloat, kFloat, kFloat, kFloat}, {kFloat}, add_post_norm_op},
      {make_table(), "AddPostNormQuantize", {kFloat, kFloat, kFloat, kFloat, kFloat, kUint8},
       {kUint8, kFloat}, norm_quantize_op<Kept::kNorm>},
      {make_table(), "AddPostNormQuantizeRows",
       {kFloat, kFloat, kFloat, kFloat, kUint8, kFloat, kFloat}, {kUint8, kFloat, kFloat},
       norm_quantize_rows_op<Kept::kNorm>},
      {make_table(), "AddRmsNorm", {kFloat, kFloat, kFloat}, {kFloat, kFloat}, add_rms_norm_op},
      {make_table(), "Swiglu", {kFloat}, {kFloat}, glu_op<silu>},
      {make_table(), "GegluTanh", {kFloat}, {kFloat}, glu_op<gelu_by_tanh>},
      {make_table(), "Rotary", {kFloat, kFloat, kFloat, kInt64, kInt64, kInt64, kInt64}, {kFloat},
       rotary_op},
      {make_table(), "QuantizeRows", {kFloat, kUint8, kFloat, kFloat}, {kUint8, kFloat},
       quantize_rows_op<same, 1>},
      {make_table(), "QuantizeReluRows", {kFloat, kUint8, kFloat, kFloat}, {kUint8, kFloat},
       quantize_rows_op<relu_of, 1>},
      {make_table(), "QuantizeRowsTwice", {kFloat, kUint8, kFloat, kFloat}, {kUint8, kFloat},
       quantize_rows_twice_op<same>},
      {make_table(), "QuantizeReluRowsTwice", {kFloat, kUint8, kFloat, kFloat}, {kUint8, kFloat},
       quantize_rows_twice_op<relu_of>},
      {make_table(), "GeluQuantizeRows", {kFloat, kUint8, kFloat, kFloat}, {kUint8, kFloat},
       quantize_rows_op<gelu_of, kGelu>},
      {make_table(), "GeluQuantize", {kFloat, kFloat, kUint8}, {kUint8}, gelu_quantize_op},
      {lookup_table(), "GatherDequantize", {kInt8, kFloat, kInt64}, {kFloat}, nullptr},
      {make_table(), "Sinusoids", {kInt64, kFloat, kFloat}, {kFloat}, sinusoids_op},
      {make_table(), "Candidates", {kFloat, kFloat, kInt64}, {kFloat, kInt32, kInt32, kFloat},
       candidates_op},
      {make_table(), "ShortlistLogits", {kFloat, kFloat, kInt64}, {kFloat},
       shortlist_logits_op<false>},
      {make_table(), "BiasedShortlistLogits", {kFloat, kFloat, kInt64, kFloat}, {kFloat},
       shortlist_logits_op<true>},
      {shortlist_table<false>(), "ShortlistLogitsInteger",
       {kUint8, kFloat, kInt8, kFloat, kUint8, kInt64}, {kFloat}, nullptr},
      {shortlist_table<true>(), "BiasedShortlistLogitsInteger",
       {kUint8, kFloat, kInt8, kFloat, kUint8, kInt64, kFloat}, {kFloat}, nullptr},
      {make_table(), "ShortlistCandidates", {kFloat, kInt64, kFloat}, {kFloat, kInt32, kInt32},
       shortlist_candidates_op},
      {make_table(), "TopTokens", {kFloat, kInt64, kInt64}, {kFloat, kInt32, kFloat},
       top_tokens_op},
  }};
  return all;
}

Status make_domain(const char* name, const std::vector<Operator*>& members, void*& domain) {
  void* made = nullptr;
  if (Status failed = runtime().call(Runtime::kCreateCustomOpDomain, name, &made)) return failed;
  for (Operator* each : members)
    if (Status failed = runtime().call(Runtime::kCustomOpDomainAdd, made, &each->table))
      return failed;
  domain = made;
  return Status{};
}

// Finds the operator that a program names: one of this project's, a product, or a standard one.
void find_operator(const std::string& name, Node& node, size_t& least, size_t& most) {
  const auto take = [&](const Operator& found) {
    node.table = &found.table;
    node.input_types = found.inputs;
    node.output_types = found.outputs;
    most = found.inputs.size();
    while (least < most && !found.table.input_kind(&found.table, least)) ++least;
  };
  for (const Operator& each : operators())
    if (name == each.name) return take(each);
#ifdef MACARON_PRODUCTS
  if (products_work()) {
    if (name == product().name) {
      node.unread = 5;  // a zero point of the weights
      return take(product());
    }
    for (const Operator& each : own_products())
      if (name == each.name) return take(each);
  }
#endif
  for (const Standard& each : standards())
    if (name == each.op.name) {
      take(each.op);
      least = each.least;
      most = each.most;
      node.view = each.view;
      node.any_number = most > each.op.inputs.size();
      node.any_outputs = each.run == split_op;
      node.writes_first = each.run == tensor_scatter_op;
    }
}

thread_local std::string program_error;

// Calls `work`; returns whether it failed, and keeps the reason for `ProgramFunctions::reason`.
template <typename Work>
bool failed(Work work) {
  try {
    work();
    return false;
  } catch (const std::exception& error) {
    program_error = error.what();
    return true;
  }
}

// What serving/runtime/cpu_graphs.py calls, in its order.
struct ProgramFunctions {
  // Null if it failed. `mapped` and `size` are the place of the mapped file with weights.
  void* (*make)(const char* text, const Tensor* constants, size_t threads, uintptr_t mapped,
                uintptr_t size);
  bool (*run)(void* program, const Tensor* inputs, const Tensor* outputs);  // whether it failed
  void (*free)(void* program);
  const char* (*reason)();  // of this thread's last failure
};

constexpr ProgramFunctions program_functions{
    [](const char* text, const Tensor* constants, size_t threads, uintptr_t mapped,
       uintptr_t size) -> void* {
      std::unique_ptr<Program> made;
      const MappedFile before = mapped_file;
      mapped_file = {mapped, size};
      failed([&] { made = std::make_unique<Program>(text, constants, threads, find_operator); });
      mapped_file = before;
      return made.release();
    },
    [](void* program, const Tensor* inputs, const Tensor* outputs) {
      return failed([&] { static_cast<Program*>(program)->run(inputs, outputs); });
    },
    [](void* program) { delete static_cast<Program*>(program); },
    [] { return program_error.c_str(); },
};

}  // namespace
}  // namespace macaron

// The function that `SessionOptions.register_custom_ops_library` calls; in a library of several
// levels, levels.cpp has that, and this is the entry of one level. Without options, it returns the
// functions of programs.
#ifndef MACARON_ENTRY
#include "beams.h"
#define MACARON_ENTRY RegisterCustomOps
#endif
extern "C" __attribute__((visibility("default"))) void* MACARON_ENTRY(
    void* options, const macaron::RuntimeBase* base) {
  using macaron::Runtime;
  if (!options) return const_cast<macaron::ProgramFunctions*>(&macaron::program_functions);
  static std::mutex one_at_a_time;  // several threads may make sessions
  const std::lock_guard<std::mutex> guard(one_at_a_time);
  static const Runtime runtime(base);
  macaron::sessions_runtime = &runtime;
  static void* own = nullptr;  // the domain, one for all sessions
  if (!own) {
    std::vector<macaron::Operator*> members;
    for (macaron::Operator& each : macaron::operators()) members.push_back(&each);
#ifdef MACARON_PRODUCTS
    if (macaron::products_work())
      for (macaron::Operator& each : macaron::own_products()) members.push_back(&each);
#endif
    if (void* status = macaron::make_domain("macaron", members, own)) return status;
  }
  if (void* status = runtime.call(Runtime::kAddCustomOpDomain, options, own)) return status;
#ifdef MACARON_PRODUCTS
  macaron::note_mapped_file(runtime, options);
  int wanted = 0;
  runtime.call(Runtime::kHasSessionConfigEntry, static_cast<const void*>(options),
               "macaron.int8_products", &wanted);
  static void* runtimes = nullptr;
  if (wanted && macaron::products_work()) {
    if (!runtimes)
      if (void* status = macaron::make_domain("com.microsoft", {&macaron::product()}, runtimes))
        return status;
    return runtime.call(Runtime::kAddCustomOpDomain, options, runtimes);
  }
#endif
  // The session has ONNX Runtime's own products, which this makes exact.
  return runtime.call(Runtime::kAddSessionConfigEntry, options, "session.x64quantprecision", "1");
}
