// Threads that help the one that runs a program.
//
// There is one pool in a process, and one caller at a time is helped. Another that finds it busy
// does its work alone: results do not depend on who does what.

#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <system_error>
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
      static std::once_flag once;
      // Never freed: its threads use it until the process ends.
      std::call_once(once, [] {
        pthread_atfork([] { one_at_a_time.lock(); }, [] { one_at_a_time.unlock(); },
                       [] {
                         pool.store(nullptr);
                         one_at_a_time.unlock();
                       });
      });
      pool.store(new Pool, std::memory_order_release);
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
    grow(threads - 1);
    work_ = work;
    all_ = all;
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    most_ = threads - 1;
    const uint64_t turn = (state_.load(std::memory_order_relaxed) >> kTurnBit) + 1;
    state_.store(turn << kTurnBit | kOpen);  // before `asleep_` is read: one falls asleep after that
    if (asleep_.load()) {
      { const std::lock_guard<std::mutex> guard(sleep_); }
      wake_.notify_all();
    }
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
  // The state: whether work is open, how many threads are at it, and the number of the turn.
  static constexpr uint64_t kOpen = 1, kEntered = 2, kInside = 0xfffe;
  static constexpr int kTurnBit = 16, kSpins = 1 << 12;
  static constexpr size_t kMostThreads = 256;
  // As in serving/runtime/ort.py: longer than the operators between two that are shared out take, and
  // than the search between two steps. A thread that spins costs its processor, and may slow down the
  // one that works.
  static constexpr std::chrono::microseconds kAwake{1000};

  // Starts threads until there are so many.
  void grow(size_t wanted) {
    try {
      for (; made_ < std::min(wanted, kMostThreads); ++made_)
        std::thread([this] { help(); }).detach();
    } catch (const std::system_error&) {  // the system gives no more: those there are must do
    }
  }

  void take_all() {
    for (size_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) work_(all_, i);
  }

  void help() {
    uint64_t done = 0;  // the last turn that this thread has seen
    for (;;) {
      uint64_t state = wait(done);
      done = state >> kTurnBit;
      while (state & kOpen && state >> kTurnBit == done) {
        if ((state & kInside) / kEntered >= most_) break;
        if (state_.compare_exchange_weak(state, state + kEntered, std::memory_order_acq_rel)) {
          take_all();
          state_.fetch_sub(kEntered, std::memory_order_acq_rel);
          break;
        }
      }
    }
  }

  // Waits for a turn after `done`: awake for a while, then asleep.
  uint64_t wait(uint64_t done) {
    const auto news = [&](uint64_t state) { return state & kOpen && state >> kTurnBit != done; };
    using Clock = std::chrono::steady_clock;
    const Clock::time_point sleeps = Clock::now() + kAwake;
    do {
      for (int i = 0; i < 64; ++i) {
        const uint64_t state = state_.load(std::memory_order_acquire);
        if (news(state)) return state;
        pause();
      }
    } while (Clock::now() < sleeps);
    std::unique_lock<std::mutex> guard(sleep_);
    asleep_.fetch_add(1);
    uint64_t state = state_.load();
    for (; !news(state); state = state_.load()) wake_.wait(guard);
    asleep_.fetch_sub(1);
    return state;
  }

  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;  // whether a caller has the turn
  std::mutex sleep_;
  std::condition_variable wake_;
  size_t made_ = 0;
  alignas(64) std::atomic<uint64_t> state_{0};
  std::atomic<int> asleep_{0};
  // The work of this turn, which is written before it opens and read only by threads that entered.
  void (*work_)(void*, size_t) = nullptr;
  void* all_ = nullptr;
  size_t count_ = 0;
  std::atomic<size_t> most_{0};
  alignas(64) std::atomic<size_t> next_{0};
};

// Calls `work` with each number from 0 to `count` - 1, on several threads if there may be several.
inline void share(size_t threads, size_t count, void (*work)(void*, size_t), void* all) {
  if (threads > 1 && count > 1) return Pool::of_process().run(threads, count, work, all);
  for (size_t i = 0; i < count; ++i) work(all, i);
}

}  // namespace macaron
