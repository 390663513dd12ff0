// Events of torch.profiler → columns: what Python sees of `KinetoEvents`.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "core.hpp"
#include "kineto_events.hpp"

namespace nb = nanobind;

namespace profiler::trace {
namespace {

std::string_view view(nb::handle text) {
  if (PyByteArray_Check(text.ptr())) {
    return {PyByteArray_AsString(text.ptr()),
            static_cast<size_t>(PyByteArray_Size(text.ptr()))};
  }
  if (!PyBytes_Check(text.ptr())) throw nb::type_error("bytes or a bytearray are scanned");
  return {PyBytes_AsString(text.ptr()), static_cast<size_t>(PyBytes_Size(text.ptr()))};
}

nb::list spans(const std::vector<Span>& given) {
  nb::list result;
  for (const Span& one : given) result.append(nb::make_tuple(one.begin, one.end));
  return result;
}

bool scan(KinetoEvents& events, nb::handle text) { return events.scan(view(text)); }

nb::tuple columns(KinetoEvents& events) {
  nb::list numbers;
  for (Column<int64_t>& column : events.numbers) numbers.append(array(column));
  return nb::make_tuple(array(events.name), array(events.category), array(events.thread),
                        array(events.start), array(events.duration), array(events.arguments),
                        array(events.kind), numbers);
}

nb::list texts(const StringTable& table, size_t from) {
  nb::list result;
  for (size_t id = from; id < table.size(); ++id) {
    const std::string_view text = table[static_cast<StringId>(id)];
    result.append(nb::bytes(text.data(), text.size()));
  }
  return result;
}

}  // namespace

void register_kineto(nb::module_& module) {
  nb::class_<KinetoEvents>(module, "KinetoEvents", "The complete events of a torch.profiler trace.")
      .def("__init__",
           [](KinetoEvents* self, std::vector<std::string> numbers,
              std::vector<std::string> scalars, std::vector<std::string> values,
              std::string marked) {
             new (self) KinetoEvents({std::move(numbers), std::move(scalars), std::move(values),
                                      std::move(marked)});
           },
           nb::arg("numbers"), nb::arg("scalars"), nb::arg("values"), nb::arg("marked"))
      .def("scan", &scan, nb::arg("text"),
           "Reads an object with the list `traceEvents`; False if it must be read otherwise.")
      .def("columns", &columns,
           "The rows, which are not here any more: name, category, thread, start, duration, row of "
           "arguments; of arguments their kind and their numbers.")
      .def("names", [](KinetoEvents& e, size_t from) { return texts(e.names, from); })
      .def("categories", [](KinetoEvents& e, size_t from) { return texts(e.categories, from); })
      .def("threads", [](KinetoEvents& e, size_t from) { return texts(e.threads, from); })
      .def("kinds", [](KinetoEvents& e, size_t from) { return texts(e.kinds, from); })
      .def_prop_ro("dropped", [](KinetoEvents& e) { return e.dropped; })
      .def_prop_ro("span", [](KinetoEvents& e) { return nb::make_tuple(e.list.begin, e.list.end); })
      .def_prop_ro("others", [](KinetoEvents& e) { return spans(e.others); })
      .def_prop_ro("marked", [](KinetoEvents& e) { return spans(e.marked); })
      .def_prop_ro("marked_rows", [](KinetoEvents& e) {
        nb::list rows;
        for (const size_t row : e.marked_rows) rows.append(row);
        return rows;
      });
}

}  // namespace profiler::trace
