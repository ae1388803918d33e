// Int8 products on AVX2, for processors without VNNI and AVX-512: Intel's from Haswell to Comet
// Lake (servers: to Broadwell), AMD's up to Zen 3.
//
// Their instruction for 8 bits saturates the sum of two products at 16 bits. So rows and weights
// are widened to 16 bits: the instruction for these adds two products in 32 bits.

#pragma once

#include "product.h"

#ifdef MACARON_PAIRS

#include <immintrin.h>

#include <utility>

namespace macaron {

constexpr int64_t kTwo = 2;              // inputs whose products one instruction adds up
constexpr int64_t kSoonNeeded = 2048;    // bytes ahead at which weights are prefetched

// False on a processor with AVX-VNNI. If the compiler does not support that (dots.h), ONNX
// Runtime's own product, which does, is used there.
inline bool pairs_work() { return !has_avx_vnni(); }

inline __attribute__((always_inline)) Ints add_pairs(Ints sums, __m256i a, __m256i b) {
  return sums + (Ints)_mm256_madd_epi16(a, b);
}

// Two inputs of a row, repeated 8 times.
inline __attribute__((always_inline)) __m256i two_inputs(const int16_t* from) {
  int32_t two;
  std::memcpy(&two, from, sizeof two);
  return _mm256_set1_epi32(two);
}

// Two inputs of each of 8 columns, widened to 16 bits.
inline __attribute__((always_inline)) __m256i two_of_columns(const int8_t* from) {
  return _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(from)));
}

// Multiplies rows by a panel, over `pairs` pairs of inputs (see `MultiplySome`). Subscripts are
// constants so that compilers keep the accumulators in registers.
template <size_t... r>
inline void multiply_rows(std::index_sequence<r...>, const int16_t* rows, int64_t step,
                          const int8_t* panel, int64_t pairs, int64_t row, const PanelOutput& out) {
  Ints first[sizeof...(r)] = {}, second[sizeof...(r)] = {};
  for (int64_t k = 0; k < pairs; ++k, rows += kTwo, panel += kTwo * kPanel) {
    if (k % 2 == 0) __builtin_prefetch(panel + kSoonNeeded);  // a cache line has two pairs
    const __m256i left = two_of_columns(panel), right = two_of_columns(panel + kTwo * kLanes);
    __m256i two;
    ((two = two_inputs(rows + r * step), first[r] = add_pairs(first[r], two, left),
      second[r] = add_pairs(second[r], two, right)),
     ...);
  }
  (out.write(row + r, first[r], second[r]), ...);
}

template <size_t count>
void multiply_some(const int16_t* rows, int64_t step, const int8_t* panel, int64_t pairs,
                   int64_t row, const PanelOutput& out) {
  multiply_rows(std::make_index_sequence<count>(), rows, step, panel, pairs, row, out);
}

// Rows [M,K] of 8 bits, widened to 16. An odd K is padded with zero.
class PairRows {
 public:
  PairRows(const uint8_t* rows, int64_t count, int64_t inputs, Aligned<uint8_t>& room)
      : count_(count), step_(pieces(inputs, kTwo) * kTwo) {
    int16_t* to = reinterpret_cast<int16_t*>(room.resize(count * step_ * sizeof(int16_t)));
    rows_ = to;
    for (int64_t row = 0; row < count; ++row, rows += inputs, to += step_) {
      to[step_ - 1] = 0;
      std::copy(rows, rows + inputs, to);
    }
  }

  // Computes the columns of the panels in [first_panel, last_panel) of out [M,N].
  void multiply(const PackedWeight& weight, const Scales& scales, int64_t first_panel,
                int64_t last_panel, float* out) const {
    constexpr int64_t kNear = 1 << 17;  // bytes of weights, which stay in the second-level cache
    // The accumulators of six rows fit the registers.
    constexpr MultiplySome<int16_t> multiply[] = {multiply_some<1>, multiply_some<2>,
                                                  multiply_some<3>, multiply_some<4>,
                                                  multiply_some<5>, multiply_some<6>};
    multiply_panels(multiply, rows_, count_, step_, weight, step_ / kTwo, kNear, scales,
                    first_panel, last_panel, out);
  }

 private:
  const int16_t* rows_;
  int64_t count_, step_;
};

}  // namespace macaron

#endif
