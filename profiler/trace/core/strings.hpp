// Every text of a trace once, by number.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "containers.hpp"

namespace profiler::trace {

using StringId = int32_t;
constexpr StringId kNull = -1;  // no text at all; the empty text is 0
constexpr StringId kEmpty = 0;

class StringTable {
 public:
  // `budget`: how many bytes may be spent on texts that stand nowhere in the input.
  explicit StringTable(size_t budget) : budget_(budget) { intern({}); }
  void allow(size_t more) { budget_ += more; }

  // The number of `text`, which must stay where it is until the end: a part of the input.
  StringId intern(std::string_view text) {
    size_t at = find(text);
    if (slots_.empty() || slots_[at].id < 0) at = add(at, text);
    return slots_[at].id;
  }

  // The number of a text that was put together and is gone afterwards. kNull once the budget of
  // made-up texts is spent.
  StringId intern_copy(std::string_view text) {
    const size_t at = find(text);
    if (slots_[at].id >= 0) return slots_[at].id;
    const size_t cost = 2 * text.size() + kCost;
    if (cost > budget_) return kNull;
    budget_ -= cost;
    return slots_[add(at, keep(text))].id;
  }

  std::string_view operator[](StringId id) const { return texts_[static_cast<size_t>(id)]; }
  size_t size() const { return texts_.size(); }

 private:
  static constexpr size_t kCost = 96;  // of a short text: here, in the table and as a Python object

  struct Slot {
    uint32_t hash = 0;
    StringId id = -1;
  };

  static uint64_t hash(std::string_view text) {
    const char* at = text.data();
    const size_t size = text.size();
    uint64_t result = hash_seed() ^ (size * 0x9E3779B97F4A7C15u);
    for (size_t place = 0; place + 8 < size; place += 8) {
      result = (result ^ load<uint64_t>(at + place)) * 0xD6E8FEB86659FD93u;
      result ^= result >> 32;
    }
    return mix(mix(result ^ last_word(at, size)));
  }

  template <typename T>
  static T load(const char* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }

  // The last eight bytes, or all there are: without a copy of variable length, which is slow.
  static uint64_t last_word(const char* at, size_t size) {
    if (size >= 8) return load<uint64_t>(at + size - 8);
    if (size >= 4) {
      return uint64_t{load<uint32_t>(at)} << 32 | load<uint32_t>(at + size - 4);
    }
    if (size == 0) return 0;
    const auto byte = [at](size_t place) { return uint64_t{static_cast<uint8_t>(at[place])}; };
    return byte(0) << 16 | byte(size / 2) << 8 | byte(size - 1);
  }

  // The slot of `text`, or the free one where it belongs.
  size_t find(std::string_view text) {
    if (slots_.empty()) return 0;
    const uint64_t full = hash(text);
    const auto part = static_cast<uint32_t>(full >> 32);
    const size_t mask = slots_.size() - 1;
    for (size_t at = full & mask;; at = (at + 1) & mask) {
      const Slot& slot = slots_[at];
      if (slot.id < 0) return at;
      if (slot.hash == part && (*this)[slot.id] == text) return at;
    }
  }

  size_t add(size_t at, std::string_view text) {
    if ((texts_.size() + 1) * 4 > slots_.size() * 3) {
      grow();
      at = find(text);
    }
    slots_[at] = {static_cast<uint32_t>(hash(text) >> 32), static_cast<StringId>(texts_.size())};
    texts_.push_back(text);
    return at;
  }

  void grow() {
    std::vector<Slot>(slots_.empty() ? 256 : slots_.size() * 2).swap(slots_);
    const size_t mask = slots_.size() - 1;
    for (size_t id = 0; id < texts_.size(); ++id) {
      const uint64_t full = hash(texts_[id]);
      size_t at = full & mask;
      while (slots_[at].id >= 0) at = (at + 1) & mask;
      slots_[at] = {static_cast<uint32_t>(full >> 32), static_cast<StringId>(id)};
    }
  }

  std::string_view keep(std::string_view text) {
    if (text.size() > left_) {
      const size_t block = text.size() > 65536 ? text.size() : 65536;
      blocks_.emplace_back(new char[block]);
      free_ = blocks_.back().get();
      left_ = block;
    }
    std::memcpy(free_, text.data(), text.size());
    const std::string_view kept(free_, text.size());
    free_ += text.size();
    left_ -= text.size();
    return kept;
  }

  std::vector<Slot> slots_;
  std::vector<std::string_view> texts_;
  std::vector<std::unique_ptr<char[]>> blocks_;
  char* free_ = nullptr;
  size_t left_ = 0;
  size_t budget_;
};

}  // namespace profiler::trace
