#include "json_cursor.hpp"

namespace profiler::trace {

namespace {

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

constexpr int kMostNesting = 64;  // bits of a word

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// What follows passes over JSON: from where something begins to behind it, null where it is none.
// Most of a profile is passed over, and a place that is no member stays in a register.

const char* behind_space(const char* at, const char* end) {
  if (at < end && *at > ' ') return at;
  while (at < end && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r')) ++at;
  return at;
}

const char* skip_awkward_string(const char* at, const char* end) {
  JsonCursor rest(std::string_view(at, static_cast<size_t>(end - at)));
  std::string_view text;
  std::string unescaped;
  return rest.string(text, unescaped) ? rest.at() : nullptr;
}

const char* skip_string(const char* at, const char* end) {
  if (at == end || *at != '"') return nullptr;
  const char* found = find_special(at + 1, end);
  return found < end && *found == '"' ? found + 1 : skip_awkward_string(at, end);
}

// A member's name and the colon.
const char* skip_name(const char* at, const char* end) {
  at = skip_string(behind_space(at, end), end);
  if (at == nullptr) return nullptr;
  at = behind_space(at, end);
  return at < end && *at == ':' ? at + 1 : nullptr;
}

const char* skip_word(const char* at, const char* end, std::string_view word) {
  if (static_cast<size_t>(end - at) < word.size()) return nullptr;
  return std::memcmp(at, word.data(), word.size()) == 0 ? at + word.size() : nullptr;
}

const char* skip_digits(const char* at, const char* end) {
  const char* from = at;
  while (at < end && is_digit(*at)) ++at;
  return at > from ? at : nullptr;
}

const char* skip_number(const char* at, const char* end) {
  if (at < end && *at == '-') ++at;
  const char* from = at;
  at = skip_digits(at, end);
  if (at == nullptr || (*from == '0' && at - from > 1)) return nullptr;
  if (at < end && *at == '.') at = skip_digits(at + 1, end);
  if (at == nullptr || at == end || (*at != 'e' && *at != 'E')) return at;
  ++at;
  if (at < end && (*at == '+' || *at == '-')) ++at;
  return skip_digits(at, end);
}

const char* skip_value(const char* at, const char* end) {
  uint64_t arrays = 0;  // a bit for each array or object around, 1 for arrays, the innermost last
  for (int depth = 0;;) {
    at = behind_space(at, end);
    if (at == end) return nullptr;
    const char first = *at;
    switch (first) {
      case '"': at = skip_string(at, end); break;
      case 't': at = skip_word(at, end, "true"); break;
      case 'f': at = skip_word(at, end, "false"); break;
      case 'n': at = skip_word(at, end, "null"); break;
      case '{':
      case '[':
        at = behind_space(at + 1, end);
        if (at < end && *at == first + 2) {  // it is empty: ] and } are two behind [ and {
          ++at;
          break;
        }
        if (++depth > kMostNesting) return nullptr;
        arrays = arrays << 1 | (first == '[');
        if (first == '{' && (at = skip_name(at, end)) == nullptr) return nullptr;
        continue;
      default: at = skip_number(at, end);
    }
    if (at == nullptr) return nullptr;
    for (;; ++at, --depth, arrays >>= 1) {  // what ends here
      if (depth == 0) return at;
      at = behind_space(at, end);
      if (at == end) return nullptr;
      if (*at == ',') break;
      if (*at != (arrays & 1 ? ']' : '}')) return nullptr;
    }
    ++at;
    if (!(arrays & 1) && (at = skip_name(at, end)) == nullptr) return nullptr;
  }
}

}  // namespace

// The rest of a string that began at `from`, whose first byte that is special is at `at_`.
bool JsonCursor::awkward_string(const char* from, std::string_view& text, std::string& unescaped) {
  bool escaped = false;
  for (;; at_ = find_special(at_, end_)) {
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
  text = escaped ? std::string_view(unescaped)
                 : std::string_view(from, static_cast<size_t>(at_ - from));
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

bool JsonCursor::skip() {
  const char* end = skip_value(at_, end_);
  if (end == nullptr) return false;
  at_ = end;
  return true;
}

}  // namespace profiler::trace
