// The fused operators, on plain arrays.
//
// Shape letters: B sentences, K beams and Q queries of a sentence, C cache slots, S source
// positions, D width of the model, H heads, E width of a head, V vocabulary, N = 2K candidates.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "arithmetic.h"
#include "lines.h"

namespace macaron {

// The layout of keys and values: the distances, in floats, between places and between heads.
struct Layout {
  int64_t place, head;
};

// `parts` vectors of the sums of `weigh`, and half a one.
template <int parts, bool half>
void weigh_parts(const float* weights, const float* rows, const std::vector<int64_t>& seen,
                 int64_t step, float factor, float* out) {
  Floats total[parts + 1] = {};
  HalfFloats rest{};
  for (size_t i = 0; i < seen.size(); ++i) {
    const float* row = rows + seen[i] * step;
    for (int part = 0; part < parts; ++part) total[part] += weights[i] * load(row + part * kLanes);
    if constexpr (half) rest += weights[i] * load_half(row + parts * kLanes);
  }
  for (int part = 0; part < parts; ++part) store(out + part * kLanes, total[part] * factor);
  rest *= factor;
  if constexpr (half) std::memcpy(out + parts * kLanes, &rest, sizeof rest);
}

// out[d] = factor * sum over i of weights[i] * rows[seen[i] * step + d]
inline void weigh(const float* weights, const float* rows, const std::vector<int64_t>& seen,
                  int64_t step, int64_t width, float factor, float* out) {
  constexpr int64_t kHalf = kLanes / 2, kMost = 4 * kLanes;
  int64_t d = 0;
  for (; d + kMost + kLanes <= width; d += kMost)
    weigh_parts<4, false>(weights, rows + d, seen, step, factor, out + d);
  // Each place is read once for all that is left.
  const auto rest = [&](auto weigh_rest) {
    weigh_rest(weights, rows + d, seen, step, factor, out + d);
  };
  const int64_t halves = (width - d) / kHalf;
  switch (halves) {
    case 1: rest(weigh_parts<0, true>); break;
    case 2: rest(weigh_parts<1, false>); break;
    case 3: rest(weigh_parts<1, true>); break;
    case 4: rest(weigh_parts<2, false>); break;
    case 5: rest(weigh_parts<2, true>); break;
    case 6: rest(weigh_parts<3, false>); break;
    case 7: rest(weigh_parts<3, true>); break;
    case 8: rest(weigh_parts<4, false>); break;
    case 9: rest(weigh_parts<4, true>); break;
  }
  for (d += halves * kHalf; d < width; ++d) {
    float total = 0.0f;
    for (size_t i = 0; i < seen.size(); ++i) total += weights[i] * rows[seen[i] * step + d];
    out[d] = total * factor;
  }
}

// What is added to the scores of a query: a number for each head and place, or nothing.
struct QueryBias {
  const float* numbers = nullptr;  // of the first head
  int64_t head = 0;                // the distance between heads
};

// What is added to the key and the value of each place, for all heads of a query: a row of two
// tables [R,E], or nothing.
struct QueryVectors {
  const int64_t* rows = nullptr;  // by place
  const float *keys = nullptr, *values = nullptr;
};

// The number of floats that the scores of these places take: full vectors.
inline int64_t score_room(int64_t places) { return (places + kLanes - 1) / kLanes * kLanes; }

// The attention of one query [H,E] to the places in `seen`, in their order. Each head of keys and
// values serves `shared` consecutive heads of the query. Scores are soft-capped unless `cap` is 0,
// and get the numbers of `bias`. `vectors` are added to keys and values. `scores` has room for the
// scores of all heads.
inline void attend(const float* query, const float* keys, const float* values, Layout layout,
                   const std::vector<int64_t>& seen, int64_t heads, int64_t shared, int64_t width,
                   float scale, float cap, QueryBias bias, QueryVectors vectors, float* scores,
                   float* out) {
  constexpr int64_t kFloats = kLine / sizeof(float);  // in a cache line
  const int64_t count = static_cast<int64_t>(seen.size()), room = score_room(count);
  if (!count) {
    std::fill(out, out + heads * width, 0.0f);
    return;
  }
  const auto key = [&](int64_t i, int64_t h) {
    const int64_t begin = seen[std::min(i, count - 1)] * layout.place + h / shared * layout.head;
    for (int64_t d = 0; d < width; d += kFloats) __builtin_prefetch(values + begin + d, 0, 2);
    return keys + begin;
  };
  // Computes one score, or four in one go if the width allows that; beyond the last place, the last
  // one is repeated.
  const int64_t together = width % (kLanes / 2) ? 1 : 4;
  const auto score = [&](int64_t i, int64_t h) {
    float* to = scores + h * room + i;
    const float* own = query + h * width;
    if (together == 1) {
      *to = scale * dot(own, key(i, h), width);
      return;
    }
    const Four four =
        scale * four_sums(dot_lanes(own, key(i, h), width), dot_lanes(own, key(i + 1, h), width),
                          dot_lanes(own, key(i + 2, h), width), dot_lanes(own, key(i + 3, h), width));
    std::memcpy(to, &four, sizeof four);
  };
  // The keys are read in the order in which they lie in memory. Meanwhile values are prefetched into
  // the second cache: the first one has no room for those of all heads.
  if (layout.head < layout.place)
    for (int64_t i = 0; i < count; i += together)
      for (int64_t h = 0; h < heads; ++h) score(i, h);
  else
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < count; i += together) score(i, h);
  std::vector<int64_t> rows(vectors.rows ? count : 0);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = vectors.rows[seen[i]];
  std::vector<float> beside(vectors.rows ? width : 0);
  for (int64_t h = 0; h < heads; ++h) {
    float* weights = scores + h * room;
    for (size_t i = 0; i < rows.size(); ++i)
      weights[i] += scale * dot(query + h * width, vectors.keys + rows[i] * width, width);
    if (cap > 0.0f)
      for (int64_t i = 0; i < room; i += kLanes) store(weights + i, capped(load(weights + i), cap));
    if (bias.numbers)
      for (int64_t i = 0; i < count; ++i) weights[i] += bias.numbers[h * bias.head + seen[i]];
    std::fill(weights + count, weights + room, -kInfinity);  // each adds only e^-87 to the sum
    Floats most = load(weights);
    for (int64_t i = kLanes; i < room; i += kLanes) most = higher(most, load(weights + i));
    const float share = 1.0f / sum_exponentials(weights, room, highest(most), weights);
    weigh(weights, values + h / shared * layout.head, seen, layout.place, width, share,
          out + h * width);
    if (rows.empty()) continue;
    weigh(weights, vectors.values, rows, width, width, share, beside.data());
    for (int64_t d = 0; d < width; ++d) out[h * width + d] += beside[d];
  }
}

