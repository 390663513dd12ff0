#include "json_cursor.hpp"

#include <array>

namespace profiler::trace {

namespace {

constexpr uint64_t kEach = 0x0101010101010101u;

// The bytes of strings that need a look: quotes, escapes, control characters, all but ASCII.
constexpr std::array<bool, 256> special_bytes() {
  std::array<bool, 256> special{};
  for (size_t byte = 0; byte < 256; ++byte) {
    special[byte] = byte < 0x20 || byte >= 0x80 || byte == '"' || byte == '\\';
  }
  return special;
}
constexpr std::array<bool, 256> kSpecial = special_bytes();

// The first of these bytes, `end` where there is none.
const char* find_special(const char* at, const char* end) {
  for (; end - at >= 8; at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    // A byte's highest bit is set where it is special, and perhaps in bytes behind such a one.
    const uint64_t found = ((word ^ kEach * '"') - kEach) | ((word ^ kEach * '\\') - kEach) |
                           (word - kEach * 0x20) | word;
    if (found & kEach * 0x80) break;
  }
  while (at < end && !kSpecial[static_cast<uint8_t>(*at)]) ++at;
  return at;
}

// The end of the character at `at`, whose first byte is none of ASCII; null where it is no UTF-8.
const char* utf8_character(const char* at, const char* end) {
  const auto byte = [at](int place) { return static_cast<uint8_t>(at[place]); };
  const uint8_t first = byte(0);
  const int size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || end - at < size) return nullptr;
  for (int place = 1; place < size; ++place) {
    if ((byte(place) & 0xC0) != 0x80) return nullptr;
  }
  const bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool surrogate = first == 0xED && byte(1) > 0x9F;
  const bool beyond = first == 0xF4 && byte(1) > 0x8F;
  return overlong || surrogate || beyond ? nullptr : at + size;
}

void append_utf8(uint32_t code, std::string& text) {
  const auto add = [&text](uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) return add(code);
  if (code < 0x800) {
    add(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      add(0xE0 | code >> 12);
    } else {
      add(0xF0 | code >> 18);
      add(0x80 | (code >> 12 & 63));
    }
    add(0x80 | (code >> 6 & 63));
  }
  add(0x80 | (code & 63));
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

bool JsonCursor::string(std::string_view& text, std::string& unescaped) {
  if (!take('"')) return false;
  const char* from = at_;
  bool escaped = false;
  for (;;) {
    at_ = find_special(at_, end_);
    if (at_ == end_) return false;
    if (*at_ == '"') break;
    if (*at_ == '\\') {
      if (!escaped) unescaped.clear();
      escaped = true;
      unescaped.append(from, at_);
      if (!escape(unescaped)) return false;
      from = at_;
    } else {
      if (static_cast<uint8_t>(*at_) < 0x80) return false;
      at_ = utf8_character(at_, end_);
      if (at_ == nullptr) return false;
    }
  }
  if (escaped) unescaped.append(from, at_);
  const auto size = static_cast<size_t>(at_ - from);
  text = escaped ? std::string_view(unescaped) : std::string_view(from, size);
  ++at_;
  return true;
}

// What follows the backslash at `at_`.
bool JsonCursor::escape(std::string& text) {
  if (end_ - at_ < 2) return false;
  const char kind = at_[1];
  at_ += 2;
  switch (kind) {
    case '"':
    case '\\':
    case '/': text += kind; return true;
    case 'b': text += '\b'; return true;
    case 'f': text += '\f'; return true;
    case 'n': text += '\n'; return true;
    case 'r': text += '\r'; return true;
    case 't': text += '\t'; return true;
    case 'u': break;
    default: return false;
  }
  uint32_t code = 0;
  if (!hex(code)) return false;
  if (code >= 0xD800 && code < 0xE000) {
    uint32_t low = 0;
    if (code >= 0xDC00 || !word("\\u") || !hex(low)) return false;
    if (low < 0xDC00 || low >= 0xE000) return false;
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  append_utf8(code, text);
  return true;
}

bool JsonCursor::hex(uint32_t& code) {
  if (end_ - at_ < 4) return false;
  code = 0;
  for (int place = 0; place < 4; ++place, ++at_) {
    const char c = *at_, lower = static_cast<char>(c | 0x20);
    if (is_digit(c)) {
      code = code << 4 | static_cast<uint32_t>(c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      code = code << 4 | static_cast<uint32_t>(lower - 'a' + 10);
    } else {
      return false;
    }
  }
  return true;
}

bool JsonCursor::integer(int64_t& value) {
  const bool negative = take('-');
  const char* from = at_;
  uint64_t found = 0;
  while (at_ < end_ && is_digit(*at_) && at_ - from < 19) {
    found = found * 10 + static_cast<uint64_t>(*at_++ - '0');
  }
  if (at_ == from || (*from == '0' && at_ - from > 1) || found > INT64_MAX) return false;
  if (at_ < end_ && (is_digit(*at_) || *at_ == '.' || *at_ == 'e' || *at_ == 'E')) return false;
  value = negative ? -static_cast<int64_t>(found) : static_cast<int64_t>(found);
  return true;
}

bool JsonCursor::skip(int depth) {
  if (depth > kMaxNesting) return false;
  std::string_view text;
  switch (peek()) {
    case '"': return string(text, skipped_);
    case '{': return skip_object(depth);
    case '[': return skip_array(depth);
    case 't': return word("true");
    case 'f': return word("false");
    case 'n': return word("null");
    default: return skip_number();
  }
}

bool JsonCursor::skip_object(int depth) {
  ++at_;
  if (take('}')) return true;
  std::string_view name;
  do {
    if (!string(name, skipped_) || !take(':') || !skip(depth + 1)) return false;
  } while (take(','));
  return take('}');
}

bool JsonCursor::skip_array(int depth) {
  ++at_;
  if (take(']')) return true;
  do {
    if (!skip(depth + 1)) return false;
  } while (take(','));
  return take(']');
}

bool JsonCursor::digits() {
  const char* from = at_;
  while (at_ < end_ && is_digit(*at_)) ++at_;
  return at_ > from;
}

bool JsonCursor::skip_number() {
  if (at_ < end_ && *at_ == '-') ++at_;
  const char* from = at_;
  if (!digits() || (*from == '0' && at_ - from > 1)) return false;
  if (at_ < end_ && *at_ == '.') {
    ++at_;
    if (!digits()) return false;
  }
  if (at_ < end_ && (*at_ == 'e' || *at_ == 'E')) {
    ++at_;
    if (at_ < end_ && (*at_ == '+' || *at_ == '-')) ++at_;
    if (!digits()) return false;
  }
  return true;
}

}  // namespace profiler::trace
