// CSV → columns: what Python sees of `CsvColumns`.
#include "csv.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "arrays.hpp"
#include "buffer.hpp"
#include "core.hpp"

namespace nb = nanobind;

namespace profiler::trace {
namespace {

nb::tuple csv_columns(nb::handle data, size_t begin, size_t width,
                      const std::vector<size_t>& numbers, const std::vector<size_t>& texts) {
  for (const std::vector<size_t>* places : {&numbers, &texts}) {
    for (const size_t at : *places) {
      if (at >= width) throw nb::index_error("no such field");
    }
  }
  CsvColumns read(width, numbers, texts);
  const Buffer buffer(data);
  read.read(buffer.text().substr(std::min(begin, buffer.text().size())));
  nb::list values, codes;
  for (CsvColumns::Numbers& column : read.numbers) values.append(array(column.value));
  for (CsvColumns::Texts& column : read.texts) {
    const int64_t first = column.has_empty ? 0 : 1;
    for (int64_t& code : column.code) code -= first;
    nb::list found;
    for (size_t id = static_cast<size_t>(first); id < column.table.size(); ++id) {
      const std::string_view text = column.table[static_cast<StringId>(id)];
      found.append(nb::bytes(text.data(), text.size()));
    }
    codes.append(nb::make_tuple(found, array(column.code)));
  }
  return nb::make_tuple(read.count, read.damaged, values, codes);
}

}  // namespace

void register_csv(nb::module_& module) {
  module.def(
      "csv_columns", &csv_columns, nb::arg("data"), nb::arg("begin"), nb::arg("width"),
      nb::arg("numbers"), nb::arg("texts"),
      "The rows behind `begin` that have `width` fields: how many there are, how many others, "
      "the columns of numbers, and those of texts, each told once.");
}

}  // namespace profiler::trace
