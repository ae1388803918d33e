// The work between two runs of a step graph: slots and inputs for the next step, and the move to
// the beams that the candidates give. It is what serving/search/beams/rows.py and
// serving/search/prefix_tree.py do in NumPy, on the same arrays.
//
// Shape letters: B rows, K beams, C cache slots, W ancestors, N candidates.

#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>

namespace macaron {

// The arrays of a running batch, in the order of `_Arrays` in serving/runtime/native_steps.py.
struct Beams {
  int64_t rows, beams, slots, lookback, candidates, repack_every, reach, caches;
  // The arrays of the search.
  int64_t *tokens, *positions;  // [B,K]
  float* scores;                // [B,K]
  int64_t *queries, *steps_left;  // [B]
  const uint8_t* running;         // [B]
  float* visible;                 // [B,K,C]
  int64_t *slot_positions;        // [B,C]
  int64_t *used, *next, *peak;    // [B]
  const int64_t* joined;          // [B]
  int64_t* ancestors;             // [B,K,W]
  // The ids that end row b are ends[i] for first_end[b] <= i < first_end[b + 1].
  const int64_t *ends, *first_end;
  // The inputs of the graph; null if it does not have one.
  int64_t *token_in, *position_in, *write_index_in;
  float *visible_in, *score_in;
  int64_t *slot_position_in, *ancestor_in;
  // The outputs of the graph, [B,N].
  const float* found_scores;
  const int32_t *found_tokens, *found_parents;
  // The recorded beams of each step, [..,B,K].
  int32_t *kept_tokens, *kept_parents;
  float* kept_scores;
  // For each cache tensor: its address, its rows of each sentence, and the bytes of a slot.
  const int64_t *cache_data, *cache_rows, *slot_bytes;
  float* room;  // working memory for [K,C] floats, at least [K,2W]
  int64_t* places;  // [B,C], the new places of slots, as `plan` finds them
  int64_t* eventful;  // [B], the rows that `choose` lists
};

template <typename T>
void hand_over(const T* from, int64_t count, T* to) {
  if (to) std::copy(from, from + count, to);
}

// Gives each query its slot, and copies the inputs of the graph.
inline void put_inputs(const Beams& all) {
  const int64_t queries = all.rows * all.beams;
  for (int64_t b = 0; b < all.rows; ++b)
    for (int64_t k = 0; k < all.beams; ++k) {
      all.visible[(b * all.beams + k) * all.slots + all.used[b] + k] = 0.0f;
      all.slot_positions[b * all.slots + all.used[b] + k] = all.next[b];
    }
  hand_over(all.tokens, queries, all.token_in);
  hand_over(all.positions, queries, all.position_in);
  hand_over(all.used, all.rows, all.write_index_in);
  hand_over(all.visible, queries * all.slots, all.visible_in);
  hand_over(all.scores, queries, all.score_in);
  hand_over(all.slot_positions, all.rows * all.slots, all.slot_position_in);
  hand_over(all.ancestors, queries * all.lookback, all.ancestor_in);
}

// Whether the search must look at a row, because its best candidates may not simply be its next
// beams: it is at its last step, a candidate is not finite, or one of the first K candidates ends.
inline bool eventful(const Beams& all, int64_t row) {
  const int64_t begin = row * all.candidates;
  if (all.steps_left[row] <= 1) return true;
  for (int64_t n = 0; n < all.candidates; ++n)
    if (!std::isfinite(all.found_scores[begin + n])) return true;
  for (int64_t k = 0; k < all.beams; ++k) {
    const int64_t* last = all.ends + all.first_end[row + 1];
    if (std::find(all.ends + all.first_end[row], last, all.found_tokens[begin + k]) != last)
      return true;
  }
  return false;
}

// Moves the prefix tree to the next step: beam k of row b descends from query `parents[b, k]`.
inline void grow(const Beams& all, const int32_t* parents) {
  const int64_t beams = all.beams, slots = all.slots, lookback = all.lookback;
  for (int64_t b = 0; b < all.rows; ++b) {
    const int32_t* own = parents + b * beams;
    float* visible = all.visible + b * beams * slots;
    int64_t* ancestors = all.ancestors + b * beams * lookback;
    bool stay = true;
    for (int64_t k = 0; k < beams; ++k) stay &= own[k] == k;
    if (!stay) {
      std::copy(visible, visible + beams * slots, all.room);
      for (int64_t k = 0; k < beams; ++k)
        std::copy(all.room + own[k] * slots, all.room + (own[k] + 1) * slots, visible + k * slots);
    }
    if (lookback) {
      int64_t* before = reinterpret_cast<int64_t*>(all.room);  // it has room for [K,W]
      std::copy(ancestors, ancestors + beams * lookback, before);
      for (int64_t k = 0; k < beams; ++k) {
        int64_t* to = ancestors + k * lookback;
        to[0] = all.used[b] + own[k];
        std::copy(before + own[k] * lookback, before + (own[k] + 1) * lookback - 1, to + 1);
      }
      if (!all.queries[b]) std::fill(ancestors, ancestors + beams * lookback, int64_t{-1});
    }
    all.used[b] += all.queries[b];
    all.next[b] += all.queries[b] > 0;
  }
}

// Records the best candidates of each row as its beams, as step `place`. A parent that is no beam
// becomes the first one; a step with such a parent is never simple.
inline void record(const Beams& all, int64_t place) {
  const int64_t beams = all.beams;
  for (int64_t b = 0; b < all.rows; ++b) {
    const int64_t from = b * all.candidates, kept = (place * all.rows + b) * beams;
    for (int64_t k = 0; k < beams; ++k) {
      const int32_t parent = all.found_parents[from + k];
      all.kept_tokens[kept + k] = all.found_tokens[from + k];
      all.kept_parents[kept + k] = parent < 0 || parent >= beams ? 0 : parent;
      all.kept_scores[kept + k] = all.found_scores[from + k];
    }
  }
}

// Moves to the beams that are recorded as step `place`; dead ones have the score -inf.
inline void move(const Beams& all, int64_t place) {
  constexpr float kDead = -std::numeric_limits<float>::infinity();
  const int64_t beams = all.beams, first = place * all.rows * beams;
  grow(all, all.kept_parents + first);
  for (int64_t b = 0; b < all.rows; ++b) {
    all.queries[b] = 0;
    for (int64_t k = 0; k < beams; ++k) {
      const int64_t to = b * beams + k;
      const float score = all.kept_scores[first + to];
      if (all.running[b] && score > kDead) all.queries[b] = k + 1;
      all.tokens[to] = all.running[b] ? all.kept_tokens[first + to] : 0;
      all.scores[to] = all.running[b] ? score : kDead;
      all.positions[to] += all.running[b];
    }
  }
}

// Whether every candidate that may become a beam of a row continues one.
inline bool sound(const Beams& all, int64_t row) {
  for (int64_t n = 0; n < all.candidates; ++n) {
    const int32_t parent = all.found_parents[row * all.candidates + n];
    if (parent < 0 || parent >= all.beams) return false;
  }
  return true;
}

// Continues with the best candidates of each row as its next beams, and records these as step
// `place`. If a running row is eventful or a parent is not a beam, nothing changes and the result
// is false.
inline bool go_on(const Beams& all, int64_t place) {
  for (int64_t b = 0; b < all.rows; ++b)
    if (all.running[b] && (eventful(all, b) || !sound(all, b))) return false;
  record(all, place);
  for (int64_t b = 0; b < all.rows; ++b) --all.steps_left[b];
  move(all, place);
  return true;
}

// Begins a step that is not simple: records the best candidates as step `place`, and returns the
// number of eventful rows, which it lists. Whatever their beams become instead is recorded by the
// caller before `move`. The result is negative if a parent is not a beam.
inline int64_t choose(const Beams& all, int64_t place) {
  int64_t count = 0;
  for (int64_t b = 0; b < all.rows; ++b) {
    if (!all.running[b]) continue;
    if (!sound(all, b)) return -1;
    if (eventful(all, b)) all.eventful[count++] = b;
  }
  record(all, place);
  for (int64_t b = 0; b < all.rows; ++b) --all.steps_left[b];
  return count;
}

// Whether a slot of a row is needed: a beam descends from it and it is not out of reach.
inline bool needed(const Beams& all, int64_t row, int64_t slot) {
  if (all.reach >= 0 &&
      all.slot_positions[row * all.slots + slot] <= all.next[row] - all.reach)
    return false;
  for (int64_t k = 0; k < all.beams; ++k)
    if (all.visible[(row * all.beams + k) * all.slots + slot] == 0.0f) return true;
  return false;
}

// Moves the slots of a row to these places in all caches; place -1 drops a slot. A slot never moves
// to a higher place, so none is overwritten before it has moved.
inline void move_slots(const Beams& all, int64_t row, const int64_t* places, int64_t used) {
  for (int64_t c = 0; c < all.caches; ++c) {
    const int64_t size = all.slot_bytes[c];
    for (int64_t r = row * all.cache_rows[c]; r < (row + 1) * all.cache_rows[c]; ++r) {
      char* own = reinterpret_cast<char*>(all.cache_data[c]) + r * all.slots * size;
      for (int64_t slot = 0; slot < used; ++slot)
        if (places[slot] >= 0 && places[slot] != slot)
          std::copy(own + slot * size, own + (slot + 1) * size, own + places[slot] * size);
    }
  }
}

// Moves the slots that a row keeps to the front, in its arrays and in the caches.
inline void pack(const Beams& all, int64_t row, const int64_t* places, int64_t kept) {
  const int64_t used = all.used[row];
  int64_t* positions = all.slot_positions + row * all.slots;
  for (int64_t slot = 0; slot < used; ++slot)
    if (places[slot] >= 0) positions[places[slot]] = positions[slot];
  for (int64_t k = 0; k < all.beams; ++k) {
    float* visible = all.visible + (row * all.beams + k) * all.slots;
    for (int64_t slot = 0; slot < used; ++slot)
      if (places[slot] >= 0) visible[places[slot]] = visible[slot];
    std::fill(visible + kept, visible + all.slots, -std::numeric_limits<float>::infinity());
  }
  int64_t* ancestors = all.ancestors + row * all.beams * all.lookback;
  for (int64_t i = 0; i < all.beams * all.lookback; ++i)
    if (ancestors[i] >= 0) ancestors[i] = places[ancestors[i]];
  move_slots(all, row, places, used);
  all.peak[row] = std::max(all.peak[row], used);
  all.used[row] = kept;
}

// Finds new places for the slots of all rows after `steps` steps of the tree: -1 for the dead slots
// of rows that are due. `found` gets the number of slots that are needed until the next look, and
// the most steps that a row has done since it was due.
inline void plan(const Beams& all, int64_t steps, int64_t* found) {
  found[0] = 1;
  found[1] = 0;
  for (int64_t b = 0; b < all.rows; ++b) {
    const int64_t since = (steps - all.joined[b]) % all.repack_every;
    int64_t* places = all.places + b * all.slots;
    int64_t kept = 0;
    for (int64_t slot = 0; slot < all.used[b]; ++slot)
      places[slot] = since || needed(all, b, slot) ? kept++ : -1;
    found[0] = std::max(found[0], kept + (all.repack_every - since) * all.beams);
    found[1] = std::max(found[1], since);
  }
}

// Moves the slots of all rows to the places that `plan` has found.
inline void pack(const Beams& all) {
  for (int64_t b = 0; b < all.rows; ++b) {
    const int64_t* places = all.places + b * all.slots;
    pack(all, b, places, all.used[b] - std::count(places, places + all.used[b], int64_t{-1}));
  }
}

}  // namespace macaron

