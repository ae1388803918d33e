// Arithmetic on rows of floats, in vectors that the compiler maps to those of the processor.
//
// Every function reads its data in one fixed order, whatever their address, so a row's result does
// not depend on where the row lies or on the other rows.

#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

namespace macaron {

// Floats in a vector: no more than the processor's vectors have, because compilers keep wider ones
// in memory (x86-64 without AVX is the exception).
#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__aarch64__)
constexpr int kLanes = 4;
#else
constexpr int kLanes = 8;
#endif
constexpr float kInfinity = std::numeric_limits<float>::infinity();

typedef float Floats __attribute__((vector_size(kLanes * sizeof(float))));
typedef int32_t Ints __attribute__((vector_size(kLanes * sizeof(int32_t))));

inline Floats load(const float* from) {
  Floats to;
  std::memcpy(&to, from, sizeof to);
  return to;
}

inline Ints load(const int32_t* from) {
  Ints to;
  std::memcpy(&to, from, sizeof to);
  return to;
}

inline void store(float* to, Floats from) { std::memcpy(to, &from, sizeof from); }

inline Floats spread(float value) { return value - Floats{}; }

typedef float HalfFloats __attribute__((vector_size(kLanes / 2 * sizeof(float))));
typedef float Eight __attribute__((vector_size(8 * sizeof(float))));
typedef float Four __attribute__((vector_size(4 * sizeof(float))));

// Shuffles select parts of a vector: if its address were taken, it would stay in memory.
inline Four low_half(Eight x) { return __builtin_shufflevector(x, x, 0, 1, 2, 3); }
inline Four high_half(Eight x) { return __builtin_shufflevector(x, x, 4, 5, 6, 7); }

#ifdef __aarch64__
inline float sum(HalfFloats x) { return x[0] + x[1]; }
#endif

// One half is added to the other until one number is left: one shuffle and one addition each time.
inline float sum(Four x) { return (x[0] + x[2]) + (x[1] + x[3]); }
inline float sum(Eight x) { return sum(low_half(x) + high_half(x)); }

inline Floats higher(Floats a, Floats b) { return b > a ? b : a; }

inline float highest(Four x) {
  const float even = x[0] > x[2] ? x[0] : x[2];
  const float odd = x[1] > x[3] ? x[1] : x[3];
  return even > odd ? even : odd;
}

inline float highest(Eight x) {
  const Four low = low_half(x), high = high_half(x);
  return highest(high > low ? high : low);
}

#ifdef __AVX512F__
inline Eight low_half(Floats x) { return __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7); }
inline Eight high_half(Floats x) {
  return __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
}

inline float sum(Floats x) { return sum(low_half(x) + high_half(x)); }

inline float highest(Floats x) {
  const Eight low = low_half(x), high = high_half(x);
  return highest(high > low ? high : low);
}
#endif

constexpr int64_t kBlock = 64;  // numbers of which the maximum is kept (`Logits`)

// The largest of kBlock numbers. A NaN may hide others.
inline float highest_of(const float* x) {
  Floats most = load(x);
  for (int64_t i = kLanes; i < kBlock; i += kLanes) most = higher(most, load(x + i));
  return highest(most);
}

inline HalfFloats load_half(const float* from) {
  HalfFloats to;
  std::memcpy(&to, from, sizeof to);
  return to;
}

inline float dot(const float* a, const float* b, int64_t count) {
  Floats first{}, second{};
  int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    first += load(a + i) * load(b + i);
    second += load(a + i + kLanes) * load(b + i + kLanes);
  }
  for (; i + kLanes <= count; i += kLanes) first += load(a + i) * load(b + i);
  float total = sum(first + second);
  for (; i + kLanes / 2 <= count; i += kLanes / 2) total += sum(load_half(a + i) * load_half(b + i));
  for (; i < count; ++i) total += a[i] * b[i];
  return total;
}

// Half a vector, and zeros.
inline Floats widened(HalfFloats half) {
#if defined(__aarch64__)
  return __builtin_shufflevector(half, HalfFloats{}, 0, 1, 2, 3);
#elif defined(__AVX512F__)
  return __builtin_shufflevector(half, HalfFloats{}, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,
                                 14, 15);
#else
  return __builtin_shufflevector(half, HalfFloats{}, 0, 1, 2, 3, 4, 5, 6, 7);
#endif
}

// The products of `a` and `b`, summed in each lane. `count` is a multiple of kLanes / 2.
inline Floats dot_lanes(const float* a, const float* b, int64_t count) {
  Floats total{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) total += load(a + i) * load(b + i);
  if (i < count) total += widened(load_half(a + i) * load_half(b + i));
  return total;
}

