// Int8 products on vectors: AVX-512 VNNI, of Intel's servers since Cascade Lake and AMD's since
// Genoa.

#pragma once

#include "product.h"

#ifdef MACARON_WIDE

#include <immintrin.h>

#include <utility>

namespace macaron {

constexpr int64_t kBytesNear = 1 << 18;  // of weights, that stay in the second cache for all rows

inline bool dots_work() { return __builtin_cpu_supports("avx512vnni"); }

#define MACARON_DOTS __attribute__((target("avx512vnni")))

// Four inputs of a row, 16 times.
MACARON_DOTS inline __attribute__((always_inline)) __m512i four_inputs(const uint8_t* from) {
  int32_t four;
  std::memcpy(&four, from, sizeof four);
  return _mm512_set1_epi32(four);
}

MACARON_DOTS inline __attribute__((always_inline)) Ints add_dots(Ints sums, __m512i rows,
                                                                 __m512i columns) {
  return (Ints)_mm512_dpbusd_epi32((__m512i)sums, rows, columns);
}

// Rows times a panel of so many fours of inputs, for `multiply_panels`. Subscripts are constants so
// that compilers keep the sums in registers.
template <size_t... r>
MACARON_DOTS inline void multiply_rows(std::index_sequence<r...>, const uint8_t* rows, int64_t step,
                                       const int8_t* panel, int64_t fours, int64_t row,
                                       const PanelOutput& out) {
  Ints first[sizeof...(r)] = {}, second[sizeof...(r)] = {};
  for (int64_t k = 0; k < fours; ++k, rows += kFour, panel += 2 * kLine) {
    const __m512i left = _mm512_load_si512(panel), right = _mm512_load_si512(panel + kLine);
    __m512i four;
    ((four = four_inputs(rows + r * step), first[r] = add_dots(first[r], four, left),
      second[r] = add_dots(second[r], four, right)),
     ...);
  }
  (out.write(row + r, first[r], second[r]), ...);
}

template <size_t count>
MACARON_DOTS void multiply_some(const uint8_t* rows, int64_t step, const int8_t* panel,
                                int64_t fours, int64_t row, const PanelOutput& out) {
  multiply_rows(std::make_index_sequence<count>(), rows, step, panel, fours, row, out);
}

// The columns of some panels of out [M,N]; rows [M,K], each `step` bytes after the other, of which
// those up to the next multiple of four are read.
inline void multiply_with_dots(const uint8_t* rows, int64_t count, int64_t step,
                               const PackedWeight& weight, const Scales& scales,
                               int64_t first_panel, int64_t last_panel, float* out) {
  // The sums of five rows stay in registers; more gain nothing.
  constexpr MultiplySome<uint8_t> multiply[] = {multiply_some<1>, multiply_some<2>,
                                                multiply_some<3>, multiply_some<4>,
                                                multiply_some<5>};
  multiply_panels(multiply, rows, count, step, weight, pieces(weight.inputs(), kFour), kBytesNear,
                  scales, first_panel, last_panel, out);
}

}  // namespace macaron

#endif
