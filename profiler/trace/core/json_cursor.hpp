// JSON text read from left to right, as strictly as RFC 8259 has it: for text of which most is
// passed over. `json.hpp` reads JSON as trace_processor does.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#if defined(__SSE2__) && defined(__GNUC__)
#include <emmintrin.h>
#endif

namespace profiler::trace {

// The bytes of strings that need a look: quotes, escapes, control characters, all but ASCII.
constexpr std::array<bool, 256> special_bytes() {
  std::array<bool, 256> special{};
  for (size_t byte = 0; byte < 256; ++byte) {
    special[byte] = byte < 0x20 || byte >= 0x80 || byte == '"' || byte == '\\';
  }
  return special;
}
inline constexpr std::array<bool, 256> kSpecial = special_bytes();

// The first of these bytes, `end` where there is none.
inline const char* find_special(const char* at, const char* end) {
#if defined(__SSE2__) && defined(__GNUC__)
  for (; end - at >= 16; at += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    const __m128i ends = _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')),
                                      _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\')));
    // Bytes have a sign here: all but ASCII are below 0.
    const __m128i special = _mm_or_si128(ends, _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20)));
    const int found = _mm_movemask_epi8(special);
    if (found) return at + __builtin_ctz(static_cast<unsigned>(found));
  }
#endif
  while (at < end && !kSpecial[static_cast<uint8_t>(*at)]) ++at;
  return at;
}

class JsonCursor {
 public:
  explicit JsonCursor(std::string_view text) : at_(text.data()), end_(at_ + text.size()) {}

  const char* at() const { return at_; }

  bool at_end() {
    skip_space();
    return at_ == end_;
  }
  // The character behind white space; 0 at the end.
  char peek() {
    skip_space();
    return at_ == end_ ? '\0' : *at_;
  }
  bool take(char wanted) {
    if (peek() != wanted || at_ == end_) return false;
    ++at_;
    return true;
  }
  bool word(std::string_view wanted) {
    if (static_cast<size_t>(end_ - at_) < wanted.size()) return false;
    if (std::memcmp(at_, wanted.data(), wanted.size()) != 0) return false;
    at_ += wanted.size();
    return true;
  }

  // A string; `text` is a part of the input, or `unescaped` where that has escapes.
  bool string(std::string_view& text, std::string& unescaped) {
    if (!take('"')) return false;
    const char* from = at_;
    at_ = find_special(at_, end_);
    if (at_ == end_ || *at_ != '"') return awkward_string(from, text, unescaped);
    text = {from, static_cast<size_t>(at_ - from)};
    ++at_;
    return true;
  }

  // An integer without fraction and exponent that fits.
  bool integer(int64_t& value);

  // Any value, in which at most 64 arrays and objects are open at once.
  bool skip();

  // The same, and its text.
  bool value(std::string_view& text) {
    peek();
    const char* from = at_;
    if (!skip()) return false;
    text = {from, static_cast<size_t>(at_ - from)};
    return true;
  }
  // A value that is no array and no object.
  bool scalar(std::string_view& text) {
    const char first = peek();
    return first != '[' && first != '{' && value(text);
  }
  bool number(std::string_view& text) {
    const char first = peek();
    return (first == '-' || (first >= '0' && first <= '9')) && value(text);
  }

 private:
  void skip_space() {
    if (at_ < end_ && *at_ > ' ') return;
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }
  bool awkward_string(const char* from, std::string_view& text, std::string& unescaped);
  bool escape(std::string& text);
  bool hex(uint32_t& code);

  const char* at_;
  const char* end_;
};

}  // namespace profiler::trace
