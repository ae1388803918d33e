// Int8 matrix products on AMX, the tile unit of Intel's processors since Sapphire Rapids.
//
// Integers are exact, and each output is scaled by itself: a row's result does not depend on the
// others. Shape letters: M rows, K inputs, N outputs.

#pragma once

#if defined(__x86_64__) && defined(__linux__) && __has_include(<amxint8intrin.h>)
#define MACARON_AMX

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "arithmetic.h"

namespace macaron {

constexpr int64_t kTileRows = 16, kTileBytes = 64, kTileSize = kTileRows * kTileBytes;
constexpr int64_t kSums = kTileRows * kTileRows;  // that a tile holds
constexpr int64_t kPanel = 2 * kTileRows;  // columns that are computed together
constexpr int64_t kChunk = 4;              // blocks of rows that stay in the nearest cache

inline int64_t pieces(int64_t size, int64_t piece) { return (size + piece - 1) / piece; }

// Whether the processor has it, and the system lets this process use it (Linux,
// Documentation/arch/x86/xstate.rst).
inline bool tiles_work() {
  constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25;
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (kTile | kInt8)) != (kTile | kInt8))
    return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Memory that begins with a line of the processor's cache.
template <typename T>
class Aligned {
 public:
  T* resize(int64_t size) {
    if (size > size_) {
      const size_t bytes = pieces(size * sizeof(T), kTileBytes) * kTileBytes;
      data_.reset(static_cast<T*>(std::aligned_alloc(kTileBytes, bytes)));
      if (!data_) throw std::bad_alloc();
      size_ = size;
    }
    return data_.get();
  }

  const T* get() const { return data_.get(); }

 private:
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  std::unique_ptr<T, Free> data_;
  int64_t size_ = 0;
};

// Weights [K,N] as tiles: of each panel of columns, for every 64 inputs, two tiles side by side;
// a tile has four inputs of 16 columns a row. What is missing to full tiles is zero.
class PackedWeight {
  typedef int8_t Bytes __attribute__((vector_size(kTileRows)));

 public:
  void pack(const int8_t* weight, int64_t inputs, int64_t outputs) {
    inputs_ = inputs;
    outputs_ = outputs;
    int8_t* tiles = tiles_.resize(panels() * steps() * 2 * kTileSize);
    int32_t* sums = sums_.resize(panels() * kPanel);
    std::fill(sums, sums + panels() * kPanel, 0);
    for (int64_t k = 0; k < steps() * kTileBytes; k += 4)
      for (int64_t begin = 0; begin < panels() * kPanel; begin += kTileRows)
        pack_four(weight, k, begin, tiles, sums + begin);
  }

  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }
  int64_t panels() const { return pieces(outputs_, kPanel); }
  int64_t steps() const { return pieces(inputs_, kTileBytes); }
  const int8_t* panel(int64_t index) const { return tiles_.get() + index * steps() * 2 * kTileSize; }

  // The sum of each column.
  const int32_t* sums() const { return sums_.get(); }

 private:
  // Four inputs of 16 columns: one row of a tile.
  void pack_four(const int8_t* weight, int64_t k, int64_t begin, int8_t* tiles, int32_t* sums) {
    const int64_t tile = (begin / kPanel * steps() + k / kTileBytes) * 2 + begin / kTileRows % 2;
    int8_t* to = tiles + tile * kTileSize + k % kTileBytes / 4 * kTileBytes;
    const int64_t rows = std::clamp<int64_t>(inputs_ - k, 0, 4);
    const int64_t columns = std::clamp<int64_t>(outputs_ - begin, 0, kTileRows);
    __m128i four[4] = {};
    Ints total = load(sums);
    for (int64_t j = 0; j < rows; ++j) {
      const int8_t* from = weight + (k + j) * outputs_ + begin;
      if (columns == kTileRows)
        std::memcpy(&four[j], from, kTileRows);
      else
        std::memcpy(&four[j], from, columns);
      Bytes row;
      std::memcpy(&row, &four[j], sizeof row);
      total += __builtin_convertvector(row, Ints);
    }
    std::memcpy(sums, &total, sizeof total);
    const __m128i pairs[4] = {
        _mm_unpacklo_epi8(four[0], four[1]), _mm_unpacklo_epi8(four[2], four[3]),
        _mm_unpackhi_epi8(four[0], four[1]), _mm_unpackhi_epi8(four[2], four[3])};
    for (int half = 0; half < 2; ++half) {
      const __m128i quarters[2] = {_mm_unpacklo_epi16(pairs[2 * half], pairs[2 * half + 1]),
                                   _mm_unpackhi_epi16(pairs[2 * half], pairs[2 * half + 1])};
      std::memcpy(to + half * sizeof quarters, quarters, sizeof quarters);
    }
  }

  int64_t inputs_ = 0, outputs_ = 0;
  Aligned<int8_t> tiles_;
  Aligned<int32_t> sums_;
};

// Rows [M,K] of 8 bits as tiles: of each block of 16 rows, for every 64 inputs, one tile. What is
// missing to full tiles is zero.
class PackedRows {
 public:
  PackedRows(const uint8_t* rows, int64_t count, int64_t inputs, Aligned<uint8_t>& room)
      : count_(count), steps_(pieces(inputs, kTileBytes)) {
    uint8_t* to = room.resize(blocks() * steps_ * kTileSize);
    tiles_ = to;
    for (int64_t block = 0; block < blocks(); ++block)
      for (int64_t step = 0; step < steps_; ++step)
        for (int64_t r = 0; r < kTileRows; ++r, to += kTileBytes) {
          const int64_t row = block * kTileRows + r, k = step * kTileBytes;
          const int64_t width = row < count ? std::min(kTileBytes, inputs - k) : 0;
          if (width < kTileBytes) std::memset(to, 0, kTileBytes);
          std::memcpy(to, rows + row * inputs + k, width);
        }
  }

