#include "check_output.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace profiler::fuzz {

using namespace trace;

void fail(const char* what) {
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

namespace {

constexpr int32_t kMaxDepth = 512;

bool is_index(int64_t value, size_t size) {
  return value >= 0 && static_cast<uint64_t>(value) < size;
}

// Of a column that may be empty.
int32_t value(Column<int32_t>& column, size_t row, int32_t absent) {
  return column.size() > 0 ? column[row] : absent;
}

void check_texts(const Output& output, Column<int32_t>& column, const char* what) {
  for (const int32_t id : column) check(is_index(id, output.strings.size()), what);
}

void check_lengths(SliceTable& slices) {
  const size_t rows = slices.size;
  for (const auto& [name, column] : slices.always()) check(column->size() == rows, name);
  for (const auto& part : slices.sometimes()) {
    check(part.column->size() == 0 || part.column->size() == rows, part.name);
  }
  for (const auto& part : slices.amounts()) {
    check(part.column->size() == 0 || part.column->size() == rows, part.name);
  }
  check(slices.layer.size() == 0 || slices.layer.size() == rows, "layer");
  check(slices.start_ns.size() == rows, "start_ns has one value a slice");
  check(slices.duration_ns.size() == rows, "duration_ns has one value a slice");
}

void check_slices(Output& output) {
  SliceTable& slices = output.slices;
  check_lengths(slices);
  for (Column<int32_t>* column : {&slices.name, &slices.category, &slices.layer, &slices.op_type,
                                  &slices.role, &slices.shapes, &slices.stage}) {
    check_texts(output, *column, "a slice's text is a string");
  }
  for (size_t row = 0; row < slices.size; ++row) {
    check(is_index(slices.track[row], output.tracks.size()), "a slice lies on a track");
    check(slices.start_ns[row] >= 0, "a slice starts after the epoch");
    check(row == 0 || slices.start_ns[row - 1] <= slices.start_ns[row], "slices are in order");
    check(slices.duration_ns[row] >= kOpen, "a slice ends after its start");
    const int32_t depth = value(slices.depth, row, 0);
    const int32_t parent = value(slices.parent, row, kNone);
    check(depth >= 0 && depth < kMaxDepth, "depth is within bounds");
    if (parent == kNone) continue;
    check(is_index(parent, row), "a parent comes before its children");
    const auto above = static_cast<size_t>(parent);
    check(slices.track[above] == slices.track[row], "a parent lies on its child's track");
    check(value(slices.depth, above, 0) + 1 == depth, "a child lies one below its parent");
  }
  int32_t last = -1;
  for (const int32_t row : slices.instants) {
    check(row > last && is_index(row, slices.size), "instants are rows, in order");
    check(slices.duration_ns[static_cast<size_t>(row)] == 0, "an instant takes no time");
    last = row;
  }
}

void check_counters(Output& output) {
  CounterTable& counters = output.counters;
  const size_t rows = counters.track.size();
  check(counters.call.size() == rows && counters.time_ns.size() == rows &&
            counters.value.size() == rows,
        "columns of counters have one length");
  for (size_t row = 0; row < rows; ++row) {
    check(is_index(counters.track[row], output.tracks.size()), "a sample lies on a track");
    check(counters.time_ns[row] >= 0, "a sample is taken after the epoch");
    check(row == 0 || counters.time_ns[row - 1] <= counters.time_ns[row], "samples are in order");
  }
}

void check_flows(Output& output) {
  check(output.flows.source.size() == output.flows.target.size(), "flows have two ends");
  for (Column<int32_t>* column : {&output.flows.source, &output.flows.target}) {
    for (const int32_t row : *column) {
      check(is_index(row, output.slices.size), "a flow connects slices");
    }
  }
}

void check_args(Output& output) {
  ArgTable& args = output.args;
  const size_t rows = args.slice.size();
  check(args.key.size() == rows && args.kind.size() == rows && args.value.size() == rows,
        "columns of arguments have one length");
  check_texts(output, args.key, "an argument's key is a string");
  for (size_t row = 0; row < rows; ++row) {
    check(is_index(args.slice[row], output.slices.size), "an argument is a slice's");
    check(row == 0 || args.slice[row - 1] <= args.slice[row], "arguments are in order of slices");
    check(args.kind[row] <= static_cast<uint8_t>(ArgKind::kNull), "an argument is of a known kind");
    if (args.kind[row] != static_cast<uint8_t>(ArgKind::kString)) continue;
    check(is_index(args.value[row], output.strings.size()), "an argument's text is a string");
  }
}

void check_tracks(const Output& output) {
  const auto text = [&](StringId id) {
    check(id == kNull || is_index(id, output.strings.size()), "a track's text is a string");
  };
  for (const TrackRow& row : output.tracks) {
    text(row.name);
    text(row.unit);
    check(row.parent == kNone || is_index(row.parent, output.tracks.size()),
          "a track's parent is a track");
    if (row.thread != kNone) text(output.processes.thread_row(row.thread).name);
    if (row.process != kNone) text(output.processes.process_row(row.process).name);
  }
}

void check_calls(const Output& output) {
  const auto text = [&](StringId id) {
    check(is_index(id, output.strings.size()), "a call's or span's text is a string");
  };
  for (const CallRow& call : output.calls) {
    check(call.start_ns >= 0 && call.duration_ns >= kOpen, "a call has a time");
    for (const StringId id : {call.submodule, call.stage, call.branch, call.device}) text(id);
    for (const auto& [name, shape] : call.inputs) text(name), text(shape);
  }
  for (const SpanRow& span : output.spans) {
    check(span.start_ns >= 0 && span.duration_ns >= kOpen, "a span has a time");
    for (const StringId id : {span.kind, span.name, span.stage}) text(id);
  }
}

}  // namespace

void check_output(Output& output, size_t trace_size) {
  check_slices(output);
  check_counters(output);
  check_flows(output);
  check_args(output);
  check_tracks(output);
  check_calls(output);
  check(output.whole <= trace_size, "no more is read than there is");
}

namespace {

template <typename T>
void check_same_values(Column<T>& one, Column<T>& other, const char* what) {
  check(one.size() == other.size(), what);
  for (size_t row = 0; row < one.size(); ++row) {
    check(std::memcmp(&one[row], &other[row], sizeof(T)) == 0, what);
  }
}

void check_same_texts(const Output& one, Column<int32_t>& ids, const Output& other,
                      Column<int32_t>& other_ids, const char* what) {
  check(ids.size() == other_ids.size(), what);
  for (size_t row = 0; row < ids.size(); ++row) {
    check(one.strings[ids[row]] == other.strings[other_ids[row]], what);
  }
}

}  // namespace

void check_same(Output& one, Output& other) {
  SliceTable &a = one.slices, &b = other.slices;
  check_same_values(a.start_ns, b.start_ns, "both readings have the same starts");
  check_same_values(a.duration_ns, b.duration_ns, "both readings have the same durations");
  check_same_values(a.instants, b.instants, "both readings have the same instants");
  for (auto column : {&SliceTable::track, &SliceTable::call, &SliceTable::depth,
                      &SliceTable::parent, &SliceTable::command_index, &SliceTable::step}) {
    check_same_values(a.*column, b.*column, "both readings have the same numbers");
  }
  for (auto column : {&SliceTable::bytes_read, &SliceTable::bytes_written, &SliceTable::flops}) {
    check_same_values(a.*column, b.*column, "both readings have the same amounts");
  }
  for (auto column :
       {&SliceTable::name, &SliceTable::category, &SliceTable::layer, &SliceTable::op_type,
        &SliceTable::role, &SliceTable::shapes, &SliceTable::stage, &SliceTable::kernel,
        &SliceTable::module}) {
    check_same_texts(one, a.*column, other, b.*column, "both readings have the same texts");
  }
  check_same_values(one.flows.source, other.flows.source, "both readings have the same flows");
  check_same_values(one.flows.target, other.flows.target, "both readings have the same flows");
  check_same_values(one.counters.time_ns, other.counters.time_ns, "the samples are the same");
  check(one.dropped == other.dropped, "both readings drop the same");
  check_same_values(one.args.slice, other.args.slice, "both readings have the same arguments");
  check(one.unmatched_ends == other.unmatched_ends, "both readings have the same ends");
}

}  // namespace profiler::fuzz
