// What the int8 matrix products that replace ONNX Runtime's own have in common: those on tiles
// (tiles.h), on vectors with VNNI (dots.h) and without it (pairs.h), and on ARM's vectors (neon.h).
//
// Integer sums are exact, and each output is scaled on its own, so a row's result does not depend
// on other rows. The only exception is activations of 16 bits: such a row is two rows of 8 bits,
// whose results are added (`Scales::height`).
//
// Shape letters: M rows, K inputs, N outputs.

#pragma once

#if defined(__linux__) && defined(__AVX2__)
#if !defined(__AVX512F__)
#define MACARON_PAIRS
#if __has_include(<avxvnniintrin.h>)  // a compiler that supports AVX-VNNI
#define MACARON_DOTS
#endif
#elif __has_include(<amxint8intrin.h>)  // a compiler that supports AMX also supports VNNI
#define MACARON_WIDE
#define MACARON_DOTS
#endif
#elif defined(__linux__) && defined(__ARM_FEATURE_DOTPROD)
#define MACARON_NEON
#endif

#if defined(MACARON_PAIRS) || defined(MACARON_WIDE) || defined(MACARON_NEON)
#define MACARON_PRODUCTS

#ifndef MACARON_NEON
#include <cpuid.h>
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "arithmetic.h"
#include "lines.h"

namespace macaron {

constexpr int64_t kFour = 4;            // inputs whose products one instruction adds up
constexpr int64_t kPanel = 2 * kLanes;  // columns that are computed together
constexpr int64_t kDepth = kLine;       // inputs of a tile; weights are padded to a multiple of it

#ifdef MACARON_PAIRS
// Whether the processor has AVX-VNNI.
inline bool has_avx_vnni() {
  constexpr unsigned kVnni = 1u << 4;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & kVnni);
}
#endif

// The order of the weights of each four inputs in a panel. kFours: the four weights of each column
// side by side. kPairs, for pairs.h: the first two of each column, then the other two of each.
enum class PanelOrder { kFours, kPairs };

// Weights [K,N] in panels of kPanel columns, padded with zeros.
class PackedWeight {
 public:
  explicit PackedWeight(PanelOrder order) : order_(order) {}

  // Packs weights [K,N]. After each four inputs, `read` is called with the end of the numbers read
  // so far, and whether these are all.
  template <typename Read>
  void pack(const int8_t* weight, int64_t inputs, int64_t outputs, Read read) {
    begin(inputs, outputs);
    for (int64_t k = 0; k < depth(); k += kFour) {
      for (int64_t first = 0; first < panels() * kPanel; first += kColumns)
        pack_four(weight + k * outputs + first, outputs, k, first);
      read(weight + std::min(k + kFour, inputs) * outputs, k + kFour >= depth());
    }
  }

  // Packs weights [N,K], such as the rows of a table. `read` is called after each kColumns columns.
  template <typename Read>
  void pack_table(const int8_t* table, int64_t inputs, int64_t outputs, Read read) {
    begin(inputs, outputs);
    for (int64_t first = 0; first < panels() * kPanel; first += kColumns) {
      const int64_t columns = std::clamp<int64_t>(outputs - first, 0, kColumns);
      for (int64_t k = 0; k < depth(); k += kFour) {
        int8_t some[kFour * kColumns];
        const int64_t rows = std::clamp<int64_t>(inputs - k, 0, kFour);
        for (int64_t c = 0; c < columns; ++c)
          for (int64_t j = 0; j < rows; ++j)
            some[j * kColumns + c] = table[(first + c) * inputs + k + j];
        pack_four(some, kColumns, k, first);
      }
      read(table + (std::min(first, outputs) + columns) * inputs,
           first + kColumns >= panels() * kPanel);
    }
  }

  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }
  int64_t depth() const { return pieces(inputs_, kDepth) * kDepth; }
  int64_t panels() const { return pieces(outputs_, kPanel); }
  const int8_t* panel(int64_t index) const { return bytes_.get() + index * panel_size(); }

  // The sum of each column's weights.
  const int32_t* sums() const { return sums_.get(); }

 private:
  int64_t panel_size() const { return depth() * kPanel; }

  static constexpr int64_t kColumns = std::min(kLine / kFour, kPanel);  // in a cache line

  // Makes room for weights of this size.
  void begin(int64_t inputs, int64_t outputs) {
    inputs_ = inputs;
    outputs_ = outputs;
    bytes_.resize(panels() * panel_size());
    int32_t* sums = sums_.resize(panels() * kPanel);
    std::fill(sums, sums + panels() * kPanel, 0);
  }

  // Packs the weights of four inputs from `k` on and kColumns columns from `first` on, and adds
  // them to the columns' sums. `numbers` begins with them; inputs lie `step` numbers apart.
  void pack_four(const int8_t* numbers, int64_t step, int64_t k, int64_t first) {
    int8_t* to = bytes_.get() + first / kPanel * panel_size() + k * kPanel + first % kPanel * kFour;
    int32_t* sums = sums_.get() + first;
    const int64_t rows = std::clamp<int64_t>(inputs_ - k, 0, kFour);
    const int64_t columns = std::clamp<int64_t>(outputs_ - first, 0, kColumns);
#ifdef MACARON_NEON
    std::fill(to, to + kColumns * kFour, int8_t{0});
    for (int64_t j = 0; j < rows; ++j)
      for (int64_t c = 0; c < columns; ++c) {
        to[c * kFour + j] = numbers[j * step + c];
        sums[c] += to[c * kFour + j];
      }
#else
    __m128i four[kFour] = {};
    for (int64_t j = 0; j < rows; ++j) {
      const int8_t* from = numbers + j * step;
      std::memcpy(&four[j], from, columns);
      for (int64_t c = 0; c < columns; ++c) sums[c] += from[c];
    }
    const __m128i pairs[4] = {
        _mm_unpacklo_epi8(four[0], four[1]), _mm_unpacklo_epi8(four[2], four[3]),
        _mm_unpackhi_epi8(four[0], four[1]), _mm_unpackhi_epi8(four[2], four[3])};
    if (order_ == PanelOrder::kPairs) {
      for (int part : {0, 2, 1, 3}) {
        std::memcpy(to, &pairs[part], sizeof pairs[part]);
        to += sizeof pairs[part];
      }
      return;
    }
    for (int half = 0; half < 2; ++half) {
      const __m128i quarters[2] = {_mm_unpacklo_epi16(pairs[2 * half], pairs[2 * half + 1]),
                                   _mm_unpackhi_epi16(pairs[2 * half], pairs[2 * half + 1])};
      std::memcpy(to + half * sizeof quarters, quarters, sizeof quarters);
    }
#endif
  }

  PanelOrder order_;
  int64_t inputs_ = 0, outputs_ = 0;
  Aligned<int8_t> bytes_;
  Aligned<int32_t> sums_;
};

