// JSON text read from left to right, as strictly as RFC 8259 has it: for text of which most is
// passed over. `json.hpp` reads JSON as trace_processor does.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace profiler::trace {

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
  bool string(std::string_view& text, std::string& unescaped);

  // An integer without fraction and exponent that fits.
  bool integer(int64_t& value);

  // Any value.
  bool skip() { return skip(0); }

 private:
  static constexpr int kMaxNesting = 64;

  void skip_space() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }
  bool skip(int depth);
  bool skip_object(int depth);
  bool skip_array(int depth);
  bool skip_number();
  bool digits();
  bool escape(std::string& text);
  bool hex(uint32_t& code);

  const char* at_;
  const char* end_;
  std::string skipped_;
};

}  // namespace profiler::trace
