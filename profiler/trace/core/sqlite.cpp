// A table of SQLite → columns: what Python sees of `SqliteTable`.
#include "sqlite.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "arrays.hpp"
#include "buffer.hpp"
#include "core.hpp"

namespace nb = nanobind;

namespace profiler::trace {
namespace {

size_t place_of(int64_t at) { return at < 0 ? SqliteTable::kNone : static_cast<size_t>(at); }

nb::object sqlite_columns(nb::handle data, uint32_t root,
                          const std::vector<std::pair<size_t, int64_t>>& numbers, int64_t text,
                          int64_t key, nb::callable passed) {
  std::vector<SqliteColumn> asked;
  for (const auto& [at, missing] : numbers) asked.push_back({at, missing});
  const Buffer buffer(data);
  SqliteTable table(buffer.text(), asked, place_of(text), place_of(key));
  if (!table.read(root, [&passed] { passed(); })) return nb::none();
  nb::list columns, texts;
  for (Column<int64_t>& column : table.numbers) columns.append(array(column));
  for (size_t id = 0; id < table.texts.size(); ++id) {
    const std::string_view one = table.texts[static_cast<StringId>(id)];
    texts.append(nb::bytes(one.data(), one.size()));
  }
  return nb::make_tuple(columns, texts, array(table.text));
}

}  // namespace

void register_sqlite(nb::module_& module) {
  module.def("sqlite_columns", &sqlite_columns, nb::arg("data"), nb::arg("root"),
             nb::arg("numbers"), nb::arg("text"), nb::arg("key"), nb::arg("passed"),
             "Columns of whole numbers, given by their place and what stands for null, and one of "
             "texts without torch's numbers of operators: the texts, and which of them each row "
             "has. None where SQLite itself must read the table. Calls `passed` now and then.");
}

}  // namespace profiler::trace
