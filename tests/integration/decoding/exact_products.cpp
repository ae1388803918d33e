// Int8 products of this project beside integers, without ONNX Runtime: every number must be the same.
// Ends with status 1 where one is not, and with 2 where these flags of the compiler give no product.

#include <cstdio>
#include <random>
#include <vector>

#include "neon.h"

#ifndef MACARON_NEON
int main() { return 2; }
#else

namespace {

using macaron::Scales;

// Rows [M,K] times weights [K,N], a part of the panels after the other.
bool exact(int64_t count, int64_t inputs, int64_t outputs, int zero_point, std::mt19937& random) {
  std::vector<uint8_t> rows(count * inputs);
  std::vector<int8_t> weights(inputs * outputs);
  for (auto& x : rows) x = random() % 4 ? random() : random() % 2 * 255;  // extremes, too
  for (auto& w : weights) w = random() % 4 ? random() : random() % 2 * 255 - 128;
  macaron::PackedWeight packed(macaron::PanelOrder::kFours);
  packed.pack(weights.data(), inputs, outputs, [](const int8_t*, bool) {});
  const float one = 1.0f;
  const Scales scales{&one, false, &one, false, nullptr, zero_point};
  macaron::Aligned<uint8_t> room;
  const macaron::NeonRows ready(rows.data(), count, inputs, room);
  std::vector<float> found(count * outputs, -1.0f);
  const int64_t middle = packed.panels() / 2;
  ready.multiply(packed, scales, 0, middle, found.data());
  ready.multiply(packed, scales, middle, packed.panels(), found.data());
  for (int64_t m = 0; m < count; ++m)
    for (int64_t n = 0; n < outputs; ++n) {
      int64_t sum = 0;
      for (int64_t k = 0; k < inputs; ++k)
        sum += (int64_t{rows[m * inputs + k]} - zero_point) * weights[k * outputs + n];
      if (found[m * outputs + n] != static_cast<float>(sum)) return false;
    }
  return true;
}

}  // namespace

int main() {
  std::mt19937 random(1);
  for (int64_t count : {1, 2, 3, 7, 8, 9, 70})
    for (int64_t inputs : {1, 2, 3, 4, 40, 63, 64, 130, 512})
      for (int64_t outputs : {1, 3, 8, 9, 33, 64, 100})
        for (int zero_point : {0, 128, 255})
          if (!exact(count, inputs, outputs, zero_point, random)) {
            std::printf("%d x %d x %d, zero point %d\n", int(count), int(inputs), int(outputs),
                        zero_point);
            return 1;
          }
  std::puts("exact");
}

#endif