  int64_t blocks() const { return pieces(count_, kTileRows); }

  // How many rows of a block there are.
  int64_t height(int64_t block) const { return std::min(kTileRows, count_ - block * kTileRows); }

  const uint8_t* block(int64_t index) const { return tiles_ + index * steps_ * kTileSize; }

 private:
  const uint8_t* tiles_;
  int64_t count_, steps_;
};

// What makes numbers of a product of integers.
struct Scales {
  const float* rows;  // one, or one a row
  bool each_row;
  const float* columns;  // one, or one a column
  bool each_column;
  const float* bias;  // [N], or null
  int zero_point;     // of the rows
};

// What is the same for all rows of a panel's columns; those beyond the last are zero.
struct PanelScales {
  PanelScales(const Scales& scales, const PackedWeight& weight, int64_t begin) {
    const int64_t width = std::min(kPanel, weight.outputs() - begin);
    for (int64_t c = 0; c < width; ++c) {
      factors[c] = scales.columns[scales.each_column ? begin + c : 0];
      bias[c] = scales.bias ? scales.bias[begin + c] : 0.0f;
      corrections[c] = -scales.zero_point * weight.sums()[begin + c];
    }
  }

  alignas(kTileBytes) float factors[kPanel] = {};
  alignas(kTileBytes) float bias[kPanel] = {};
  alignas(kTileBytes) int32_t corrections[kPanel] = {};
};

// (sums + corrections) * factors + bias, from two tiles of sums side by side to some rows of
// out [M,N] at `begin`.
inline void scale_tiles(const int32_t* sums, const PanelScales& panel, const Scales& scales,
                        int64_t row, int64_t height, int64_t width, int64_t outputs, float* out) {
  const Ints corrections[2] = {load(panel.corrections), load(panel.corrections + kLanes)};
  const Floats factors[2] = {load(panel.factors), load(panel.factors + kLanes)};
  const Floats bias[2] = {load(panel.bias), load(panel.bias + kLanes)};
  for (int64_t r = 0; r < height; ++r) {
    const float own = scales.rows[scales.each_row ? row + r : 0];
    alignas(kTileBytes) float last[kPanel];
    float* to = width == kPanel ? out + (row + r) * outputs : last;
    for (int half = 0; half < 2; ++half) {
      const Ints whole = load(sums + (half * kTileRows + r) * kLanes) + corrections[half];
      store(to + half * kLanes,
            __builtin_convertvector(whole, Floats) * (factors[half] * own) + bias[half]);
    }
    if (width < kPanel) std::copy(last, last + width, out + (row + r) * outputs);
  }
}

#define MACARON_TILES __attribute__((target("amx-tile,amx-int8")))

// Sets up all tiles with 16 rows of 64 bytes.
MACARON_TILES inline void begin_tiles() {
  struct alignas(kTileBytes) {
    uint8_t palette = 1, first_row = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};
  } layout;
  for (int tile = 0; tile < 8; ++tile) {
    layout.bytes[tile] = kTileBytes;
    layout.rows[tile] = kTileRows;
  }
  // Compilers may not know that the next instructions read memory.
  __asm__ volatile("" : : "r"(&layout) : "memory");
  _tile_loadconfig(&layout);
}

MACARON_TILES inline void end_tiles() { _tile_release(); }

// A block of rows, and a second one where there is one, times a panel: two tiles of sums each.
MACARON_TILES inline void multiply_tiles(const uint8_t* first, const uint8_t* second,
                                         const int8_t* panel, int64_t steps, int32_t* sums) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t step = 0; step < steps; ++step) {
    const int8_t* columns = panel + step * 2 * kTileSize;
    _tile_loadd(4, first + step * kTileSize, kTileBytes);
    _tile_loadd(6, columns, kTileBytes);
    _tile_dpbusd(0, 4, 6);
    _tile_loadd(7, columns + kTileSize, kTileBytes);
    _tile_dpbusd(1, 4, 7);
    if (!second) continue;
    _tile_loadd(5, second + step * kTileSize, kTileBytes);
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
  _tile_stored(0, sums, kTileBytes);
  _tile_stored(1, sums + kSums, kTileBytes);
  if (!second) return;
  _tile_stored(2, sums + 2 * kSums, kTileBytes);
  _tile_stored(3, sums + 3 * kSums, kTileBytes);
}

// The columns of some panels of out [M,N].
inline void multiply(const PackedRows& rows, const PackedWeight& weight, const Scales& scales,
                     int64_t first_panel, int64_t last_panel, float* out) {
  alignas(kTileBytes) int32_t sums[4 * kSums];
  begin_tiles();
  for (int64_t chunk = 0; chunk < rows.blocks(); chunk += kChunk) {
    const int64_t end = std::min(chunk + kChunk, rows.blocks());
    for (int64_t panel = first_panel; panel < last_panel; ++panel) {
      const int8_t* tiles = weight.panel(panel);
      const PanelScales own(scales, weight, panel * kPanel);
      const int64_t begin = panel * kPanel, width = std::min(kPanel, weight.outputs() - begin);
      for (int64_t block = chunk; block < end; block += 2) {
        const int64_t together = std::min<int64_t>(2, end - block);
        multiply_tiles(rows.block(block), together == 2 ? rows.block(block + 1) : nullptr, tiles,
                       weight.steps(), sums);
        for (int64_t b = 0; b < together; ++b)
          scale_tiles(sums + b * 2 * kSums, own, scales, (block + b) * kTileRows,
                      rows.height(block + b), width, weight.outputs(), out + begin);
      }
    }
  }
  end_tiles();
}

}  // namespace macaron

#endif
