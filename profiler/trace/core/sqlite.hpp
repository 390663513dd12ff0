// Columns of a table in a file of SQLite, read from its pages: rows never become objects.
//
// Source: https://www.sqlite.org/fileformat2.html
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "containers.hpp"
#include "strings.hpp"

namespace profiler::trace {

// What is asked of a table: a column by its place in the rows, and what stands for null.
struct SqliteColumn {
  size_t at;
  int64_t missing;
};

// Columns of whole numbers, and one of texts. Whatever is not plain (another kind of value, pages
// that are not as they should be) makes `read` false: SQLite itself decides what that is.
class SqliteTable {
 public:
  static constexpr size_t kNone = SIZE_MAX;

  // `text_at` is the place of the texts, `key_at` that of a primary key of integers, which is the
  // number of the row; `kNone` for none.
  SqliteTable(std::string_view file, const std::vector<SqliteColumn>& columns, size_t text_at,
              size_t key_at)
      : numbers(columns.size()), file_(file), columns_(columns), text_at_(text_at) {
    for (size_t slot = 0; slot < columns.size(); ++slot) {
      if (columns[slot].at == key_at) key_slot_ = slot;
      place(columns[slot].at, slot);
    }
    if (text_at != kNone) place(text_at, kText);
  }

  // `passed` is called now and then, when pages that were read can be given up.
  bool read(uint32_t root, std::function<void()> passed) {
    passed_ = std::move(passed);
    if (file_.size() < 512 || file_.substr(0, 16) != std::string_view("SQLite format 3", 16)) {
      return false;
    }
    page_size_ = u16(bytes(16)) == 1 ? 65536 : u16(bytes(16));
    const size_t reserved = *bytes(20);
    const bool utf8 = u32(bytes(56)) == 1;
    if (!utf8 || page_size_ < 512 || page_size_ - reserved < 480) return false;
    usable_ = page_size_ - reserved;
    pages_ = file_.size() / page_size_;
    unchained_ = file_.size();
    return page(root, 0);
  }

  std::vector<Column<int64_t>> numbers;
  StringTable texts{SIZE_MAX};
  Column<int32_t> text;  // -1 for what is no text

 private:
  static constexpr size_t kSkipped = SIZE_MAX, kText = SIZE_MAX - 1;
  static constexpr size_t kMostText = 1 << 16;  // bytes of a text that need not be cut
  static constexpr int kDepth = 40;
  static constexpr size_t kPassed = size_t{32} << 20;  // bytes

  void place(size_t at, size_t slot) {
    if (slots_.size() <= at) slots_.resize(at + 1, kSkipped);
    slots_[at] = slot;
  }

  const uint8_t* bytes(size_t at) const {
    return reinterpret_cast<const uint8_t*>(file_.data()) + at;
  }
  static uint32_t u16(const uint8_t* at) { return uint32_t{at[0]} << 8 | at[1]; }
  static uint32_t u32(const uint8_t* at) { return u16(at) << 16 | u16(at + 2); }

  // The start of a page, null for one that is not there.
  const uint8_t* page_at(uint32_t number) const {
    return number == 0 || number > pages_ ? nullptr : bytes((number - 1) * page_size_);
  }

  static bool varint(const uint8_t*& at, const uint8_t* end, uint64_t& value) {
    value = 0;
    for (int byte = 0; byte < 9; ++byte) {
      if (at == end) return false;
      if (byte == 8) {
        value = value << 8 | *at++;
        return true;
      }
      value = value << 7 | (*at & 0x7F);
      if (!(*at++ & 0x80)) return true;
    }
    return true;
  }

  bool page(uint32_t number, int depth) {
    const uint8_t* const from = page_at(number);
    if (from == nullptr || ++visited_ > pages_ || depth > kDepth) return false;
    if (visited_ * page_size_ % kPassed < page_size_) passed_();
    const uint8_t* const head = from + (number == 1 ? 100 : 0);
    const bool leaf = head[0] == 13;
    if (!leaf && head[0] != 5) return false;
    const size_t cells = u16(head + 3);
    const uint8_t* pointer = head + (leaf ? 8 : 12);
    if (pointer + 2 * cells > from + usable_) return false;
    for (size_t cell = 0; cell < cells; ++cell, pointer += 2) {
      const size_t at = u16(pointer);
      if (at + 4 > usable_) return false;
      if (leaf ? !row(from + at, from + usable_) : !page(u32(from + at), depth + 1)) return false;
    }
    return leaf || page(u32(head + 8), depth + 1);
  }

