// Columns → packets: what Python sees of the encoder.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>

#include "core.hpp"
#include "encode_slices.hpp"

namespace nb = nanobind;

namespace profiler::trace {
namespace {

using namespace encode;

template <typename T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Pairs = nb::ndarray<const int64_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;

template <typename T>
const T* column(const Array<T>& array, size_t rows) {
  if (array.size() != rows) throw std::invalid_argument("columns differ in length");
  return array.data();
}

// The strings that are used, as UTF-8; what UTF-8 cannot hold becomes "?".
class Utf8 {
 public:
  std::string_view view(nb::handle text) {
    Py_ssize_t size = 0;
    if (const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size)) {
      return {data, static_cast<size_t>(size)};
    }
    PyErr_Clear();
    PyObject* encoded = PyUnicode_AsEncodedString(text.ptr(), "utf-8", "replace");
    if (encoded == nullptr) throw nb::python_error();
    replaced_.push_back(nb::steal<nb::bytes>(encoded));
    return {replaced_.back().c_str(), replaced_.back().size()};
  }

 private:
  std::vector<nb::bytes> replaced_;
};

// What Python fills in before the packets are made. It keeps the columns alive.
class TraceEncoder {
 public:
  TraceEncoder(uint32_t sequence, std::vector<std::string> categories)
      : sequence_(sequence), categories_(std::move(categories)) {}

  void set_commands(nb::tuple strings, std::vector<Array<int32_t>> codes,
                    std::vector<std::optional<Array<int32_t>>> optional,
                    std::vector<Array<int64_t>> numbers, Pairs flows) {
    check_not_placed();
    if (codes.size() != 8 || optional.size() != 4 || numbers.size() != 5) {
      throw std::invalid_argument("8 columns of int32, 4 that may be none, 5 of int64 are needed");
    }
    const size_t rows = codes[0].size();
    Commands to;
    to.rows = rows;
    const int32_t** narrow[] = {&to.track, &to.layer,  &to.command_index, &to.op_type,
                                &to.role,  &to.shapes, &to.stage,         &to.step};
    for (size_t at = 0; at < codes.size(); ++at) *narrow[at] = column(codes[at], rows);
    const int32_t** sometimes[] = {&to.pipeline, &to.kernel, &to.module, &to.name};
    for (size_t at = 0; at < optional.size(); ++at) {
      if (optional[at]) *sometimes[at] = column(*optional[at], rows);
    }
    const int64_t** wide[] = {&to.start_ns, &to.duration_ns, &to.bytes_read, &to.bytes_written,
                              &to.flops};
    for (size_t at = 0; at < numbers.size(); ++at) *wide[at] = column(numbers[at], rows);
    flows_.clear();
    for (size_t row = 0; row < flows.shape(0); ++row) {
      flows_.push_back({flows.data()[2 * row], flows.data()[2 * row + 1]});
    }
    slices_.commands = to;  // columns of one length, which are kept alive here
    strings_ = std::move(strings);
    codes_ = std::move(codes);
    optional_ = std::move(optional);
    numbers_ = std::move(numbers);
  }

  void add_slice(uint32_t track, nb::str name, int64_t start_ns, int64_t end_ns, nb::bytes event) {
    check_not_placed();
    if (track >= categories_.size()) throw std::invalid_argument("no such track");
    if (end_ns != kUnclosed) end_ns = std::max(start_ns, end_ns);
    slices_.extras.push_back({track, start_ns, end_ns, std::string(Utf8().view(name)),
                              std::string(event.c_str(), event.size())});
  }

  void add_counter(uint64_t track_uuid, Array<int64_t> times_ns, Array<int64_t> values, bool real) {
    check_not_placed();
    const size_t samples = times_ns.size();
    const int64_t *times = times_ns.data(), *first = column(values, samples);
    if (!std::is_sorted(times, times + samples)) {
      throw std::invalid_argument("samples of a counter are not in order of time");
    }
    counters_.push_back({track_uuid, {times, times + samples}, {first, first + samples}, real});
  }