// What turns the integer sums of a product into floats.
struct Scales {
  const float* rows;  // one, or one for each row
  bool each_row;
  const float* columns;  // one, or one for each column
  bool each_column;
  const float* bias;  // [N], or null
  int zero_point;     // of the rows
  // Row `height` + i is added to row i.
  int64_t height = std::numeric_limits<int64_t>::max();

  float of_row(int64_t row) const { return rows[each_row ? row : 0]; }
};

// The columns of a panel in out [M,N], with what is the same for all their rows.
class PanelOutput {
 public:
  PanelOutput(const PackedWeight& weight, int64_t panel, const Scales& scales, float* out)
      : scales_(scales), height_(scales.height), outputs_(weight.outputs()),
        out_(out + panel * kPanel), width_(std::min(kPanel, outputs_ - panel * kPanel)) {
    const int64_t begin = panel * kPanel;
    for (int half = 0; half < 2; ++half) {
      const int64_t from = begin + half * kLanes;
      const int64_t count = std::clamp<int64_t>(outputs_ - from, 0, kLanes);
      corrections_[half] = load(weight.sums() + from) * -scales.zero_point;
      factors_[half] = scales.each_column ? load_some(scales.columns + from, count)
                                          : spread(*scales.columns);
      bias_[half] = scales.bias ? load_some(scales.bias + from, count) : Floats{};
    }
  }

  // Writes a row: (sums + corrections) * scales + bias. From row `Scales::height` on, there is no
  // bias, and the row is added to one that was written before. `first` and `second` are the sums of
  // the two halves of the panel's columns.
  inline __attribute__((always_inline)) void write(int64_t row, Ints first, Ints second) const {
    const float own = scales_.of_row(row);
    Floats x = scaled(first, own, 0), y = scaled(second, own, 1);
    float* to = out_ + row * outputs_;
    if (row < height_) {
      x += bias_[0];
      y += bias_[1];
    } else {
      to -= height_ * outputs_;
      x += load_some(to, width_);
      y += load_some(to + kLanes, width_ - kLanes);
    }
    if (width_ == kPanel) {
      store(to, x);
      store(to + kLanes, y);
      return;
    }
    alignas(kLine) float last[kPanel];
    store(last, x);
    store(last + kLanes, y);
    std::copy(last, last + width_, to);
  }

 private:
  // Loads `count` numbers; the remaining lanes are zero.
  static Floats load_some(const float* from, int64_t count) {
    if (count >= kLanes) return load(from);
    alignas(kLine) float some[kLanes] = {};
    std::copy(from, from + std::max<int64_t>(count, 0), some);
    return load(some);
  }

  inline __attribute__((always_inline)) Floats scaled(Ints sums, float own, int half) const {
    return __builtin_convertvector(sums + corrections_[half], Floats) * (factors_[half] * own);
  }

  Floats factors_[2], bias_[2];
  Ints corrections_[2];
  const Scales& scales_;
  int64_t height_, outputs_;
  float* out_;
  int64_t width_;
};

// Multiplies some rows by a panel. The rows lie `step` numbers apart, and the first one is row
// `row` of the output. `steps` is the number of groups of inputs that one instruction adds up.
template <typename Number>
using MultiplySome = void (*)(const Number* rows, int64_t step, const int8_t* panel, int64_t steps,
                              int64_t row, const PanelOutput& out);

// Computes the columns of the panels in [first_panel, last_panel) of out [M,N] for `count` rows,
// which lie `step` numbers apart. Function `multiply[i]` is for i + 1 rows. Panels are grouped so
// that the weights of a group (`near` bytes) stay in a cache while all rows use them. `steps` is as
// in `MultiplySome`.
template <typename Number, size_t together>
void multiply_panels(const MultiplySome<Number> (&multiply)[together], const Number* rows,
                     int64_t count, int64_t step, const PackedWeight& weight, int64_t steps,
                     int64_t near, const Scales& scales, int64_t first_panel, int64_t last_panel,
                     float* out) {
  constexpr int64_t kTogether = together;
  const int64_t group = std::max<int64_t>(1, near / (kPanel * weight.depth()));
  for (int64_t begin = first_panel; begin < last_panel; begin += group)
    for (int64_t row = 0; row < count; row += kTogether)
      for (int64_t panel = begin; panel < std::min(begin + group, last_panel); ++panel)
        multiply[std::min(kTogether, count - row) - 1](rows + row * step, step,
                                                       weight.panel(panel), steps, row,
                                                       PanelOutput(weight, panel, scales, out));
}

}  // namespace macaron

#endif
