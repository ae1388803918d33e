// Memory that begins at a cache line.

#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

namespace macaron {

constexpr int64_t kLine = 64;  // bytes of a cache line

inline int64_t pieces(int64_t size, int64_t piece) { return (size + piece - 1) / piece; }

// Memory that begins at a cache line. Otherwise each vector of 64 bytes that is read or written lies
// in two lines.
inline void* allocate_lines(int64_t bytes) {
  void* memory = std::aligned_alloc(kLine, pieces(bytes, kLine) * kLine);
  if (!memory) throw std::bad_alloc();
  return memory;
}

// Such memory for T. Its content is lost when it grows.
template <typename T>
class Aligned {
 public:
  T* resize(int64_t size) {
    if (size > size_) {
      data_.reset(static_cast<T*>(allocate_lines(size * sizeof(T))));
      size_ = size;
    }
    return data_.get();
  }

  T* get() { return data_.get(); }
  const T* get() const { return data_.get(); }

 private:
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  std::unique_ptr<T, Free> data_;
  int64_t size_ = 0;
};

// Gives standard vectors such memory.
template <typename T>
struct LineAllocator {
  using value_type = T;

  LineAllocator() = default;
  template <typename Other>
  LineAllocator(const LineAllocator<Other>&) {}

  T* allocate(size_t count) { return static_cast<T*>(allocate_lines(count * sizeof(T))); }
  void deallocate(T* data, size_t) { std::free(data); }

  bool operator==(const LineAllocator&) const { return true; }
  bool operator!=(const LineAllocator&) const { return false; }
};

using RowBuffer = std::vector<float, LineAllocator<float>>;

}  // namespace macaron