  std::vector<uint32_t> place(TextTable& texts) {
    check_not_placed();
    if (slices_.size() >= UINT32_MAX) throw std::invalid_argument("too many slices for one file");
    const size_t string_count = nb::len(strings_);
    Usage usage;
    Lanes lanes;
    {
      nb::gil_scoped_release unlocked;
      usage = count_usage(slices_.commands, string_count, categories_.size());
      lanes = encode::place(slices_, categories_.size());
    }
    std::vector<std::string_view> strings(usage.names.size());
    Utf8 utf8;
    for (size_t code = 0; code < strings.size(); ++code) {
      if (usage.names[code] || usage.texts[code]) strings[code] = utf8.view(strings_[code]);
    }
    Strings interned = intern(sequence_, usage, strings, slices_.extras, categories_, texts);
    encoder_ = std::make_unique<Encoder>(sequence_, std::move(slices_), std::move(interned),
                                         std::move(lanes), std::move(counters_), flows_);
    return encoder_->lanes().track_of;
  }

  int64_t base_ns() { return encoder().base_ns(); }

  void start(nb::bytes head, std::vector<uint64_t> uuids) {
    if (uuids.size() != encoder().lanes().track_of.size()) {
      throw std::invalid_argument("one uuid a lane is needed");
    }
    if (started_) throw std::logic_error("the trace is started already");
    if (base_ns() < 0) throw std::invalid_argument("a trace cannot start before the epoch");
    encoder().set_uuids(std::move(uuids));
    output_.append({head.c_str(), head.size()});
    started_ = true;
  }

  nb::bytes chunk() {
    if (!started_) throw std::logic_error("the trace is not started yet");
    if (busy_) throw std::logic_error("another thread asks for the same trace");
    busy_ = true;
    try {
      nb::gil_scoped_release unlocked;
      encoder().next(output_);
    } catch (...) {
      busy_ = false;
      throw;
    }
    busy_ = false;
    nb::bytes chunk(reinterpret_cast<const char*>(output_.data()), output_.size());
    output_.clear();
    return chunk;
  }

 private:
  void check_not_placed() const {
    if (encoder_) throw std::logic_error("slices are placed already");
  }
  Encoder& encoder() {
    if (!encoder_) throw std::logic_error("slices are not placed yet");
    return *encoder_;
  }

  uint32_t sequence_;
  std::vector<std::string> categories_;
  nb::tuple strings_;
  std::vector<Array<int32_t>> codes_;
  std::vector<std::optional<Array<int32_t>>> optional_;
  std::vector<Array<int64_t>> numbers_;
  std::vector<Dependency> flows_;
  Slices slices_;
  std::vector<CounterSamples> counters_;
  std::unique_ptr<Encoder> encoder_;
  ByteBuffer output_;
  bool started_ = false;
  bool busy_ = false;  // written with the GIL held
};

}  // namespace

void register_encode(nb::module_& module) {
  nb::class_<TextTable>(module, "TextTable",
                        "Numbers of texts; one table serves all files of a run.")
      .def(nb::init<std::vector<std::string>, uint32_t>(), nb::arg("words"), nb::arg("first") = 0)
      .def(
          "number", [](TextTable& table, nb::str text) { return table.number(Utf8().view(text)); },
          nb::arg("text"));
  nb::class_<TraceEncoder>(module, "TraceEncoder", "Columns to packets of one sequence.")
      .def(nb::init<uint32_t, std::vector<std::string>>(), nb::arg("sequence"),
           nb::arg("categories"))
      .def("set_commands", &TraceEncoder::set_commands, nb::arg("strings"),
           nb::arg("codes").noconvert(), nb::arg("optional").noconvert(),
           nb::arg("numbers").noconvert(), nb::arg("flows").noconvert())
      .def("add_slice", &TraceEncoder::add_slice, nb::arg("track"), nb::arg("name"),
           nb::arg("start_ns"), nb::arg("end_ns"), nb::arg("event"))
      .def("add_counter", &TraceEncoder::add_counter, nb::arg("track_uuid"),
           nb::arg("times_ns").noconvert(), nb::arg("values").noconvert(),
           nb::arg("real") = false)
      .def("place", &TraceEncoder::place, nb::arg("texts"),
           "Places the slices; returns the track of each lane.")
      .def_prop_ro("base_ns", &TraceEncoder::base_ns)
      .def("start", &TraceEncoder::start, nb::arg("head"), nb::arg("uuids"),
           "Sets what comes before the events, and the uuid of each lane.")
      .def("chunk", &TraceEncoder::chunk, "The next whole packets; empty behind the last.");
}

}  // namespace profiler::trace
