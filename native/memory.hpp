// Large zeroed buffers on huge pages where the system has them: gathers over a few megabytes of weights miss the
// page table as often as the cache otherwise.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>
#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__GLIBC__) || defined(_WIN32)
#include <malloc.h>
#endif

namespace crfield {

// Windows has no aligned_alloc, and what replaces it is freed otherwise (not run so far).
inline void* allocate_aligned(size_t align, size_t bytes) {
#if defined(_WIN32)
  return _aligned_malloc(bytes, align);
#else
  return std::aligned_alloc(align, bytes);
#endif
}
inline void free_aligned(void* at) {
#if defined(_WIN32)
  _aligned_free(at);
#else
  std::free(at);
#endif
}

// Give freed memory back to the system: after packing, tens of megabytes of it would stay with the process.
inline void return_freed_memory() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t n) { resize(n); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    release();
    at_ = other.at_, size_ = other.size_, room_ = other.room_, borrowed_ = other.borrowed_;
    other.at_ = nullptr;
    other.size_ = other.room_ = 0;
    other.borrowed_ = false;
    return *this;
  }
  ~Buffer() { release(); }

  // The buffer reads memory of somebody else, who keeps it for longer; it is not to be written to.
  void borrow(const T* from, int64_t n) {
    release();
    at_ = const_cast<T*>(from);
    size_ = n;
    room_ = 0;
    borrowed_ = true;
  }

  // Contents are lost when the buffer grows.
  void resize(int64_t n) {
    if (n > room_ || borrowed_) {
      release();
      room_ = size_ = 0;
      const size_t huge = size_t(1) << 21;
      size_t bytes = (size_t)(n > 0 ? n : 1) * sizeof(T);
      const size_t align = bytes >= huge ? huge : 64;
      bytes = (bytes + align - 1) / align * align;
      at_ = static_cast<T*>(allocate_aligned(align, bytes));
      if (!at_) throw std::bad_alloc();
#if defined(__linux__)
      if (align == huge) madvise(at_, bytes, MADV_HUGEPAGE);
#endif
      room_ = n;
    }
    size_ = n;
  }
  void zero() {
    if (size_) std::memset((void*)at_, 0, sizeof(T) * size_);
  }
  T* data() { return at_; }
  const T* data() const { return at_; }
  int64_t size() const { return size_; }
  T& operator[](int64_t k) { return at_[k]; }
  const T& operator[](int64_t k) const { return at_[k]; }

 private:
  void release() {
    if (!borrowed_) free_aligned(at_);
    at_ = nullptr;
    borrowed_ = false;
  }
  T* at_ = nullptr;
  int64_t size_ = 0, room_ = 0;
  bool borrowed_ = false;
};

}  // namespace crfield
