// Events of ONNX Runtime → columns: what Python sees of `ProfileNodes`.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string_view.h>

#include "arrays.hpp"
#include "core.hpp"
#include "profile_nodes.hpp"

namespace nb = nanobind;

namespace profiler::trace {
namespace {

std::string_view view(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

nb::object scan(ProfileNodes& nodes, nb::bytes text) {
  if (!nodes.scan(view(text))) return nb::none();
  nb::list others;
  for (const OtherEvent& other : nodes.others()) {
    others.append(nb::make_tuple(other.ahead, other.begin, other.end));
  }
  return nb::make_tuple(nodes.scanned(), others);
}

void add(ProfileNodes& nodes, std::string_view name, std::string_view op_name,
         std::string_view provider, std::string_view parameter_size,
         std::string_view activation_size, std::string_view output_size, nb::bytes inputs,
         nb::bytes outputs, int64_t thread, int64_t start, int64_t duration,
         std::string_view in_use) {
  nodes.add({name, op_name, provider, parameter_size, activation_size, output_size, view(inputs),
             view(outputs)},
            thread, start, duration, in_use);
}

nb::tuple node(const ProfileNodes& nodes, size_t row) {
  if (row >= nodes.size()) throw nb::index_error("no such node");
  const Kind kind = nodes.kind_at(static_cast<size_t>(nodes.kind[row]));
  return nb::make_tuple(kind[kNodeName], nodes.start[row]);
}

nb::list kinds(const ProfileNodes& nodes) {
  nb::list result;
  for (size_t number = 0; number < nodes.kind_count(); ++number) {
    const Kind kind = nodes.kind_at(number);
    const auto json = [&kind](size_t part) {
      return nb::bytes(kind[part].data(), kind[part].size());
    };
    result.append(nb::make_tuple(kind[kNodeName], kind[kOpName], kind[kProvider],
                                 kind[kParameterSize], kind[kActivationSize], kind[kOutputSize],
                                 json(kInputs), json(kOutputs)));
  }
  return result;
}

nb::tuple columns(ProfileNodes& nodes) {
  return nb::make_tuple(array(nodes.kind), array(nodes.thread), array(nodes.start),
                        array(nodes.duration), array(nodes.arena));
}

}  // namespace

void register_profiles(nb::module_& module) {
  nb::class_<ProfileNodes>(module, "ProfileNodes",
                           "The executed nodes of a profile of ONNX Runtime.")
      .def(nb::init<>())
      .def("__len__", &ProfileNodes::size)
      .def("scan", &scan, nb::arg("text"),
           "Appends the nodes of a text; returns how many events it has, and where those are that "
           "are no nodes and matter. None, and nothing appended, where it must be read one by one.")
      .def("add", &add, nb::arg("name"), nb::arg("op_name"), nb::arg("provider"),
           nb::arg("parameter_size"), nb::arg("activation_size"), nb::arg("output_size"),
           nb::arg("inputs"), nb::arg("outputs"), nb::arg("thread"), nb::arg("start"),
           nb::arg("duration"), nb::arg("in_use"), "Appends a node.")
      .def("node", &node, nb::arg("row"), "The name and begin of a node, before `columns`.")
      .def("kinds", &kinds, "What nodes are, by number.")
      .def("columns", &columns, "The rows, which are not here any more: kind, thread, start, "
           "duration, arena.");
}

}  // namespace profiler::trace
