// Ranges that nest on the threads that recorded them: what Python sees.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <vector>

#include "arrays.hpp"
#include "core.hpp"

namespace nb = nanobind;

namespace profiler::trace {
namespace {

template <typename T>
using Values = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// The innermost range around each, -1 for none. Ranges are in order of thread and start, outer ones
// before inner ones.
nb::object parents(Values<int32_t> thread, Values<int64_t> start, Values<int64_t> end) {
  const size_t count = thread.size();
  if (start.size() != count || end.size() != count) {
    throw nb::value_error("columns of ranges have different lengths");
  }
  Column<int64_t> found;
  found.reserve(count);
  std::vector<size_t> open;
  for (size_t range = 0; range < count; ++range) {
    if (range > 0 && thread.data()[range] != thread.data()[range - 1]) open.clear();
    while (!open.empty() && end.data()[open.back()] <= start.data()[range]) open.pop_back();
    found.push(open.empty() ? -1 : static_cast<int64_t>(open.back()));
    open.push_back(range);
  }
  return array(found);
}

}  // namespace

void register_ranges(nb::module_& module) {
  module.def("parents", &parents, nb::arg("thread"), nb::arg("start"), nb::arg("end"),
             "The index of the innermost range around each, -1 for none.");
}

}  // namespace profiler::trace