// Finds the places where `visible` [C] is not -inf.
inline void find_seen(const float* visible, int64_t capacity, std::vector<int64_t>& seen) {
  seen.clear();
  for (int64_t c = 0; c < capacity; ++c)
    if (visible[c] > -kInfinity) seen.push_back(c);
}

// Rounds x / scale + `zero_point` to integers, ties to even, and saturates them to [0, 255].
inline void quantize(const float* x, int64_t count, float scale, int zero_point, uint8_t* out) {
  const float inverse = 1.0f / scale, lowest = static_cast<float>(-zero_point);
  for (int64_t i = 0; i < count; ++i) {
    float scaled = x[i] * inverse;
    scaled = scaled > lowest ? scaled : lowest;  // NaN becomes the lowest
    scaled = scaled > lowest + 255.0f ? lowest + 255.0f : scaled;
    // Adding 1.5 * 2^23 rounds to an integer; subtracting it again leaves that.
    out[i] = static_cast<uint8_t>(
        static_cast<int32_t>((scaled + 12582912.0f) - 12582912.0f) + zero_point);
  }
}

// The largest absolute value of x [D].
inline float peak(const float* x, int64_t dim) {
  Floats most{};
  int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) most = higher(most, magnitude(load(x + i)));
  float found = highest(most);
  for (; i < dim; ++i) found = std::max(found, std::abs(x[i]));
  return found;
}

// Gelu of x [D], not its approximation by tanh: x times the normal distribution function of x.
inline void gelu(const float* x, int64_t dim, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) store(out + i, gelu(load(x + i)));
  if (i == dim) return;
  float rest[kLanes] = {};
  std::copy(x + i, x + dim, rest);
  store(rest, gelu(load(rest)));
  std::copy(rest, rest + (dim - i), out + i);
}

// A gated linear unit of x [2D]: an activation of the first half times the second half.
template <Floats (*activation)(Floats)>
void glu(const float* x, int64_t dim, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes)
    store(out + i, activation(load(x + i)) * load(x + dim + i));
  if (i == dim) return;
  float gate[kLanes] = {}, rest[kLanes] = {};
  std::copy(x + i, x + dim, gate);
  std::copy(x + dim + i, x + 2 * dim, rest);
  store(rest, activation(load(gate)) * load(rest));
  std::copy(rest, rest + (dim - i), out + i);
}

