// The file from which a session's weights are mapped. The pages of packed weights are released at
// once; otherwise the whole file would be in memory beside the packed weights.

#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>

#include "runtime.h"

namespace macaron {

// The address of the file, and its size in bytes, while this thread makes a session; 0 if there is
// none.
struct MappedFile {
  uintptr_t begin = 0, size = 0;
};

inline thread_local MappedFile mapped_file;

// Reads the address and the size of the file from an entry of a session's options.
inline void note_mapped_file(const Runtime& runtime, const void* options) {
  char entry[64] = "";
  size_t room = sizeof entry;
  unsigned long long begin = 0, size = 0;
  const char* key = "macaron.mapped_file";
  int given = 0;
  runtime.ignore(runtime.call(Runtime::kHasSessionConfigEntry, options, key, &given));
  if (given &&
      !runtime.ignore(runtime.call(Runtime::kGetSessionConfigEntry, options, key,
                                   static_cast<char*>(entry), &room)))
    std::sscanf(entry, "%llu %llu", &begin, &size);
  mapped_file = {static_cast<uintptr_t>(begin), static_cast<uintptr_t>(size)};
}

// Numbers of the file that are read once, in order. Their pages are released a piece at a time; the
// system reads them from the file again if they are needed again. Numbers outside the file are left
// alone, because releasing them would lose them.
class ReadOnce {
 public:
  ReadOnce(const void* numbers, int64_t size) : begin_(reinterpret_cast<uintptr_t>(numbers)) {
    const MappedFile& file = mapped_file;
    mapped_ = file.begin <= begin_ && begin_ + size <= file.begin + file.size;
  }

  // Records that the numbers before `end` have been read; `last` is whether these are all.
  void until(const void* end, bool last) {
    constexpr uintptr_t kPiece = 1 << 20;
    static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t at = reinterpret_cast<uintptr_t>(end);
    if (!mapped_ || (!last && at - begin_ < kPiece)) return;
    const uintptr_t first = begin_ / page * page;  // still in the file, which begins with a page
    madvise(reinterpret_cast<void*>(first), at - first, MADV_DONTNEED);
    begin_ = at;
  }

 private:
  uintptr_t begin_;
  bool mapped_ = false;
};

// Numbers of the file of which few are read at a time, such as the rows of a table in which ids are
// looked up. The system also reads the pages around a row, so a large table would soon be in memory
// as a whole; this releases its pages.
class ReadSeldom {
 public:
  ReadSeldom(const void* numbers, int64_t size) : size_(size) {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(numbers);
    const MappedFile& file = mapped_file;
    constexpr int64_t kLarge = 16 << 20;
    if (size < kLarge || begin < file.begin || begin + size > file.begin + file.size) return;
    static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    first_ = begin / page * page;  // still in the file, which begins with a page
    size_ += begin - first_;
  }

  // Records that a row has been read. Other threads may read meanwhile: they find the same numbers.
  void another() {
    constexpr int64_t kMost = 8;  // each may have brought 64 or 128 KiB into memory
    if (!first_ || ++read_ < kMost) return;
    read_ = 0;
    madvise(reinterpret_cast<void*>(first_), size_, MADV_DONTNEED);
  }

 private:
  uintptr_t first_ = 0;
  int64_t size_;
  std::atomic<int64_t> read_{0};
};

}  // namespace macaron
