// Bytes → columns: what Python sees of the decoder.
#include <nanobind/nanobind.h>

#include <memory>

#include "arrays.hpp"
#include "buffer.hpp"
#include "core.hpp"
#include "read_trace.hpp"

namespace nb = nanobind;

namespace profiler::trace {
namespace {

nb::object text(std::string_view bytes) {
  PyObject* result =
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace");
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}

nb::object text(const Output& output, StringId id) {
  return text(id < 0 ? std::string_view() : output.strings[id]);
}

nb::object strings(const Output& output) {
  nb::object result = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(output.strings.size())));
  if (!result.is_valid()) throw nb::python_error();
  for (size_t id = 0; id < output.strings.size(); ++id) {
    PyTuple_SetItem(result.ptr(), static_cast<Py_ssize_t>(id),
                    text(output, static_cast<StringId>(id)).release().ptr());
  }
  return result;
}

nb::list tracks(const Output& output) {
  static constexpr const char* kKinds[] = {"plain", "thread", "process", "counter"};
  const Processes& processes = output.processes;
  nb::list result;
  for (const TrackRow& row : output.tracks) {
    nb::object tid = nb::none(), pid = nb::none(), thread = text({}), process = text({});
    if (row.thread != kNone) {
      tid = nb::int_(processes.thread_row(row.thread).tid);
      thread = text(output, processes.thread_row(row.thread).name);
    }
    if (row.process != kNone) {
      pid = nb::int_(processes.process_row(row.process).pid);
      process = text(output, processes.process_row(row.process).name);
    }
    result.append(nb::make_tuple(row.uuid, text(output, row.name),
                                 kKinds[static_cast<size_t>(row.kind)], row.parent,
                                 text(output, row.unit), pid, tid, process, thread));
  }
  return result;
}

nb::list calls(const Output& output) {
  nb::list result;
  for (const CallRow& call : output.calls) {
    nb::dict inputs;
    for (const auto& [name, shape] : call.inputs) inputs[text(output, name)] = text(output, shape);
    result.append(nb::make_tuple(call.index, text(output, call.submodule), text(output, call.stage),
                                 text(output, call.branch), call.step, text(output, call.device),
                                 call.start_ns, call.duration_ns, call.ops_traced, inputs,
                                 call.pipeline, call.iteration, call.device_lag_ns,
                                 call.device_duration_ns));
  }
  return result;
}

nb::list spans(const Output& output) {
  nb::list result;
  for (const SpanRow& span : output.spans) {
    result.append(nb::make_tuple(text(output, span.kind), text(output, span.name),
                                 text(output, span.stage), span.step, span.start_ns,
                                 span.duration_ns, span.pipeline));
  }
  return result;
}

nb::dict dropped(const Output& output) {
  static constexpr const char* kReasons[] = {
      "malformed", "no_sequence", "state_lost", "clock",    "time",       "track",    "counter",
      "phase",     "overlap",     "depth",      "argument", "descriptor", "snapshot", "compressed"};
  nb::dict result;
  for (size_t why = 0; why < output.dropped.size(); ++why) {
    if (output.dropped[why]) result[kReasons[why]] = output.dropped[why];
  }
  return result;
}

nb::dict as_python(Output& output) {
  nb::dict slices, result;
  for (auto& [name, column] : output.slices.always()) slices[name] = array(*column);
  slices["layer"] = array(output.slices.layer);
  for (const auto& part : output.slices.sometimes()) slices[part.name] = array(*part.column);
  for (const auto& part : output.slices.amounts()) slices[part.name] = array(*part.column);
  slices["start_ns"] = array(output.slices.start_ns);
  slices["duration_ns"] = array(output.slices.duration_ns);
  result["slices"] = slices;
  result["instants"] = array(output.slices.instants);
  nb::dict counters;
  counters["track"] = array(output.counters.track);
  counters["call"] = array(output.counters.call);
  counters["time_ns"] = array(output.counters.time_ns);
  counters["value"] = array(output.counters.value);
  result["counters"] = counters;
  nb::dict flows;
  flows["source"] = array(output.flows.source);
  flows["target"] = array(output.flows.target);
  result["flows"] = flows;
  nb::dict args;
  args["slice"] = array(output.args.slice);
  args["key"] = array(output.args.key);
  args["kind"] = array(output.args.kind);
  args["value"] = array(output.args.value);
  result["args"] = args;
  result["strings"] = strings(output);
  result["tracks"] = tracks(output);
  result["calls"] = calls(output);
  result["spans"] = spans(output);
  result["dropped"] = dropped(output);
  result["unmatched_ends"] = output.unmatched_ends;
  result["packets"] = output.packets;
  result["whole"] = output.whole;
  return result;
}

// Unpacked packets, each unpacked once however often the trace is read.
class Unpacked {
 public:
  explicit Unpacked(nb::callable decompress) : decompress_(std::move(decompress)) {}

  Bytes get(Compression how, Bytes packed, size_t number) {
    if (number >= buffers_.size()) {
      const nb::gil_scoped_acquire gil;
      nb::object data = decompress_(how == Compression::kZstd ? "zstd" : "deflate",
                                    nb::bytes(packed.data, packed.size));
      buffers_.push_back(data.is_none() ? nullptr : std::make_unique<Buffer>(data));
    }
    return buffers_[number] ? buffers_[number]->bytes() : Bytes{};
  }

 private:
  nb::callable decompress_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

std::unique_ptr<Output> read(Bytes trace, const Decompress& decompress) {
  const nb::gil_scoped_release no_gil;
  return read_trace(trace, decompress);
}

nb::dict decode(nb::object data, nb::callable decompress) {
  const Buffer buffer(data);
  Unpacked unpacked(std::move(decompress));
  const Decompress unpack = [&unpacked](Compression how, Bytes packed, size_t number) {
    return unpacked.get(how, packed, number);
  };
  try {
    return as_python(*read(buffer.bytes(), unpack));
  } catch (const TooManyTracks&) {
    throw std::length_error("more tracks than a real trace has");
  }
}

}  // namespace

void register_decode(nb::module_& module) {
  module.def("decode", &decode, nb::arg("data"), nb::arg("decompress"));
}

}  // namespace profiler::trace
