// Growing columns and hash maps without an allocation per element.
#pragma once

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

namespace profiler::trace {

// Times of foreign traces may be absurd: they wrap around, as in trace_processor, defined here.
inline int64_t wrap_add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
inline int64_t wrap_sub(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
inline int64_t wrap_mul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// Different in every process, so that no trace can be made of keys that collide. Fuzzing needs runs
// that can be repeated.
inline uint64_t hash_seed() {
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
  return 0x5EED5EED5EED5EEDu;
#else
  static const uint64_t seed = [] {
    std::random_device device;
    return static_cast<uint64_t>(device()) << 32 | device();
  }();
  return seed;
#endif
}

inline uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 32)) * 0x9E3779B97F4A7C15u;
  return value ^ (value >> 29);
}
inline uint64_t combine(uint64_t hash, uint64_t value) { return mix(hash * 31 + mix(value)); }

constexpr uintptr_t kHugePage = uintptr_t{1} << 21;

// Columns of large traces are touched once from end to end: fewer, larger page faults.
inline void advise_huge_pages(void* block, size_t size) {
#ifdef __linux__
  const uintptr_t from = (reinterpret_cast<uintptr_t>(block) + kHugePage - 1) & ~(kHugePage - 1);
  const uintptr_t to = (reinterpret_cast<uintptr_t>(block) + size) & ~(kHugePage - 1);
  if (size >= 2 * kHugePage && to > from) {
    madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
  }
#else
  (void)block;
  (void)size;
#endif
}

// `realloc`, with new large blocks where huge pages begin.
inline void* resized(void* block, size_t size) {
#ifdef __linux__
  if (block == nullptr && size >= 2 * kHugePage) {
    return posix_memalign(&block, kHugePage, size) == 0 ? block : nullptr;
  }
#endif
  return std::realloc(block, size);
}

// A vector of plain values that grows by realloc: large blocks are remapped, not copied, and
// `release` hands the block over to NumPy.
template <typename T>
class Column {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Column() = default;
  Column(const Column&) = delete;
  Column& operator=(const Column&) = delete;
  Column& operator=(Column&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  Column(Column&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  ~Column() { std::free(data_); }

  void push(T value) {
    if (size_ == capacity_) reserve(capacity_ < 64 ? 64 : capacity_ * 2);
    data_[size_++] = value;
  }
  void reserve(size_t capacity) {
    if (capacity <= capacity_) return;
    resize_block(capacity);
  }
  void set_size(size_t size) { size_ = size; }
  void clear() { size_ = 0; }

  T& operator[](size_t index) { return data_[index]; }
  const T& operator[](size_t index) const { return data_[index]; }
  T* data() { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }

  // Puts a value at `index`, with `gap` in all places before it that nobody has filled.
  void put(size_t index, T value, T gap) {
    if (index == size_ && size_ < capacity_) {
      data_[size_++] = value;
      return;
    }
    if (index >= size_) fill(index + 1, gap);
    data_[index] = value;
  }
  void fill(size_t size, T gap) {
    if (size > capacity_) reserve(size > 2 * capacity_ ? size : 2 * capacity_);
    while (size_ < size) data_[size_++] = gap;
  }

  // Gives the block away; its owner calls std::free.
  T* release() {
    if (size_ < capacity_) resize_block(size_ ? size_ : 1);
    size_ = capacity_ = 0;
    return std::exchange(data_, nullptr);
  }

 private:
  void resize_block(size_t capacity) {
    if (capacity > SIZE_MAX / sizeof(T)) throw std::bad_alloc();
    void* block = resized(data_, capacity * sizeof(T));
    if (block == nullptr) throw std::bad_alloc();
    data_ = static_cast<T*>(block);
    capacity_ = capacity;
    advise_huge_pages(data_, capacity * sizeof(T));
  }

  T* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

// uint64 → Value by open addressing. The key 0 marks a free slot and is itself kept aside.
template <typename Value>
class IntMap {
 public:
  Value* find(uint64_t key) {
    if (key == 0) return has_zero_ ? &zero_ : nullptr;
    if (slots_.empty()) return nullptr;
    for (size_t at = place(key);; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].key == key) return &slots_[at].value;
      if (slots_[at].key == 0) return nullptr;
    }
  }
  const Value* find(uint64_t key) const { return const_cast<IntMap*>(this)->find(key); }

  // The value of `key`, made from `value` where it was absent; the flag says whether it was.
  std::pair<Value*, bool> insert(uint64_t key, Value value) {
    if (key == 0) {
      const bool fresh = !std::exchange(has_zero_, true);
      if (fresh) zero_ = std::move(value);
      return {&zero_, fresh};
    }
    if ((count_ + 1) * 4 > slots_.size() * 3) grow();
    size_t at = place(key);
    for (; slots_[at].key != 0; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].key == key) return {&slots_[at].value, false};
    }
    slots_[at] = {key, std::move(value)};
    ++count_;
    return {&slots_[at].value, true};
  }

  void erase(uint64_t key) {
    if (key == 0) {
      has_zero_ = false;
      return;
    }
    Value* found = find(key);
    if (found == nullptr) return;
    const size_t mask = slots_.size() - 1;
    size_t hole = static_cast<size_t>(
        reinterpret_cast<Slot*>(reinterpret_cast<char*>(found) - offsetof(Slot, value)) -
        slots_.data());
    for (size_t at = (hole + 1) & mask; slots_[at].key != 0; at = (at + 1) & mask) {
      // Move back whatever would no longer be found behind the hole.
      if (((at - place(slots_[at].key)) & mask) >= ((at - hole) & mask)) {
        slots_[hole] = std::move(slots_[at]);
        hole = at;
      }
    }
    slots_[hole].key = 0;
    --count_;
  }

  void clear() {
    slots_.clear();
    count_ = 0;
    has_zero_ = false;
  }

 private:
  struct Slot {
    uint64_t key = 0;
    Value value{};
  };

  size_t place(uint64_t key) const { return mix(key ^ hash_seed()) & (slots_.size() - 1); }

  void grow() {
    std::vector<Slot> old(slots_.empty() ? 8 : slots_.size() * 2);
    old.swap(slots_);
    for (Slot& slot : old) {
      if (slot.key == 0) continue;
      size_t at = place(slot.key);
      while (slots_[at].key != 0) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = std::move(slot);
    }
  }

  std::vector<Slot> slots_;
  size_t count_ = 0;
  bool has_zero_ = false;
  Value zero_{};
};

}  // namespace profiler::trace
