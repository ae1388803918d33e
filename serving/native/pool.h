// Threads that help the one that runs a program.
//
// There is one pool in a process, and one caller at a time is helped. Another that finds it busy
// does its work alone: results do not depend on who does what.

#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include <pthread.h>

namespace macaron {

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Pool {
 public:
  // The pool of this process. A fork has none of its parent's threads, so it gets a pool of its own.
  static Pool& of_process() {
    static std::mutex one_at_a_time;
    static std::atomic<Pool*> pool{nullptr};
    if (Pool* there = pool.load(std::memory_order_acquire)) return *there;
    const std::lock_guard<std::mutex> guard(one_at_a_time);
    if (!pool.load()) {
      static bool told = false;
      if (!told)
        pthread_atfork([] { one_at_a_time.lock(); }, [] { one_at_a_time.unlock(); },
                       [] {
                         pool.store(nullptr);
                         one_at_a_time.unlock();
                       });
      told = true;
      pool.store(new Pool, std::memory_order_release);  // for ever: its threads use it to the end
    }
    return *pool.load();
  }

  // Calls `work` with each number from 0 to `count` - 1, on at most `threads` threads, of which the
  // calling one is the first.
  void run(size_t threads, size_t count, void (*work)(void*, size_t), void* all) {
    if (busy_.test_and_set(std::memory_order_acquire)) {
      for (size_t i = 0; i < count; ++i) work(all, i);
      return;
    }
    const size_t wanted = std::min(threads - 1, kMostHelpers);
    grow(wanted);
    work_ = work;
    all_ = all;
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    const uint64_t turn = (state_.load(std::memory_order_relaxed) >> kTurnBit) + 1;
    // Before a helper's `asleep` is read: one that falls asleep afterwards looks at the state first.
    state_.store(turn << kTurnBit | wanted << kWantedBit | kOpen);
    for (size_t i = 0; i < std::min(wanted, made_); ++i) helpers_[i]->wake();
    take_all();
    // No thread enters any more; those that are in finish what they have taken.
    uint64_t inside = state_.fetch_and(~kOpen) & kInside;
    for (int spins = 0; inside; ++spins) {
      if (spins < kSpins)
        pause();
      else
        std::this_thread::yield();  // one of them waits for this processor, maybe
      inside = state_.load(std::memory_order_acquire) & kInside;
    }
    busy_.clear(std::memory_order_release);
  }

 private:
  // The state: whether work is open, how many helpers are at it, how many are wanted, and the number
  // of the turn.
  static constexpr uint64_t kOpen = 1, kEntered = 2, kInside = 0xfe;
  static constexpr int kWantedBit = 8, kTurnBit = 16, kSpins = 1 << 12;
  static constexpr size_t kMostHelpers = 64;
  // As in serving/runtime/ort.py: longer than the operators between two that are shared out take, and
  // than the search between two steps. A thread that spins costs its processor, and may slow down the
  // one that works.
  static constexpr std::chrono::microseconds kAwake{1000};

  // A place to sleep. It is pthread's own, because std::condition_variable would need a newer
  // library of C++ than wheels may.
  struct Helper {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t news = PTHREAD_COND_INITIALIZER;
    std::atomic<bool> asleep{false};

    void wake() {
      if (!asleep.load()) return;
      pthread_mutex_lock(&mutex);
      pthread_mutex_unlock(&mutex);
      pthread_cond_signal(&news);
    }
  };

  static bool is_open_for(size_t number, uint64_t state, uint64_t done) {
    return state & kOpen && state >> kTurnBit != done &&
           number < ((state >> kWantedBit) & 0xff);
  }

  // Starts threads until there are so many. If the system gives no more, those there are must do.
  void grow(size_t wanted) {
    try {
      for (; made_ < std::min(wanted, most_); ++made_) {
        helpers_[made_] = std::make_unique<Helper>();
        std::thread([this, number = made_] { help(number); }).detach();
      }
    } catch (const std::exception&) {
      most_ = made_;
    }
  }

  void take_all() {
    for (size_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) work_(all_, i);
  }

  void help(size_t number) {
    uint64_t done = 0;  // the last turn that this thread has seen
    for (;;) {
      uint64_t state = wait(number, done);
      done = state >> kTurnBit;
      while (state & kOpen && state >> kTurnBit == done)
        if (state_.compare_exchange_weak(state, state + kEntered, std::memory_order_acq_rel)) {
          take_all();
          state_.fetch_sub(kEntered, std::memory_order_acq_rel);
          break;
        }
    }
  }

  // Waits for a turn after `done` that wants this helper: awake for a while, then asleep.
  uint64_t wait(size_t number, uint64_t done) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point sleeps = Clock::now() + kAwake;
    do {
      for (int i = 0; i < 64; ++i) {
        const uint64_t state = state_.load(std::memory_order_acquire);
        if (is_open_for(number, state, done)) return state;
        pause();
      }
    } while (Clock::now() < sleeps);
    Helper& own = *helpers_[number];
    pthread_mutex_lock(&own.mutex);
    own.asleep.store(true);
    uint64_t state = state_.load();
    for (; !is_open_for(number, state, done); state = state_.load())
      pthread_cond_wait(&own.news, &own.mutex);
    own.asleep.store(false);
    pthread_mutex_unlock(&own.mutex);
    return state;
  }

  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;  // whether a caller has the turn
  std::array<std::unique_ptr<Helper>, kMostHelpers> helpers_;
  size_t made_ = 0, most_ = kMostHelpers;
  alignas(64) std::atomic<uint64_t> state_{0};
  // The work of this turn, which is written before it opens and read only by threads that entered.
  void (*work_)(void*, size_t) = nullptr;
  void* all_ = nullptr;
  size_t count_ = 0;
  alignas(64) std::atomic<size_t> next_{0};
};

// Calls `work` with each number from 0 to `count` - 1, on several threads if there may be several.
inline void share(size_t threads, size_t count, void (*work)(void*, size_t), void* all) {
  threads = std::min(threads, count);
  if (threads > 1) return Pool::of_process().run(threads, count, work, all);
  for (size_t i = 0; i < count; ++i) work(all, i);
}

}  // namespace macaron
