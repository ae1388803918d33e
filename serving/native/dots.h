// Int8 products with VNNI: on vectors of AVX-512 (Intel's servers since Cascade Lake, AMD's since
// Genoa) or of AVX (AVX-VNNI, Intel's other processors since Alder Lake).

#pragma once

#include "product.h"

#ifdef MACARON_DOTS

#include <immintrin.h>

#include <utility>

namespace macaron {

#ifdef MACARON_WIDE

#define MACARON_VNNI __attribute__((target("avx512vnni")))

using Bytes = __m512i;

inline bool dots_work() { return __builtin_cpu_supports("avx512vnni"); }

MACARON_VNNI inline __attribute__((always_inline)) Bytes repeat(int32_t four) {
  return _mm512_set1_epi32(four);
}

MACARON_VNNI inline __attribute__((always_inline)) Ints add_dots(Ints sums, Bytes rows,
                                                                 Bytes columns) {
  return (Ints)_mm512_dpbusd_epi32((__m512i)sums, rows, columns);
}

#else

#define MACARON_VNNI __attribute__((target("avxvnni")))

using Bytes = __m256i;

inline bool dots_work() { return has_avx_vnni(); }

MACARON_VNNI inline __attribute__((always_inline)) Bytes repeat(int32_t four) {
  return _mm256_set1_epi32(four);
}

MACARON_VNNI inline __attribute__((always_inline)) Ints add_dots(Ints sums, Bytes rows,
                                                                 Bytes columns) {
  return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sums, rows, columns);
}

#endif

// Four inputs of a row, repeated in each lane of 32 bits.
MACARON_VNNI inline __attribute__((always_inline)) Bytes four_inputs(const uint8_t* from) {
  int32_t four;
  std::memcpy(&four, from, sizeof four);
  return repeat(four);
}

// Multiplies rows by a panel, over `fours` groups of four inputs (see `MultiplySome`). Subscripts
// are constants so that compilers keep the accumulators in registers.
template <size_t... r>
MACARON_VNNI inline void multiply_rows(std::index_sequence<r...>, const uint8_t* rows, int64_t step,
                                       const int8_t* panel, int64_t fours, int64_t row,
                                       const PanelOutput& out) {
  Ints first[sizeof...(r)] = {}, second[sizeof...(r)] = {};
  for (int64_t k = 0; k < fours; ++k, rows += kFour, panel += kFour * kPanel) {
    const auto* columns = reinterpret_cast<const Bytes*>(panel);
    const Bytes left = columns[0], right = columns[1];
    Bytes four;
    ((four = four_inputs(rows + r * step), first[r] = add_dots(first[r], four, left),
      second[r] = add_dots(second[r], four, right)),
     ...);
  }
  (out.write(row + r, first[r], second[r]), ...);
}

template <size_t count>
MACARON_VNNI void multiply_some(const uint8_t* rows, int64_t step, const int8_t* panel,
                                int64_t fours, int64_t row, const PanelOutput& out) {
  multiply_rows(std::make_index_sequence<count>(), rows, step, panel, fours, row, out);
}

// Rows [M,K] of 8 bits, with K padded to a multiple of four with zeros.
class DotRows {
 public:
  DotRows(const uint8_t* rows, int64_t count, int64_t inputs, Aligned<uint8_t>& room)
      : rows_(rows), count_(count), step_(pieces(inputs, kFour) * kFour) {
    if (step_ == inputs) return;
    uint8_t* to = room.resize(count * step_);
    rows_ = to;
    std::fill(to, to + count * step_, 0);
    for (int64_t row = 0; row < count; ++row)
      std::copy(rows + row * inputs, rows + (row + 1) * inputs, to + row * step_);
  }

  // Computes the columns of the panels in [first_panel, last_panel) of out [M,N].
  void multiply(const PackedWeight& weight, const Scales& scales, int64_t first_panel,
                int64_t last_panel, float* out) const {
    constexpr int64_t kNear = 1 << 18;  // bytes of weights, which stay in the second-level cache
    // The accumulators of five rows fit the registers; more rows gain nothing.
    constexpr MultiplySome<uint8_t> multiply[] = {multiply_some<1>, multiply_some<2>,
                                                  multiply_some<3>, multiply_some<4>,
                                                  multiply_some<5>};
    multiply_panels(multiply, rows_, count_, step_, weight, step_ / kFour, kNear, scales,
                    first_panel, last_panel, out);
  }

 private:
  const uint8_t* rows_;
  int64_t count_, step_;
};

}  // namespace macaron

#endif