// RMS normalisation of x [D].
inline void rms_norm(const float* x, const float* weight, int64_t dim, float epsilon, float* out) {
  Floats squares{};
  float rest = 0.0f;
  int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) squares += load(x + i) * load(x + i);
  for (; i < dim; ++i) rest += x[i] * x[i];
  const float mean = (sum(squares) + rest) / static_cast<float>(dim);
  const float inverse = 1.0f / std::sqrt(mean + epsilon);
  for (i = 0; i < dim; ++i) out[i] = x[i] * inverse * weight[i];
}

// Layer normalisation of x [D].
inline void layer_norm(const float* x, const float* weight, const float* bias, int64_t dim,
                       float epsilon, float* out) {
  Floats total{}, squares{};
  float rest = 0.0f;
  int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) total += load(x + i);
  for (; i < dim; ++i) rest += x[i];
  const float mean = (sum(total) + rest) / static_cast<float>(dim);
  rest = 0.0f;
  for (i = 0; i + kLanes <= dim; i += kLanes) {
    const Floats centred = load(x + i) - mean;
    squares += centred * centred;
  }
  for (; i < dim; ++i) rest += (x[i] - mean) * (x[i] - mean);
  const float variance = (sum(squares) + rest) / static_cast<float>(dim);
  const float inverse = 1.0f / std::sqrt(variance + epsilon);
  for (i = 0; i < dim; ++i) out[i] = (x[i] - mean) * inverse * weight[i] + bias[i];
}

// Sinusoids [D]: the sines of a position times each frequency [D/2], then the cosines.
inline void sinusoid(float position, const float* frequencies, int64_t half, float* out) {
  for (int64_t i = 0; i < half; ++i) {
    out[i] = std::sin(position * frequencies[i]);
    out[half + i] = std::cos(position * frequencies[i]);
  }
}

// Turns the pairs of features of x [P] by angles, given as cosines and sines [W]: those of the first
// heads of 2W features, which take `turned` features. Feature i of a head is turned with feature
// i + W. The others are copied.
inline void rotate(const float* x, const float* cosines, const float* sines, int64_t half,
                   int64_t turned, int64_t dim, float* out) {
  for (int64_t head = 0; head < turned; head += 2 * half)
    for (int64_t i = head, j = 0; j < half; ++i, ++j) {
      const float first = x[i], second = x[i + half];
      out[i] = first * cosines[j] - second * sines[j];
      out[i + half] = second * cosines[j] + first * sines[j];
    }
  std::copy(x + turned, x + dim, out + turned);
}

// Finds the largest number of each block; returns the largest of all.
inline float block_maxima(const float* x, int64_t count, std::vector<float>& maxima) {
  float highest = -kInfinity;
  for (size_t b = 0; b < maxima.size(); ++b) {
    const int64_t begin = static_cast<int64_t>(b) * kBlock;
    float best = -kInfinity;
    if (begin + kBlock <= count)
      best = highest_of(x + begin);
    else
      for (int64_t i = begin; i < count; ++i) best = x[i] > best ? x[i] : best;
    maxima[b] = best;
    highest = best > highest ? best : highest;
  }
  return highest;
}

// The `wanted`-th largest of some numbers, -inf if there are fewer; `heap` is working memory.
inline float nth_highest(const std::vector<float>& x, size_t wanted, std::vector<float>& heap) {
  if (x.size() < wanted) return -kInfinity;
  const std::greater<float> greater;
  heap.assign(x.begin(), x.begin() + wanted);
  std::make_heap(heap.begin(), heap.end(), greater);
  for (size_t i = wanted; i < x.size(); ++i)
    if (x[i] > heap.front()) {
      std::pop_heap(heap.begin(), heap.end(), greater);
      heap.back() = x[i];
      std::push_heap(heap.begin(), heap.end(), greater);
    }
  return heap.front();
}

struct Found {
  float score;
  int32_t parent, token;
};

// Whether the first one is better: by score, then by lower beam, then by lower token.
inline bool better(const Found& a, const Found& b) {
  return a.score != b.score ? a.score > b.score
                            : std::pair(a.parent, a.token) < std::pair(b.parent, b.token);
}

