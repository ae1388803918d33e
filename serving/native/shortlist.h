// The logits of the pieces in each sentence's list: products with rows of the output matrix [V,D].
// The rows are read where they are, because each sentence has a list of its own.
//
// Shape letters: B sentences, Q queries, D inputs, V pieces, L pieces of the longest list; shorter
// lists are filled up with -1.

#pragma once

#include <memory>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "arithmetic.h"
#include "dots.h"
#include "operator.h"
#include "pairs.h"

namespace macaron {

inline int32_t dot(const uint8_t* a, const int8_t* b, int64_t count) {
  int32_t total = 0;
  for (int64_t i = 0; i < count; ++i) total += int32_t{a[i]} * b[i];
  return total;
}

// Refuses inputs that would make the kernels read or write out of bounds: rows [B,Q,D], a table
// [V,D], and columns [B,L], which are rows of the table.
inline void check_lists(const Context& context, size_t table, size_t columns) {
  const Shape rows = context.shape(0), all = context.shape(table), lists = context.shape(columns);
  if (rows.size() != 3 || all.size() != 2 || lists.size() != 2 || rows[0] != lists[0] ||
      rows[2] != all[1])
    throw std::invalid_argument("rows, table and columns must be [B,Q,D], [V,D] and [B,L]");
  require_within(context, columns, -1, all[0], "columns must be rows of the table, or -1");
}

// Calls `work` with each sentence's number, its pieces and their number, on several threads if that
// is worth it. `work_a_piece` is the time for one piece, as a number of float multiplications.
template <typename Work>
void for_each_list(const Context& context, size_t columns, int64_t work_a_piece, Work work) {
  const Shape shape = context.shape(columns);
  const int64_t* pieces = context.input<int64_t>(columns);
  const int64_t rows = shape[0], most = shape[1];
  const auto part = [&](size_t row) {
    const int64_t* own = pieces + row * most;
    work(static_cast<int64_t>(row), own, std::find(own, own + most, -1) - own);
  };
  constexpr int64_t kLeast = 1 << 18;  // multiplications that are worth a thread
  if (rows > 1 && rows * most * work_a_piece > 2 * kLeast)
    context.in_parallel(rows, part);
  else
    for (int64_t row = 0; row < rows; ++row) part(row);
}

// The bias [V] of the rows of the table; null if there is none.
template <bool biased>
const float* listed_bias(const Context& context, size_t input, size_t table) {
  if (!biased) return nullptr;
  require(size_of(context.shape(input)) == context.shape(table)[0],
          "the bias must be that of each piece");
  return context.input<float>(input);
}

// x [B,Q,D], table [V,D], columns [B,L], bias [V] if `biased` -> logits [B,Q,L], 0 beyond a list
template <bool biased>
void shortlist_logits_op(const Attributes&, const Context& context) {
  check_lists(context, 1, 2);
  const Shape shape = context.shape(0);
  const int64_t queries = shape[1], inputs = shape[2], most = context.shape(2)[1];
  const float* x = context.input<float>(0);
  const float* table = context.input<float>(1);
  const float* bias = listed_bias<biased>(context, 3, 1);
  float* logits = context.output<float>(0, {shape[0], queries, most});
  for_each_list(context, 2, queries * inputs, [&](int64_t b, const int64_t* own, int64_t count) {
    for (int64_t q = b * queries; q < (b + 1) * queries; ++q) {
      float* to = logits + q * most;
      for (int64_t l = 0; l < count; ++l) {
        to[l] = dot(x + q * inputs, table + own[l] * inputs, inputs);
        if (biased) to[l] += bias[own[l]];
      }
      std::fill(to + count, to + most, 0.0f);
    }
  });
}

#if defined(MACARON_PAIRS) || defined(MACARON_WIDE)

constexpr int64_t kColumnsTogether = 4;
constexpr int64_t kSoon = 8;  // columns ahead at which one is prefetched

// Multiplies some rows, which lie `step` bytes apart, by four columns; the sums of consecutive rows
// are stored `sums_step` numbers apart.
using MultiplyColumns = void (*)(const uint8_t* rows, int64_t step, const int8_t* const* columns,
                                 int64_t inputs, int32_t* sums, int64_t sums_step);

#ifdef MACARON_WIDE

template <size_t... r>
__attribute__((target("avx512vnni,avx512bw"))) inline void multiply_columns(
    std::index_sequence<r...>, const uint8_t* rows, int64_t step, const int8_t* const* columns,
    int64_t inputs, int32_t* sums, int64_t sums_step) {
  Ints a[sizeof...(r)] = {}, b[sizeof...(r)] = {}, c[sizeof...(r)] = {}, d[sizeof...(r)] = {};
  for (int64_t k = 0; k < inputs; k += kLine) {
    const int64_t left = inputs - k;
    const __mmask64 some = left < kLine ? (uint64_t{1} << left) - 1 : ~uint64_t{0};
    const auto line = [&](const void* from) __attribute__((target("avx512vnni,avx512bw"))) {
      return _mm512_maskz_loadu_epi8(some, static_cast<const char*>(from) + k);
    };
    const __m512i w[] = {line(columns[0]), line(columns[1]), line(columns[2]), line(columns[3])};
    __m512i x;
    ((x = line(rows + r * step), a[r] = add_dots(a[r], x, w[0]), b[r] = add_dots(b[r], x, w[1]),
      c[r] = add_dots(c[r], x, w[2]), d[r] = add_dots(d[r], x, w[3])),
     ...);
  }
  const auto write = [&](size_t row, auto four) {
    std::memcpy(sums + row * sums_step, &four, sizeof four);
  };
  (write(r, four_sums(a[r], b[r], c[r], d[r])), ...);
}

#else

template <size_t... r>
inline void multiply_columns(std::index_sequence<r...>, const uint8_t* rows, int64_t step,
                             const int8_t* const* columns, int64_t inputs, int32_t* sums,
                             int64_t sums_step) {
  constexpr int64_t kTogether = 16;
  Ints a[sizeof...(r)] = {}, b[sizeof...(r)] = {}, c[sizeof...(r)] = {}, d[sizeof...(r)] = {};
  const auto add = [&](auto row, auto column) __attribute__((always_inline)) {
    const __m256i w[] = {column(columns[0]), column(columns[1]), column(columns[2]),
                         column(columns[3])};
    __m256i x;
    ((x = row(rows + r * step), a[r] = add_pairs(a[r], x, w[0]), b[r] = add_pairs(b[r], x, w[1]),
      c[r] = add_pairs(c[r], x, w[2]), d[r] = add_pairs(d[r], x, w[3])),
     ...);
  };
  const auto whole = [](const void* from) __attribute__((always_inline)) {
    return _mm_loadu_si128(static_cast<const __m128i*>(from));
  };
  int64_t k = 0;
  for (; k + kTogether <= inputs; k += kTogether)
    add([&](const uint8_t* from) { return _mm256_cvtepu8_epi16(whole(from + k)); },
        [&](const int8_t* from) { return _mm256_cvtepi8_epi16(whole(from + k)); });
  if (k < inputs) {
    const auto rest = [&](const void* from) {
      __m128i some{};
      std::memcpy(&some, static_cast<const char*>(from) + k, inputs - k);
      return some;
    };
    add([&](const uint8_t* from) { return _mm256_cvtepu8_epi16(rest(from)); },
        [&](const int8_t* from) { return _mm256_cvtepi8_epi16(rest(from)); });
  }
  const auto write = [&](size_t row, auto four) {
    std::memcpy(sums + row * sums_step, &four, sizeof four);
  };
  (write(r, four_sums(a[r], b[r], c[r], d[r])), ...);
}

#endif

template <size_t count>
void multiply_some_columns(const uint8_t* rows, int64_t step, const int8_t* const* columns,
                           int64_t inputs, int32_t* sums, int64_t sums_step) {
  multiply_columns(std::make_index_sequence<count>(), rows, step, columns, inputs, sums, sums_step);
}

// Function i multiplies i + 1 rows at a time.
#ifdef MACARON_WIDE
constexpr std::array<MultiplyColumns, 5> kMultiplyColumns = {
    multiply_some_columns<1>, multiply_some_columns<2>, multiply_some_columns<3>,
    multiply_some_columns<4>, multiply_some_columns<5>};

inline bool columns_work() { return dots_work(); }
#else
constexpr std::array<MultiplyColumns, 3> kMultiplyColumns = {
    multiply_some_columns<1>, multiply_some_columns<2>, multiply_some_columns<3>};

inline bool columns_work() { return true; }
#endif

// Multiplies rows [Q,D] by the rows `own` of a table [V,D] -> sums [Q, count rounded up to a
// multiple of four]
inline void multiply_list(const uint8_t* rows, int64_t queries, int64_t inputs, const int8_t* table,
                          const int64_t* own, int64_t count, int32_t* sums) {
  constexpr int64_t kTogether = kMultiplyColumns.size();
  const int64_t step = pieces(count, kColumnsTogether) * kColumnsTogether;
  for (int64_t l = 0; l < count; l += kColumnsTogether) {
    const int8_t* columns[kColumnsTogether];
    for (int64_t i = 0; i < kColumnsTogether; ++i) {
      columns[i] = table + own[std::min(l + i, count - 1)] * inputs;
      const int8_t* soon = table + own[std::min(l + i + kSoon, count - 1)] * inputs;
      for (int64_t k = 0; k < inputs; k += kLine) __builtin_prefetch(soon + k);
    }
    for (int64_t q = 0; q < queries; q += kTogether)
      kMultiplyColumns[std::min(kTogether, queries - q) - 1](
          rows + q * inputs, inputs, columns, inputs, sums + q * step + l, step);
  }
}

#endif

constexpr size_t kTable = 2;  // the input of the integer kernel with the table

// The kernel of logits from int8, with the sum of each row of the table.
struct ShortlistKernel {
  const Operator& made_by;
  std::vector<int32_t> sums;
};

// rows [B,Q,D] of 8 bits, their scales (one, or [B,Q,1]), table [V,D], its scales [V], the rows'
// zero point, columns [B,L], bias [V] if `biased` -> logits [B,Q,L], 0 beyond a list
template <bool biased>
void run_integer_logits(const ShortlistKernel& kernel, const Context& context) {
  constexpr size_t kColumns = 5;
  check_lists(context, kTable, kColumns);
  const Shape shape = context.shape(0);
  const int64_t queries = shape[1], inputs = shape[2], most = context.shape(kColumns)[1];
  const uint8_t* rows = context.input<uint8_t>(0);
  const float* row_scales = context.input<float>(1);
  const bool each_row = size_of(context.shape(1)) != 1;
  require((!each_row || size_of(context.shape(1)) == shape[0] * queries) &&
              size_of(context.shape(3)) == context.shape(kTable)[0],
          "scales must be those of each row, or one, and of each piece");
  const int8_t* table = context.input<int8_t>(2);
  const float* scales = context.input<float>(3);
  const int32_t zero_point =
      number_of<uint8_t>(context, 4, "the zero point must be a single number");
  const float* bias = listed_bias<biased>(context, kColumns + 1, kTable);
  float* logits = context.output<float>(0, {shape[0], queries, most});
#if defined(MACARON_PAIRS) || defined(MACARON_WIDE)
  static const bool vectors = columns_work();
#endif
  const auto list = [&](int64_t b, const int64_t* own, int64_t count) {
    static thread_local std::vector<int32_t> sums, corrections;
    static thread_local std::vector<float> factors, added;
    const uint8_t* first = rows + b * queries * inputs;
    const int64_t step = (count + 3) / 4 * 4;
    sums.resize(queries * step);
    corrections.resize(count);
    factors.resize(count);
    added.resize(count);
    for (int64_t l = 0; l < count; ++l) {
      corrections[l] = -zero_point * kernel.sums[own[l]];
      factors[l] = scales[own[l]];
      if (biased) added[l] = bias[own[l]];
    }
#if defined(MACARON_PAIRS) || defined(MACARON_WIDE)
    if (vectors)
      multiply_list(first, queries, inputs, table, own, count, sums.data());
    else
#endif
      for (int64_t q = 0; q < queries; ++q)
        for (int64_t l = 0; l < count; ++l)
          sums[q * step + l] = dot(first + q * inputs, table + own[l] * inputs, inputs);
    for (int64_t q = 0; q < queries; ++q) {
      const int64_t row = b * queries + q;
      const float scale = row_scales[each_row ? row : 0];
      float* to = logits + row * most;
      const int32_t *sum = sums.data() + q * step, *correction = corrections.data();
      const float *factor = factors.data(), *more = added.data();
      for (int64_t l = 0; l < count; ++l) {
        to[l] = static_cast<float>(sum[l] + correction[l]) * (factor[l] * scale);
        if (biased) to[l] += more[l];
      }
      std::fill(to + count, to + most, 0.0f);
    }
  };
  for_each_list(context, kColumns, queries * inputs / 16, list);
}

template <bool biased>
OperatorTable shortlist_table() {
  OperatorTable table = make_table();
  table.create_v2 = [](const OperatorTable* t, const void*, const void* info, void** kernel) {
    return guarded(of(t), [&] {
      const void* weight = constant_input(info, kTable, "the table must be a constant");
      const Shape shape = shape_of(runtime(), weight);
      require(shape.size() == 2, "the table must be [V,D]");
      require_few_inputs(shape[1]);
      const int8_t* from = data_of<int8_t>(runtime(), weight);
      auto made = std::make_unique<ShortlistKernel>(ShortlistKernel{of(t), {}});
      for (int64_t v = 0; v < shape[0]; ++v, from += shape[1])
        made->sums.push_back(std::accumulate(from, from + shape[1], int32_t{0}));
      *kernel = made.release();
    });
  };
  table.compute_v2 = [](void* kernel, void* context) {
    const ShortlistKernel& made = *static_cast<ShortlistKernel*>(kernel);
    return guarded_run(made.made_by, context,
                       [&](const Context& given) { run_integer_logits<biased>(made, given); });
  };
  table.destroy = [](void* kernel) { delete static_cast<ShortlistKernel*>(kernel); };
  return table;
}

}  // namespace macaron
