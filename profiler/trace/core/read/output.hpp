// What a trace is read into: columns.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "containers.hpp"
#include "processes.hpp"
#include "strings.hpp"
#include "tracks.hpp"

namespace profiler::trace {

constexpr int64_t kOpen = -1;  // duration of a slice that never ended

// n slices. The columns that every slice fills grow together; the others stay empty until the first
// slice that has something to say, and are filled up to it then.
struct SliceTable {
  Column<int32_t> track, call, name, category;
  Column<int64_t> start_ns, duration_ns;
  Column<int32_t> depth, parent, command_index, op_type, role, shapes, stage, step, pipeline;
  Column<int32_t> kernel, module;
  Column<int64_t> bytes_read, bytes_written, flops;
  Column<int32_t> layer;     // empty while all are called as their slices
  Column<int32_t> instants;  // rows that are moments, not slices
  size_t size = 0;

  struct Narrow {
    const char* name;
    Column<int32_t>* column;
    int32_t absent;
  };
  struct Wide {
    const char* name;
    Column<int64_t>* column;
  };
  std::array<std::pair<const char*, Column<int32_t>*>, 4> always() {
    return {{{"track", &track}, {"call", &call}, {"name", &name}, {"category", &category}}};
  }
  std::array<Narrow, 11> sometimes() {
    return {{{"depth", &depth, 0},
             {"parent", &parent, kNone},
             {"command_index", &command_index, -1},
             {"op_type", &op_type, kEmpty},
             {"role", &role, kEmpty},
             {"shapes", &shapes, kEmpty},
             {"stage", &stage, kEmpty},
             {"step", &step, -1},
             {"pipeline", &pipeline, -1},
             {"kernel", &kernel, kEmpty},
             {"module", &module, kEmpty}}};
  }
  std::array<Wide, 3> amounts() {  // -1 where unknown
    return {{{"bytes_read", &bytes_read}, {"bytes_written", &bytes_written}, {"flops", &flops}}};
  }

  // Makes room for as many slices as there will probably be.
  void expect(size_t rows) {
    if (rows > capacity_) grow(rows);
  }

  // Sets a value of a column that not every slice has.
  template <typename T>
  void put(Column<T>& column, size_t row, T value, T absent) {
    if (row != column.size() || row == 0) {  // not one more of a column in use
      column.reserve(capacity_);
      column.put(row, value, absent);
      return;
    }
    column[row] = value;
    column.set_size(row + 1);
  }

  // `above` is the row of the enclosing slice, negative where that is none.
  void set_parent(size_t row, int32_t nesting, int32_t above) {
    if (nesting > 0) put(depth, row, nesting, 0);
    if (above >= 0) put(parent, row, above, kNone);
  }
  void set_layer(size_t row, StringId id) {
    if (layer.size() == 0 && id == name[row]) return;
    fill_layers(row + 1);
    layer[row] = id;
  }

  // Appends a slice of which nothing but its place is known.
  int32_t add(int32_t on_track, int64_t start, int64_t duration, StringId name_id,
              StringId category_id) {
    if (size == capacity_) grow(capacity_ == 0 ? 256 : capacity_ * 2);
    const size_t row = size++;
    track[row] = on_track;
    call[row] = kNone;
    name[row] = name_id < 0 ? kEmpty : name_id;
    category[row] = category_id < 0 ? kEmpty : category_id;
    start_ns[row] = start;
    duration_ns[row] = duration;
    return static_cast<int32_t>(row);
  }

  // Columns that nobody filled stay empty.
  void finish() {
    for (auto& [name_of, column] : always()) column->set_size(size);
    start_ns.set_size(size);
    duration_ns.set_size(size);
    for (const Narrow& part : sometimes()) {
      if (part.column->size() > 0) part.column->fill(size, part.absent);
    }
    for (const Wide& part : amounts()) {
      if (part.column->size() > 0) part.column->fill(size, -1);
    }
    if (layer.size() > 0) fill_layers(size);
  }

 private:
  void fill_layers(size_t rows) {
    layer.reserve(capacity_);
    for (size_t row = layer.size(); row < rows; ++row) layer.push(name[row]);
  }

