// Int8 products on AMX, the tile unit of Intel's servers since Sapphire Rapids.

#pragma once

#include "product.h"

#ifdef MACARON_WIDE

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace macaron {

constexpr int64_t kTileRows = 16, kTileSize = kTileRows * kLine;
constexpr int64_t kSums = kTileRows * kTileRows;  // accumulators of a tile
constexpr int64_t kSoonNeeded = 8192;             // bytes ahead at which weights are prefetched
constexpr int64_t kChunk = 4;                     // blocks of rows that fit the first-level cache

// Whether the processor has AMX, and the system lets this process use it (Linux,
// Documentation/arch/x86/xstate.rst).
inline bool tiles_work() {
  constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25;
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (kTile | kInt8)) != (kTile | kInt8))
    return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Rows [M,K] of 8 bits as tiles of 16 rows by 64 inputs, block of rows by block of rows. The last
// tiles are padded with zeros.
class TileRows {
 public:
  TileRows(const uint8_t* rows, int64_t count, int64_t inputs, Aligned<uint8_t>& room)
      : count_(count), steps_(pieces(inputs, kLine)) {
    uint8_t* to = room.resize(blocks() * steps_ * kTileSize);
    tiles_ = to;
    for (int64_t block = 0; block < blocks(); ++block)
      for (int64_t step = 0; step < steps_; ++step)
        for (int64_t r = 0; r < kTileRows; ++r, to += kLine) {
          const int64_t row = block * kTileRows + r, k = step * kLine;
          const int64_t width = row < count ? std::min(kLine, inputs - k) : 0;
          if (width < kLine) std::memset(to, 0, kLine);
          std::memcpy(to, rows + row * inputs + k, width);
        }
  }

  int64_t blocks() const { return pieces(count_, kTileRows); }

  // The number of rows of a block, without padding.
  int64_t height(int64_t block) const { return std::min(kTileRows, count_ - block * kTileRows); }

  const uint8_t* block(int64_t index) const { return tiles_ + index * steps_ * kTileSize; }

  // Computes the columns of the panels in [first_panel, last_panel) of out [M,N].
  void multiply(const PackedWeight& weight, const Scales& scales, int64_t first_panel,
                int64_t last_panel, float* out) const;

 private:
  const uint8_t* tiles_;
  int64_t count_, steps_;
};

#define MACARON_TILES __attribute__((target("amx-tile,amx-int8")))

// Configures all tiles as 16 rows of 64 bytes.
MACARON_TILES inline void begin_tiles() {
  struct alignas(kLine) {
    uint8_t palette = 1, first_row = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};
  } layout;
  for (int tile = 0; tile < 8; ++tile) {
    layout.bytes[tile] = kLine;
    layout.rows[tile] = kTileRows;
  }
  // Compilers may not know that the next instruction reads memory.
  __asm__ volatile("" : : "r"(&layout) : "memory");
  _tile_loadconfig(&layout);
}

MACARON_TILES inline void end_tiles() { _tile_release(); }

// Multiplies a block of rows, and a second one unless it is null, by a panel. Each block gives two
// tiles of sums, one for each half of the panel's columns. With `fetch`, weights that will soon be
// needed are fetched from memory.
MACARON_TILES inline void multiply_tiles(const uint8_t* first, const uint8_t* second,
                                         const int8_t* panel, int64_t steps, bool fetch,
                                         int32_t* sums) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t step = 0; step < steps; ++step) {
    const int8_t* columns = panel + step * 2 * kTileSize;  // its lines alternate between the halves
    _tile_loadd(4, first + step * kTileSize, kLine);
    _tile_loadd(6, columns, 2 * kLine);
    _tile_dpbusd(0, 4, 6);
    _tile_loadd(7, columns + kLine, 2 * kLine);
    _tile_dpbusd(1, 4, 7);
    if (fetch)
      for (int64_t line = 0; line < 2 * kTileSize; line += kLine)
        __builtin_prefetch(columns + kSoonNeeded + line);
    if (!second) continue;
    _tile_loadd(5, second + step * kTileSize, kLine);
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
  _tile_stored(0, sums, kLine);
  _tile_stored(1, sums + kSums, kLine);
  if (!second) return;
  _tile_stored(2, sums + 2 * kSums, kLine);
  _tile_stored(3, sums + 3 * kSums, kLine);
}

inline void TileRows::multiply(const PackedWeight& weight, const Scales& scales,
                               int64_t first_panel, int64_t last_panel, float* out) const {
  alignas(kLine) int32_t sums[4 * kSums];
  const bool fetch = blocks() == 1;  // with more, most weights are near when they are needed
  begin_tiles();
  for (int64_t chunk = 0; chunk < blocks(); chunk += kChunk) {
    const int64_t end = std::min(chunk + kChunk, blocks());
    for (int64_t panel = first_panel; panel < last_panel; ++panel) {
      const PanelOutput columns(weight, panel, scales, out);
      for (int64_t block = chunk; block < end; block += 2) {
        const int64_t together = std::min<int64_t>(2, end - block);
        multiply_tiles(this->block(block), together == 2 ? this->block(block + 1) : nullptr,
                       weight.panel(panel), weight.depth() / kDepth, fetch, sums);
        for (int64_t b = 0; b < together; ++b)
          for (int64_t r = 0; r < height(block + b); ++r) {
            const int32_t* row = sums + b * 2 * kSums + r * kLanes;
            columns.write((block + b) * kTileRows + r, load(row), load(row + kSums));
          }
      }
    }
  }
  end_tiles();
}

}  // namespace macaron

#endif