// The sums of four vectors, in one vector. No sum depends on the other three vectors.
template <typename Vector>
inline auto four_sums(Vector a, Vector b, Vector c, Vector d) {
#if defined(__aarch64__)
  const auto halves = [](Vector x, Vector y) {
    return __builtin_shufflevector(x, y, 0, 1, 4, 5) + __builtin_shufflevector(x, y, 2, 3, 6, 7);
  };
  const Vector ab = halves(a, b), cd = halves(c, d);
  return __builtin_shufflevector(ab, cd, 0, 2, 4, 6) + __builtin_shufflevector(ab, cd, 1, 3, 5, 7);
#elif defined(__AVX512F__)
  const auto halves = [](Vector x, Vector y) {
    return __builtin_shufflevector(x, y, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
           __builtin_shufflevector(x, y, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30,
                                   31);
  };
  const Vector ab = halves(a, b), cd = halves(c, d);
  Vector all =
      __builtin_shufflevector(ab, cd, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
      __builtin_shufflevector(ab, cd, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  all += __builtin_shufflevector(all, all, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
  all += __builtin_shufflevector(all, all, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
  return __builtin_shufflevector(all, all, 0, 4, 8, 12);
#else
  const auto halves = [](Vector x, Vector y) {
    return __builtin_shufflevector(x, y, 0, 1, 2, 3, 8, 9, 10, 11) +
           __builtin_shufflevector(x, y, 4, 5, 6, 7, 12, 13, 14, 15);
  };
  const Vector ab = halves(a, b), cd = halves(c, d);
  Vector all = __builtin_shufflevector(ab, cd, 0, 1, 8, 9, 4, 5, 12, 13) +
               __builtin_shufflevector(ab, cd, 2, 3, 10, 11, 6, 7, 14, 15);
  all += __builtin_shufflevector(all, all, 1, 0, 3, 2, 5, 4, 7, 6);
  return __builtin_shufflevector(all, all, 0, 4, 2, 6);
#endif
}

// e^x for x <= 0. The error is about two units in the last place near 0; below -87 the result is
// e^-87; NaN stays NaN. It is 2^n times 2^f for -1/2 <= f <= 1/2, and 2^f is a polynomial (least
// squares at Chebyshev points).
inline Floats exponential(Floats x) {
  x = x < -87.0f ? spread(-87.0f) : x;
  const Floats shifted = x * 1.44269504f + 12582912.0f;  // its low bits are n
  const Floats f = x * 1.44269504f - (shifted - 12582912.0f);
  Floats p = spread(1.537070482e-04f);
  p = p * f + 1.339984829e-03f;
  p = p * f + 9.618373251e-03f;
  p = p * f + 5.550329035e-02f;
  p = p * f + 2.402264846e-01f;
  p = p * f + 6.931472056e-01f;
  p = p * f + 1.0f;
  return (Floats)((Ints)p + ((Ints)shifted << 23));
}

inline Floats magnitude(Floats x) { return x < 0.0f ? -x : x; }

// x times the logistic function of y.
inline Floats times_logistic(Floats x, Floats y) {
  const Floats e = exponential(-magnitude(y));
  return x * (y < 0.0f ? e : spread(1.0f)) / (1.0f + e);
}

// SiLU, x / (1 + e^-x).
inline Floats silu(Floats x) { return times_logistic(x, x); }

// The approximation of Gelu by tanh, x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
inline Floats gelu_by_tanh(Floats x) {
  return times_logistic(x, 1.595769122f * (x + 0.044715f * x * x * x));
}

// The soft cap cap * tanh(x / cap), whose magnitude never exceeds the cap.
inline Floats capped(Floats x, float cap) {
  const Floats e = exponential(magnitude(x) * (-2.0f / cap));
  const Floats below = cap * (1.0f - e) / (1.0f + e);
  return x < 0.0f ? -below : below;
}

// x (1 + erf(x / sqrt 2)) / 2. 1 - erf is formula 7.1.26 of Abramowitz and Stegun, whose error is
// at most 1.5e-7.
inline Floats gelu(Floats x) {
  const Floats a = magnitude(x) * 0.707106781f;
  const Floats t = 1.0f / (1.0f + 0.3275911f * a);
  Floats p = spread(1.061405429f);
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  const Floats above = 0.5f * p * t * exponential(-a * a);
  return x * (x < 0.0f ? above : 1.0f - above);
}

// The sum of e^(x - highest); the terms are stored in `to` unless it is null.
inline float sum_exponentials(const float* x, int64_t count, float highest, float* to = nullptr) {
  Floats total{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Floats e = exponential(load(x + i) - highest);
    if (to) store(to + i, e);
    total += e;
  }
  float rest[kLanes], lanes[kLanes];
  if (i < count) {
    for (int j = 0; j < kLanes; ++j) rest[j] = i + j < count ? x[i + j] - highest : -kInfinity;
    const Floats e = exponential(load(rest));
    store(lanes, e);
    for (int64_t j = i; j < count; ++j) {
      if (to) to[j] = lanes[j - i];
    }
    for (int64_t j = count - i; j < kLanes; ++j) lanes[j] = 0.0f;
    total += load(lanes);
  }
  return sum(total);
}

}  // namespace macaron
