// Columns of CSV: rows never become objects.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "containers.hpp"
#include "strings.hpp"

namespace profiler::trace {

// Some columns of the rows of a CSV, whose fields may be quoted, and hold commas, quotes and
// newlines where they are. Texts are parts of the input.
class CsvColumns {
 public:
  static constexpr int64_t kNotANumber = INT64_MIN;

  struct Texts {
    size_t at;  // which field of a row
    StringTable table{0};
    Column<int64_t> code;
    StringId last = kEmpty;  // rows often repeat the text of the one before
    bool has_empty = false;
  };
  struct Numbers {
    size_t at;
    Column<int64_t> value;
  };

  // `width` fields make a row; the columns that are read are told by their places in it.
  CsvColumns(size_t width, const std::vector<size_t>& numbers_at,
             const std::vector<size_t>& texts_at)
      : fields_(width) {
    for (const size_t at : numbers_at) numbers.push_back({at, {}});
    for (const size_t at : texts_at) {
      texts.emplace_back();
      texts.back().at = at;
    }
  }

  void read(std::string_view text) {
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at < end) {
      const char* const row = at;
      if (!next_row(at, end)) {  // it does not end: nothing behind its begin can be told apart
        damaged += 1 + newlines(row, end[-1] == '\n' ? end - 1 : end);
        return;
      }
      if (found_ == fields_.size()) {
        add_row();
      } else {
        damaged += found_ > 1 || first_ > 1;  // else it is blank
      }
    }
  }

  size_t count = 0, damaged = 0;
  std::vector<Numbers> numbers;
  std::vector<Texts> texts;

 private:
  // Reads a row and the newline behind it, or the end of the text in place of that; false for one
  // in which a quote stays open.
  bool next_row(const char*& at, const char* end) {
    found_ = 0;
    for (;;) {
      const char* const begin = at;
      const char* stop = field_end(at, end);
      if (stop == nullptr) return false;
      const bool last = stop == end || *stop == '\n';
      at = stop == end ? end : stop + 1;
      if (found_ == 0) first_ = static_cast<size_t>(stop - begin);
      if (stop > begin && stop[-1] == '\r') --stop;
      const bool quoted = stop - begin >= 2 && *begin == '"';
      if (found_ < fields_.size()) {
        fields_[found_] = {begin + quoted, static_cast<size_t>(stop - begin) - 2 * quoted};
      }
      ++found_;
      if (last) return true;
    }
  }

  // The comma or newline behind a field, null where a quote stays open. All that is quoted is
  // passed over by pairs of quotes.
  static const char* field_end(const char* at, const char* end) {
    for (;;) {
      while (at < end && *at != '"' && *at != ',' && *at != '\n') ++at;
      if (at == end || *at != '"') return at;
      ++at;
      at = static_cast<const char*>(std::memchr(at, '"', static_cast<size_t>(end - at)));
      if (at == nullptr) return nullptr;
      ++at;
    }
  }

  static size_t newlines(const char* at, const char* end) {
    size_t found = 0;
    for (; at < end; ++at) found += *at == '\n';
    return found;
  }

  void add_row() {
    ++count;
    for (Numbers& column : numbers) column.value.push(number(fields_[column.at]));
    for (Texts& column : texts) {
      const std::string_view field = fields_[column.at];
      if (field != column.table[column.last]) column.last = column.table.intern(field);
      column.has_empty |= field.empty();
      column.code.push(column.last);
    }
  }

  // At most 18 digits, which fit 63 bits.
  static int64_t number(std::string_view text) {
    const bool negative = !text.empty() && text[0] == '-';
    text.remove_prefix(negative);
    if (text.empty() || text.size() > 18) return kNotANumber;
    int64_t value = 0;
    for (const char c : text) {
      if (c < '0' || c > '9') return kNotANumber;
      value = value * 10 + (c - '0');
    }
    return negative ? -value : value;
  }

  std::vector<std::string_view> fields_;
  size_t found_ = 0;  // fields of the row
  size_t first_ = 0;  // bytes of its first one
};

}  // namespace profiler::trace
