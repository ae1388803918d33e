// The file that a session's weights are mapped from: what has been laid out anew is let go at once,
// or the whole file would be in memory beside what is made of it.

#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>

#include "runtime.h"

namespace macaron {

// Where the file lies while this thread makes a session; of no size where there is none.
struct MappedFile {
  uintptr_t begin = 0, size = 0;
};

inline thread_local MappedFile mapped_file;

// Reads its place from the entry of a session's options: address and bytes.
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

// Numbers of the file that are read one after the other: lets the system take their pages a piece at
// a time; whoever looks at them again has them read again. Numbers that lie elsewhere would be lost,
// and are left alone.
class ReadOnce {
 public:
  ReadOnce(const void* numbers, int64_t size) : begin_(reinterpret_cast<uintptr_t>(numbers)) {
    const MappedFile& file = mapped_file;
    mapped_ = file.begin <= begin_ && begin_ + size <= file.begin + file.size;
  }

  // All before `end` have been read, and with `last` all that there are.
  void until(const void* end, bool last) {
    constexpr uintptr_t kPiece = 1 << 20;
    static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t at = reinterpret_cast<uintptr_t>(end);
    if (!mapped_ || (!last && at - begin_ < kPiece)) return;
    const uintptr_t first = begin_ / page * page;  // the file begins with a page
    madvise(reinterpret_cast<void*>(first), at - first, MADV_DONTNEED);
    begin_ = at;
  }

 private:
  uintptr_t begin_;
  bool mapped_ = false;
};

// Numbers of the file of which a few are read now and then, as the rows of a table that ids are
// looked up in. The system brings what lies around them, too; without this, a large table would soon
// be in memory as a whole.
class ReadSeldom {
 public:
  ReadSeldom(const void* numbers, int64_t size) : size_(size) {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(numbers);
    const MappedFile& file = mapped_file;
    constexpr int64_t kLarge = 16 << 20;
    if (size < kLarge || begin < file.begin || begin + size > file.begin + file.size) return;
    static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    first_ = begin / page * page;  // the file begins with a page
    size_ += begin - first_;
  }

  // Another row has been read. Other threads may be reading: they find the same numbers.
  void another() {
    constexpr int64_t kMost = 8;  // each may have brought 64 KiB, or twice that
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
