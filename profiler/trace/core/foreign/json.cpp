#include "json.hpp"

#include <charconv>
#include <cstdlib>
#include <string>

namespace profiler::trace {

namespace {

constexpr int kMaxNesting = 64;

class Parser {
 public:
  Parser(std::string_view text, JsonSink& sink)
      : at_(text.data()), end_(at_ + text.size()), sink_(sink) {}

  bool value(int depth) {
    skip_space();
    if (at_ == end_ || depth > kMaxNesting) return false;
    switch (*at_) {
      case '{': return object(depth);
      case '[': return array(depth);
      case '"': {
        std::string text;
        if (!quoted(text)) return false;
        sink_.string(text);
        return true;
      }
      case 't': return word("true") && (sink_.boolean(true), true);
      case 'f': return word("false") && (sink_.boolean(false), true);
      case 'n': return word("null");
      default: return number();
    }
  }

 private:
  void skip_space() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\n' || *at_ == '\r')) ++at_;
  }
  bool take(char wanted) {
    skip_space();
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }
  bool word(std::string_view wanted) {
    if (static_cast<size_t>(end_ - at_) < wanted.size()) return false;
    if (std::string_view(at_, wanted.size()) != wanted) return false;
    at_ += wanted.size();
    return true;
  }
  bool at_null() {
    skip_space();
    return at_ < end_ && *at_ == 'n';
  }

  bool object(int depth) {
    ++at_;
    if (take('}')) return true;
    do {
      skip_space();
      std::string name;
      if (at_ == end_ || *at_ != '"' || !quoted(name) || !take(':')) return false;
      if (at_null()) {
        if (!word("null")) return false;
        continue;
      }
      sink_.enter_member(name);
      if (!value(depth + 1)) return false;
      sink_.leave();
    } while (take(','));
    return take('}');
  }

  bool array(int depth) {
    ++at_;
    if (take(']')) return true;
    do {
      if (at_null()) {
        if (!word("null")) return false;
        continue;
      }
      sink_.enter_element();
      if (!value(depth + 1)) return false;
      sink_.leave();
    } while (take(','));
    return take(']');
  }

  bool number() {
    const char* from = at_;
    bool whole = true;
    while (at_ < end_ &&
           (std::string_view("+-.eE0123456789").find(*at_) != std::string_view::npos)) {
      whole &= *at_ != '.' && *at_ != 'e' && *at_ != 'E';
      ++at_;
    }
    // A number that nothing follows may be cut: trace_processor does not take it either.
    if (from == at_ || at_ == end_ || at_ - from > 64) return false;
    int64_t integer = 0;
    if (whole) {
      const auto [last, error] = std::from_chars(from, at_, integer);
      if (error == std::errc() && last == at_) {
        sink_.integer(integer);
        return true;
      }
    }
    const std::string text(from, at_);
    char* last = nullptr;
    const double real = std::strtod(text.c_str(), &last);
    if (last != text.c_str() + text.size()) return false;
    sink_.real(real);
    return true;
  }

  bool quoted(std::string& text) {
    for (++at_; at_ < end_; ++at_) {
      if (*at_ == '"') {
        ++at_;
        return true;
      }
      if (*at_ != '\\') {
        text += *at_;
        continue;
      }
      if (++at_ == end_ || !escape(text)) return false;
    }
    return false;
  }

  bool escape(std::string& text) {
    switch (*at_) {
      case 'b': text += '\b'; return true;
      case 'f': text += '\f'; return true;
      case 'n': text += '\n'; return true;
      case 'r': text += '\r'; return true;
      case 't': text += '\t'; return true;
      case 'u': {
        uint32_t code = 0;
        if (!hex(code)) return false;
        const bool high = code >= 0xD800 && code < 0xDC00;
        if (high && end_ - at_ > 6 && at_[1] == '\\' && at_[2] == 'u') {
          uint32_t low = 0;
          at_ += 2;
          if (!hex(low)) return false;
          code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        }
        utf8(code, text);
        return true;
      }
      default: text += *at_; return true;
    }
  }

  // The four digits behind `at_`, which ends on the last of them.
  bool hex(uint32_t& code) {
    if (end_ - at_ < 5) return false;
    const auto [last, error] = std::from_chars(at_ + 1, at_ + 5, code, 16);
    if (error != std::errc() || last != at_ + 5) return false;
    at_ += 4;
    return true;
  }

  static void utf8(uint32_t code, std::string& text) {
    if (code < 0x80) {
      text += static_cast<char>(code);
    } else if (code < 0x800) {
      text += static_cast<char>(0xC0 | code >> 6);
      text += static_cast<char>(0x80 | (code & 63));
    } else if (code < 0x10000) {
      text += static_cast<char>(0xE0 | code >> 12);
      text += static_cast<char>(0x80 | (code >> 6 & 63));
      text += static_cast<char>(0x80 | (code & 63));
    } else {
      text += static_cast<char>(0xF0 | (code >> 18 & 7));
      text += static_cast<char>(0x80 | (code >> 12 & 63));
      text += static_cast<char>(0x80 | (code >> 6 & 63));
      text += static_cast<char>(0x80 | (code & 63));
    }
  }

  const char* at_;
  const char* end_;
  JsonSink& sink_;
};

}  // namespace

bool parse_json(std::string_view text, JsonSink& sink) { return Parser(text, sink).value(0); }

}  // namespace profiler::trace