  bool row(const uint8_t* at, const uint8_t* end) {
    uint64_t size, key;
    if (!varint(at, end, size) || !varint(at, end, key)) return false;
    if (size <= usable_ - 35) {
      return size <= static_cast<size_t>(end - at) &&
             record(at, at + size, static_cast<int64_t>(key), false);
    }
    // What does not fit on the page is on a chain of others.
    const size_t least = (usable_ - 12) * 32 / 255 - 23;
    const size_t most = least + (size - least) % (usable_ - 4);
    size_t part = most <= usable_ - 35 ? most : least;
    if (size > unchained_ || part + 4 > static_cast<size_t>(end - at)) return false;
    unchained_ -= size;
    chained_.assign(reinterpret_cast<const char*>(at), part);
    uint32_t next = u32(at + part);
    while (chained_.size() < size) {
      const uint8_t* const from = page_at(next);
      if (from == nullptr) return false;
      part = size - chained_.size() < usable_ - 4 ? size - chained_.size() : usable_ - 4;
      chained_.append(reinterpret_cast<const char*>(from + 4), part);
      next = u32(from);
    }
    at = reinterpret_cast<const uint8_t*>(chained_.data());
    return record(at, at + size, static_cast<int64_t>(key), true);
  }

  // A row: the kinds of its values, then the values. `passing`: its texts have to be copied.
  bool record(const uint8_t* at, const uint8_t* end, int64_t key, bool passing) {
    const uint8_t* const from = at;
    uint64_t head, kind;
    if (!varint(at, end, head) || head > static_cast<size_t>(end - from)) return false;
    const uint8_t* const kinds_end = from + head;
    const uint8_t* value = kinds_end;
    for (const size_t slot : slots_) {
      if (!varint(at, kinds_end, kind)) return false;  // a column that was added later
      const uint64_t size = size_of(kind);
      if (size > static_cast<size_t>(end - value)) return false;
      if (slot == kText) {
        if (!add_text(kind, {reinterpret_cast<const char*>(value), size}, passing)) return false;
      } else if (slot != kSkipped) {
        if (kind == 7 || kind > 9) return false;  // no whole number
        int64_t number = columns_[slot].missing;
        if (kind != 0) {
          number = kind >= 8 ? static_cast<int64_t>(kind) - 8 : whole(value, size);
        } else if (slot == key_slot_) {
          number = key;
        }
        numbers[slot].push(number);
      }
      value += size;
    }
    return true;
  }

  static uint64_t size_of(uint64_t kind) {
    static constexpr uint8_t kSizes[] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0};
    return kind < 12 ? kSizes[kind] : (kind - 12) / 2;
  }

  static int64_t whole(const uint8_t* at, size_t size) {
    uint64_t value = at[0] & 0x80 ? UINT64_MAX : 0;
    for (size_t byte = 0; byte < size; ++byte) value = value << 8 | at[byte];
    return static_cast<int64_t>(value);
  }

  bool add_text(uint64_t kind, std::string_view found, bool passing) {
    if (kind < 13 || kind % 2 == 0) {
      text.push(-1);
      return true;
    }
    if (found.size() > kMostText) return false;
    if (std::memchr(found.data(), 0, found.size()) != nullptr) return false;
    const size_t sizes = std::min(found.find(", sizes = "), found.size());
    std::string_view name = without_number(found.substr(0, sizes), ", op_id = ");
    name = without_number(name, ", seq = ");
    if (name.size() == sizes || sizes == found.size()) {
      const std::string_view all = name.size() == sizes ? found : name;
      text.push(passing ? texts.intern_copy(all) : texts.intern(all));
      return true;
    }
    joined_.assign(name).append(found.substr(sizes));
    text.push(texts.intern_copy(joined_));
    return true;
  }

  // A text without a number that it ends with, and what stands before that.
  static std::string_view without_number(std::string_view text, std::string_view before) {
    size_t digits = text.size();
    while (digits > 0 && text[digits - 1] >= '0' && text[digits - 1] <= '9') --digits;
    const std::string_view name = text.substr(0, digits);
    const bool there = digits < text.size() && name.size() >= before.size() &&
                       name.substr(name.size() - before.size()) == before;
    return there ? name.substr(0, name.size() - before.size()) : text;
  }

  std::string_view file_;
  std::vector<SqliteColumn> columns_;
  size_t text_at_;
  size_t key_slot_ = kSkipped;
  std::vector<size_t> slots_;  // by place: which column is there
  size_t page_size_ = 0, usable_ = 0, pages_ = 0;
  size_t visited_ = 0;    // a page belongs to one place of the tree, so there is no circle
  size_t unchained_ = 0;  // bytes of the file that are on no chain yet
  std::string chained_, joined_;
  std::function<void()> passed_;
};

}  // namespace profiler::trace