namespace macaron {

// A step graph that is a program (program.h), with its tensors. `run` returns whether it failed.
struct StepGraph {
  bool (*run)(void* program, const void* inputs, const void* outputs);
  void* program;
  const void *inputs, *outputs;
};

constexpr int64_t kFailedStep = std::numeric_limits<int64_t>::min();

// Takes up to `most` steps and records them from `place` on, as long as each goes on and no more
// than `nanoseconds` have passed. Returns their number n, or -1 - n if the graph has run once more
// and that step does not simply go on, or `kFailedStep`.
inline int64_t take_steps(const Beams& all, const StepGraph& graph, int64_t place, int64_t most,
                          int64_t nanoseconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(nanoseconds);
  for (int64_t taken = 0;;) {
    put_inputs(all);
    if (graph.run(graph.program, graph.inputs, graph.outputs)) return kFailedStep;
    if (!go_on(all, place + taken)) return -1 - taken;
    if (++taken == most || std::chrono::steady_clock::now() >= end) return taken;
  }
}

}  // namespace macaron

// The functions that serving/runtime/native_steps.py calls.
#define MACARON_SEEN extern "C" __attribute__((visibility("default")))

MACARON_SEEN void macaron_put_inputs(const macaron::Beams* all) { macaron::put_inputs(*all); }

MACARON_SEEN bool macaron_go_on(const macaron::Beams* all, int64_t place) {
  return macaron::go_on(*all, place);
}

MACARON_SEEN int64_t macaron_choose(const macaron::Beams* all, int64_t place) {
  return macaron::choose(*all, place);
}

MACARON_SEEN void macaron_move(const macaron::Beams* all, int64_t place) {
  macaron::move(*all, place);
}

MACARON_SEEN int64_t macaron_take_steps(const macaron::Beams* all, const macaron::StepGraph* graph,
                                        int64_t place, int64_t most, int64_t nanoseconds) {
  return macaron::take_steps(*all, *graph, place, most, nanoseconds);
}

MACARON_SEEN void macaron_grow(const macaron::Beams* all, const int32_t* parents) {
  macaron::grow(*all, parents);
}

MACARON_SEEN void macaron_plan(const macaron::Beams* all, int64_t steps, int64_t* found) {
  macaron::plan(*all, steps, found);
}

MACARON_SEEN void macaron_pack(const macaron::Beams* all) { macaron::pack(*all); }
