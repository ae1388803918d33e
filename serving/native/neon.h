// Int8 products on ARM's vectors. With `dotprod` (Arm's processors since Cortex-A76 and Neoverse
// N1, Apple's since M1), one instruction multiplies and adds four inputs of each of four columns.
//
// Its numbers are signed. `i8mm` (Neoverse V1, N2) has an instruction for unsigned rows; without
// it, 128 is subtracted from the rows and from their zero point.

#pragma once

#include "product.h"

#ifdef MACARON_NEON

#include <arm_neon.h>

#include <utility>

namespace macaron {

constexpr int64_t kBytesNear = 1 << 18;  // of weights, which stay in the second-level cache

#ifdef __ARM_FEATURE_MATMUL_INT8
constexpr int kTaken = 0;  // subtracted from rows
#else
constexpr int kTaken = 128;
#endif

// Adds the products of four inputs of a row with those of each of four columns.
inline __attribute__((always_inline)) Ints add_dots(Ints sums, const uint8_t* row,
                                                    int8x16_t columns) {
  int32_t four;
  std::memcpy(&four, row, sizeof four);
  const int32x4_t rows = vdupq_n_s32(four);
#ifdef __ARM_FEATURE_MATMUL_INT8
  return (Ints)vusdotq_s32((int32x4_t)sums, vreinterpretq_u8_s32(rows), columns);
#else
  return (Ints)vdotq_s32((int32x4_t)sums, vreinterpretq_s8_s32(rows), columns);
#endif
}

// Multiplies rows by a panel, over `fours` groups of four inputs (see `MultiplySome`). Subscripts
// are constants so that compilers keep the accumulators in registers.
template <size_t... r>
inline void multiply_rows(std::index_sequence<r...>, const uint8_t* rows, int64_t step,
                          const int8_t* panel, int64_t fours, int64_t row, const PanelOutput& out) {
  Ints first[sizeof...(r)] = {}, second[sizeof...(r)] = {};
  for (int64_t k = 0; k < fours; ++k, rows += kFour, panel += kFour * kPanel) {
    const int8x16_t left = vld1q_s8(panel), right = vld1q_s8(panel + kFour * kLanes);
    ((first[r] = add_dots(first[r], rows + r * step, left),
      second[r] = add_dots(second[r], rows + r * step, right)),
     ...);
  }
  (out.write(row + r, first[r], second[r]), ...);
}

template <size_t count>
void multiply_some(const uint8_t* rows, int64_t step, const int8_t* panel, int64_t fours,
                   int64_t row, const PanelOutput& out) {
  multiply_rows(std::make_index_sequence<count>(), rows, step, panel, fours, row, out);
}

// Rows [M,K] of 8 bits less kTaken, with K padded to a multiple of four.
class NeonRows {
 public:
  NeonRows(const uint8_t* rows, int64_t count, int64_t inputs, Aligned<uint8_t>& room)
      : rows_(rows), count_(count), step_(pieces(inputs, kFour) * kFour) {
    if (!kTaken && step_ == inputs) return;
    uint8_t* to = room.resize(count * step_);
    rows_ = to;
    for (int64_t row = 0; row < count; ++row, rows += inputs, to += step_) {
      for (int64_t k = 0; k < inputs; ++k) to[k] = static_cast<uint8_t>(rows[k] - kTaken);
      std::fill(to + inputs, to + step_, uint8_t{0});  // any value: the weights are zero
    }
  }

  // Computes the columns of the panels in [first_panel, last_panel) of out [M,N].
  void multiply(const PackedWeight& weight, const Scales& scales, int64_t first_panel,
                int64_t last_panel, float* out) const {
    // The accumulators of eight rows fit the registers.
    constexpr MultiplySome<uint8_t> multiply[] = {
        multiply_some<1>, multiply_some<2>, multiply_some<3>, multiply_some<4>,
        multiply_some<5>, multiply_some<6>, multiply_some<7>, multiply_some<8>};
    Scales own = scales;
    own.zero_point -= kTaken;
    multiply_panels(multiply, rows_, count_, step_, weight, step_ / kFour, kBytesNear, own,
                    first_panel, last_panel, out);
  }

 private:
  const uint8_t* rows_;
  int64_t count_, step_;
};

}  // namespace macaron

#endif
