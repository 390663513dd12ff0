#include "encode_texts.hpp"

namespace profiler::trace::encode {
namespace {

constexpr uint32_t kFirstHashed = 1u << 21;  // below: one to three wire bytes, for the word list
constexpr uint32_t kLimit = 1u << 28;

// FNV-1a, seeded by how often the number was taken already.
uint32_t hashed_number(std::string_view text, uint64_t attempt) {
  uint64_t hash = 0xCBF29CE484222325u + attempt;
  for (const char byte : text) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001B3u;
  hash ^= hash >> 29;
  return kFirstHashed + static_cast<uint32_t>(hash % (kLimit - kFirstHashed));
}

}  // namespace

TextTable::TextTable(const std::vector<std::string>& words, uint32_t first) : next_(first) {
  for (const std::string& word : words) {
    numbers_.emplace(word, static_cast<uint32_t>(numbers_.size()) + 1);
  }
}

uint32_t TextTable::number(std::string_view text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [at, fresh] = numbers_.try_emplace(std::string(text), 0);
  if (fresh) at->second = free_number(at->first);
  return at->second;
}

uint32_t TextTable::free_number(const std::string& text) {
  if (next_ != 0) return next_++;
  for (uint64_t attempt = 0;; ++attempt) {
    const uint32_t number = hashed_number(text, attempt);
    if (hashed_.insert(number).second) return number;
  }
}

}  // namespace profiler::trace::encode