// The logits of one query. The largest of each block is kept, so that the best tokens can be found
// without reading all logits again.
class Logits {
 public:
  explicit Logits(int64_t size) : size_(size), maxima_((size + kBlock - 1) / kBlock) {}

  void read(const float* row) {
    row_ = row;
    highest_ = block_maxima(row, size_, maxima_);
    log_sum_ = std::log(sum_exponentials(row, size_, highest_));
  }

  // Whether there are no log-probabilities: a logit is NaN or +inf, or all are -inf.
  bool broken() const { return std::isnan(log_sum_); }

  float log_probability(int64_t token) const { return row_[token] - highest_ - log_sum_; }

  // A logit that at least `wanted` tokens have or exceed: the `wanted`-th largest of the blocks'
  // maxima.
  float reached_by(size_t wanted) { return nth_highest(maxima_, wanted, heap_); }

  // The logit of a log-probability, less a margin so that rounding loses no token.
  float logit(float log_probability) const {
    const float logit = log_probability + log_sum_ + highest_;
    return logit - 1e-5f * (std::abs(logit) + std::abs(log_probability) + 1.0f);
  }

  // Appends all tokens whose logits are at least `least`, with log-probability + `score`.
  void collect(float least, float score, int32_t parent, std::vector<Found>& found) const {
    for (size_t b = 0; b < maxima_.size(); ++b) {
      if (maxima_[b] < least) continue;
      const int64_t end = std::min<int64_t>((b + 1) * kBlock, size_);
      for (int64_t i = b * kBlock; i < end; ++i)
        if (row_[i] >= least)
          found.push_back({log_probability(i) + score, parent, static_cast<int32_t>(i)});
    }
  }

 private:
  int64_t size_;
  std::vector<float> maxima_, heap_;
  const float* row_ = nullptr;
  float highest_ = 0.0f, log_sum_ = 0.0f;
};

// Keeps the best `wanted`, unordered; returns the worst score among them, -inf if there are fewer.
inline float keep_best(std::vector<Found>& found, size_t wanted) {
  if (found.size() < wanted) return -kInfinity;
  std::nth_element(found.begin(), found.begin() + (wanted - 1), found.end(), better);
  found.resize(wanted);
  return found.back().score;
}

// The N = 2K best continuations of one sentence's beams. A continuation scores the log-probability
// of its token plus the score of its beam.
class Candidates {
 public:
  explicit Candidates(int64_t beams) : wanted_(2 * beams) {}

  // Adds the best continuations of beam `query`; `row` has its logits.
  void add(int64_t query, Logits& row, float score) {
    if (row.broken() || !(score < kInfinity)) {
      broken_ = true;
      return;
    }
    if (score == -kInfinity) return;
    float least = row.logit(least_score_ - score);
    if (!(score <= best_beam_)) least = std::max(least, row.reached_by(wanted_));
    best_beam_ = std::max(best_beam_, score);
    row.collect(least, score, static_cast<int32_t>(query), found_);
    least_score_ = keep_best(found_, wanted_);
  }

  // The continuations, best first, filled up with -inf. If a beam has no log-probabilities, the
  // first score is NaN.
  const std::vector<Found>& best() {
    std::sort(found_.begin(), found_.end(), better);
    found_.resize(wanted_, {-kInfinity, 0, 0});
    if (broken_) found_[0].score = std::numeric_limits<float>::quiet_NaN();
    return found_;
  }

 private:
  size_t wanted_;
  std::vector<Found> found_;
  float best_beam_ = -kInfinity;
  float least_score_ = -kInfinity;  // `wanted_` found ones score at least this
  bool broken_ = false;
};

// Finds the `wanted` likeliest tokens of `logits` [V], likeliest first, and the log-probability of
// a label. All scores are NaN if there are no log-probabilities.
inline void top_tokens(const float* logits, Logits& row, int64_t wanted, int64_t label,
                       std::vector<Found>& found, float* scores, int32_t* tokens, float* label_score) {
  row.read(logits);
  *label_score = row.log_probability(label);
  found.clear();
  if (!row.broken()) row.collect(row.reached_by(wanted), 0.0f, 0, found);
  keep_best(found, wanted);
  std::sort(found.begin(), found.end(), better);
  found.resize(wanted, {std::numeric_limits<float>::quiet_NaN(), 0, 0});
  for (int64_t n = 0; n < wanted; ++n) {
    scores[n] = found[n].score;
    tokens[n] = found[n].token;
  }
}

}  // namespace macaron