  void grow(size_t capacity) {
    if (size >= INT32_MAX / 2) throw std::bad_alloc();
    capacity_ = capacity;
    for (auto& [name_of, column] : always()) column->reserve(capacity_);
    start_ns.reserve(capacity_);
    duration_ns.reserve(capacity_);
    for (const Narrow& part : sometimes()) {
      if (part.column->size() > 0) part.column->reserve(capacity_);
    }
    for (const Wide& part : amounts()) {
      if (part.column->size() > 0) part.column->reserve(capacity_);
    }
  }

  size_t capacity_ = 0;
};

struct CounterTable {
  Column<int32_t> track, call;
  Column<int64_t> time_ns;
  Column<double> value;

  void add(int32_t on_track, int32_t sequence, int64_t time, double sample) {
    track.push(on_track);
    call.push(sequence);
    time_ns.push(time);
    value.push(sample);
  }
};

struct FlowTable {
  Column<int32_t> source, target;
};

enum class ArgKind : uint8_t { kInt, kUint, kString, kReal, kPointer, kBool, kJson, kNull };

// Arguments of slices. `value` holds integers as they are, reals by their bits, texts by number.
struct ArgTable {
  Column<int32_t> slice, key;
  Column<uint8_t> kind;
  Column<int64_t> value;

  void add(int32_t row, StringId key_id, ArgKind what, int64_t bits) {
    slice.push(row);
    key.push(key_id);
    kind.push(static_cast<uint8_t>(what));
    value.push(bits);
  }
};

// One invocation of a submodule, from our extension.
struct CallRow {
  int64_t start_ns = 0;
  int64_t duration_ns = kOpen;
  int32_t index = 0;
  int32_t step = -1;
  int32_t pipeline = -1;
  int32_t iteration = -1;
  int64_t device_lag_ns = -1, device_duration_ns = -1;  // -1: nobody noted these
  StringId submodule = kEmpty, stage = kEmpty, branch = kEmpty, device = kEmpty;
  bool ops_traced = false;
  std::vector<std::pair<StringId, StringId>> inputs;
};

// Pipeline, stage or step, from our extension.
struct SpanRow {
  int64_t start_ns = 0;
  int64_t duration_ns = kOpen;
  int32_t step = -1;
  int32_t pipeline = -1;
  StringId kind = kEmpty, name = kEmpty, stage = kEmpty;
};

// Why something that was read is not in the columns, and how often.
enum class Drop : uint8_t {
  kMalformed,   // an event or descriptor is no message
  kNoSequence,  // an event without packet sequence
  kStateLost,   // it needs incremental state that is lost
  kClock,       // its clock cannot be related to the trace's
  kTime,        // it has no time, or a negative one
  kTrack,       // its track's parents are unknown or a circle, or ids are missing
  kCounter,     // a counter sample without value or counter track
  kPhase,       // neither type nor phase, or a phase without thread
  kOverlap,     // a complete event that overlaps another one without nesting
  kDepth,       // nested too deeply
  kArgument,    // an argument that cannot be resolved or is too large
  kDescriptor,  // a descriptor without uuid, or that contradicts an earlier one
  kSnapshot,    // a clock snapshot that contradicts earlier ones
  kCompressed,  // compressed packets inside compressed packets
  kCount
};

struct Output {
  explicit Output(size_t string_budget) : strings(string_budget) {}

  StringTable strings;
  SliceTable slices;
  CounterTable counters;
  FlowTable flows;
  ArgTable args;
  std::vector<CallRow> calls;
  std::vector<SpanRow> spans;
  std::vector<TrackRow> tracks;
  Processes processes;
  std::array<uint64_t, static_cast<size_t>(Drop::kCount)> dropped{};
  uint64_t packets = 0;
  uint64_t unmatched_ends = 0;
  size_t whole = 0;  // bytes up to the end of the last whole packet

  void drop(Drop why) { ++dropped[static_cast<size_t>(why)]; }
};

}  // namespace profiler::trace
