// Any bytes → columns of a table of SQLite, or else of a CSV, that have one length, or none.
#include "check_output.hpp"
#include "csv.hpp"
#include "memory.hpp"
#include "sqlite.hpp"

namespace profiler::fuzz {
namespace {

using namespace trace;

constexpr size_t kFactor = 128;
constexpr size_t kLeast = 1 << 20;

template <typename Code>
void check_codes(const Column<Code>& codes, size_t rows, int64_t least, size_t texts) {
  check(codes.size() == rows, "columns have one length");
  for (size_t row = 0; row < rows; ++row) {
    check(codes[row] >= least && codes[row] < static_cast<int64_t>(texts), "a text is known");
  }
}

void read_csv(std::string_view text) {
  start_counting_memory();
  CsvColumns found(4, {0, 2}, {1, 3});
  found.read(text);
  check(stop_counting_memory() <= kFactor * text.size() + kLeast, "memory is bounded");
  check(found.count + found.damaged <= text.size() + 1, "a row has bytes");
  for (const CsvColumns::Numbers& column : found.numbers) {
    check(column.value.size() == found.count, "columns have one length");
  }
  for (const CsvColumns::Texts& column : found.texts) {
    check_codes(column.code, found.count, 0, column.table.size());
  }
}

// As tests/importers/test_sqlite_file.py writes its table: a key, two numbers and a text.
void read_sqlite(std::string_view file) {
  start_counting_memory();
  SqliteTable found(file, {{0, -1}, {1, -7}, {3, -8}}, 2, 0);
  const bool plain = found.read(2, [] {});
  check(stop_counting_memory() <= kFactor * file.size() + kLeast, "memory is bounded");
  if (!plain) return;
  const size_t rows = found.text.size();
  for (const Column<int64_t>& column : found.numbers) {
    check(column.size() == rows, "columns have one length");
  }
  check_codes(found.text, rows, -1, found.texts.size());
}

}  // namespace
}  // namespace profiler::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const bool sqlite = text.substr(0, 6) == "SQLite";
  sqlite ? profiler::fuzz::read_sqlite(text) : profiler::fuzz::read_csv(text);
  return 0;
}
