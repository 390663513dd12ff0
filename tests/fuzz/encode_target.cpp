// Any columns → packets → the same columns, or std::invalid_argument.
#include <algorithm>
#include <deque>
#include <set>
#include <stdexcept>
#include <tuple>

#include "check_output.hpp"
#include "encode_slices.hpp"
#include "memory.hpp"
#include "read_trace.hpp"

namespace profiler::fuzz {
namespace {

using namespace trace;
using namespace trace::encode;

constexpr size_t kMostRows = 400;  // below the depth at which the reader gives up

// Values made of the input, until it is used up: then zeros.
class Source {
 public:
  Source(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

  bool empty() const { return at_ == end_; }
  uint8_t byte() { return empty() ? 0 : *at_++; }
  uint64_t bits(int bytes) {
    uint64_t value = 0;
    for (; bytes > 0; --bytes) value = value << 8 | byte();
    return value;
  }
  int64_t number() {
    switch (byte() & 7) {
      case 0: return 0;
      case 1: return -1;
      case 2: return byte();
      case 3: return static_cast<int64_t>(bits(2));
      case 4: return 1000 * byte();
      case 5: return static_cast<int64_t>(bits(8));
      case 6: return INT64_MAX - byte();
      default: return (int64_t{1} << 60) + 1000 * static_cast<int64_t>(bits(2));
    }
  }
  // Usually below `count`.
  int32_t code(size_t count) {
    const uint8_t value = byte();
    return value == 255 ? static_cast<int32_t>(bits(4)) : static_cast<int32_t>(value % count);
  }
  std::string text() {
    std::string result(byte() % 8, ' ');
    for (char& c : result) c = static_cast<char>(byte());
    return result;
  }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

// The columns that `Commands` points into.
struct Columns {
  std::vector<std::string> strings{""}, categories;
  std::vector<int32_t> narrow[8];
  std::vector<int64_t> wide[5];
  std::vector<Extra> calls;
  std::vector<CounterSamples> counters;
  std::vector<Dependency> flows;

  explicit Columns(Source& source) {
    const size_t tracks = 1 + source.byte() % 4, texts = source.byte() % 6;
    for (size_t at = 0; at < tracks; ++at) categories.push_back(source.text());
    for (size_t at = 0; at < texts; ++at) strings.push_back(source.text());
    if (source.byte() % 2) add_call(source);
    if (source.byte() % 2) add_counter(source);
    for (size_t flow = source.byte() % 8; flow > 0; --flow) {
      flows.push_back({source.code(16), source.code(16)});
    }
    while (!source.empty() && narrow[0].size() < kMostRows) add_command(source);
  }

  // Whether the steps are the numbers of pipeline calls as well, roles kernels, stages modules.
  bool has_optional() const { return !calls.empty(); }

  encode::Slices slices() const {
    encode::Slices result;
    Commands& to = result.commands;
    to.rows = narrow[0].size();
    const int32_t** codes[] = {&to.track, &to.layer,  &to.command_index, &to.op_type,
                               &to.role,  &to.shapes, &to.stage,         &to.step};
    for (size_t at = 0; at < 8; ++at) *codes[at] = narrow[at].data();
    if (has_optional()) {
      to.pipeline = narrow[7].data();
      to.kernel = narrow[4].data();
      to.module = narrow[6].data();
    }
    const int64_t** numbers[] = {&to.start_ns, &to.duration_ns, &to.bytes_read, &to.bytes_written,
                                 &to.flops};
    for (size_t at = 0; at < 5; ++at) *numbers[at] = wide[at].data();
    result.extras = calls;
    return result;
  }

 private:
  void add_command(Source& source) {
    for (size_t at = 0; at < 8; ++at) {
      const bool is_number = at == 2 || at == 7;
      const size_t count = at == 0 ? categories.size() : strings.size();
      narrow[at].push_back(is_number ? static_cast<int32_t>(source.number()) : source.code(count));
    }
    for (std::vector<int64_t>& column : wide) column.push_back(source.number());
  }

  void add_call(Source& source) {
    const int64_t start_ns = source.number(), end_ns = source.number();
    calls.push_back({source.byte() % static_cast<uint32_t>(categories.size()), start_ns,
                     end_ns == kUnclosed ? end_ns : std::max(start_ns, end_ns), source.text(),
                     Message().message(9901, Message().varint(1, 7)).wire()});
  }

  void add_counter(Source& source) {
    CounterSamples samples;
    samples.track_uuid = uint64_t{1} << 62;
    for (size_t count = source.byte() % 8; count > 0; --count) {
      samples.times_ns.push_back(source.number());
      samples.values.push_back(source.number());
    }
    std::sort(samples.times_ns.begin(), samples.times_ns.end());
    counters.push_back(samples);
  }
};

// That TrackEvent's fields 9900 and 9901 are ours.
Message extension() {
  Message file;
  file.bytes(2, "profile_sd3.trace");
  const std::pair<uint64_t, const char*> fields[] = {{9900, ".profile_sd3.trace.Command"},
                                                     {9901, ".profile_sd3.trace.Call"}};
  for (const auto& [number, type] : fields) {
    file.message(7, Message()
                        .bytes(2, ".perfetto.protos.TrackEvent")
                        .varint(3, number)
                        .varint(5, 11)
                        .bytes(6, type));
  }
  return Message().message(1, Message().message(1, file));
}

// What `profiler/trace/writer.py` writes ahead of the events.
std::string head(uint32_t sequence, int64_t base_ns, const std::vector<uint64_t>& uuids) {
  const auto base = static_cast<uint64_t>(base_ns);
  const Message realtime = Message().varint(1, 1).varint(2, base);
  const Message own = Message().varint(1, 64).varint(2, base).varint(3, 1);
  Message trace;
  const auto packet = [sequence] { return Message().varint(10, sequence); };
  trace.message(1, packet()
                       .varint(13, 1)
                       .message(6, Message().message(1, realtime).message(1, own).varint(2, 1))
                       .message(59, Message().varint(58, 64)));
  trace.message(1, packet().message(72, extension()));
  for (const uint64_t uuid : uuids) {
    trace.message(1, packet().message(60, Message().varint(1, uuid).bytes(2, "lane")));
  }
  const Message counter = Message().varint(1, uint64_t{1} << 62).bytes(2, "c").bytes(8, "");
  return trace.message(1, packet().message(60, counter)).wire();
}

// The trace; nothing where its events would begin before the epoch, which Python refuses.
std::string encode_all(const Columns& columns, uint32_t sequence, TextTable& texts) {
  encode::Slices slices = columns.slices();
  const size_t tracks = columns.categories.size();
  const Usage usage = count_usage(slices.commands, columns.strings.size(), tracks);
  Lanes lanes = place(slices, tracks);
  const std::vector<std::string_view> strings(columns.strings.begin(), columns.strings.end());
  Strings interned = intern(sequence, usage, strings, slices.extras, columns.categories, texts);
  Encoder encoder(sequence, std::move(slices), std::move(interned), std::move(lanes),
                  columns.counters, columns.flows);
  if (encoder.base_ns() < 0) return {};
  std::vector<uint64_t> uuids;
  for (size_t lane = 0; lane < encoder.lanes().track_of.size(); ++lane) {
    uuids.push_back((lane + 1) << 32 | sequence);
  }
  encoder.set_uuids(uuids);
  ByteBuffer out;
  out.append(head(sequence, encoder.base_ns(), uuids));
  for (size_t size = 0; size != out.size();) {
    size = out.size();
    ByteBuffer chunk;
    encoder.next(chunk);
    out.append({reinterpret_cast<const char*>(chunk.data()), chunk.size()});
  }
  return {reinterpret_cast<const char*>(out.data()), out.size()};
}

using Command =
    std::tuple<int64_t, int64_t, std::string_view, int32_t, std::string_view, std::string_view,
               std::string_view, std::string_view, int32_t, int64_t, int64_t, int64_t, int32_t,
               std::string_view, std::string_view>;

std::multiset<Command> written(const Columns& columns) {
  std::multiset<Command> commands;
  for (size_t row = 0; row < columns.narrow[0].size(); ++row) {
    const auto text = [&](size_t column) {
      return std::string_view(columns.strings[static_cast<size_t>(columns.narrow[column][row])]);
    };
    const auto amount = [&](size_t column) {
      return std::max<int64_t>(columns.wide[column][row], -1);
    };
    commands.emplace(columns.wide[0][row], columns.wide[1][row], text(1), columns.narrow[2][row],
                     text(3), text(4), text(5), text(6), columns.narrow[7][row], amount(2),
                     amount(3), amount(4),
                     columns.has_optional() ? std::max(columns.narrow[7][row], -1) : -1,
                     columns.has_optional() ? text(4) : std::string_view(),
                     columns.has_optional() ? text(6) : std::string_view());
  }
  return commands;
}

std::multiset<Command> read(Output& output) {
  std::multiset<Command> commands;
  SliceTable& slices = output.slices;
  for (size_t row = 0; row < slices.size; ++row) {
    const auto text = [&](Column<int32_t>& column) {
      return column.size() ? output.strings[column[row]] : std::string_view();
    };
    const auto value = [&](auto& column) { return column.size() ? column[row] : -1; };
    const std::string_view layer = text(slices.layer.size() ? slices.layer : slices.name);
    commands.emplace(slices.start_ns[row], slices.duration_ns[row], layer,
                     value(slices.command_index), text(slices.op_type), text(slices.role),
                     text(slices.shapes), text(slices.stage), value(slices.step),
                     value(slices.bytes_read), value(slices.bytes_written), value(slices.flops),
                     value(slices.pipeline), text(slices.kernel), text(slices.module));
  }
  return commands;
}

void compare(const Columns& columns, Output& output) {
  for (const uint64_t dropped : output.dropped) check(dropped == 0, "nothing is dropped");
  check(output.unmatched_ends == 0, "every end has a begin");
  check(read(output) == written(columns), "commands are read as they were written");
  check(output.calls.size() == columns.calls.size(), "calls are read as they were written");
  for (size_t at = 0; at < columns.calls.size(); ++at) {
    const Extra& call = columns.calls[at];
    const int64_t end_ns = call.end_ns == kUnclosed ? call.start_ns - 1 : call.end_ns;
    check(output.calls[at].start_ns == call.start_ns, "a call begins when it did");
    check(output.calls[at].duration_ns == end_ns - call.start_ns, "a call ends when it did");
  }
  std::multiset<std::pair<int64_t, int64_t>> flows, read_flows;
  for (const Dependency& flow : columns.flows) {
    flows.emplace(columns.wide[0][static_cast<size_t>(flow.source)],
                  columns.wide[0][static_cast<size_t>(flow.target)]);
  }
  for (size_t at = 0; at < output.flows.source.size(); ++at) {
    const auto source = static_cast<size_t>(output.flows.source[at]);
    const auto target = static_cast<size_t>(output.flows.target[at]);
    read_flows.emplace(output.slices.start_ns[source], output.slices.start_ns[target]);
  }
  check(flows == read_flows, "flows are read as they were written");
  std::multiset<std::pair<int64_t, double>> samples, read_samples;
  for (const CounterSamples& counter : columns.counters) {
    for (size_t at = 0; at < counter.times_ns.size(); ++at) {
      samples.emplace(counter.times_ns[at], static_cast<double>(counter.values[at]));
    }
  }
  for (size_t at = 0; at < output.counters.time_ns.size(); ++at) {
    read_samples.emplace(output.counters.time_ns[at], output.counters.value[at]);
  }
  check(samples == read_samples, "counters are read as they were written");
}

void round_trip(Source source) {
  const uint32_t sequences[] = {1, 2, 300, UINT32_MAX}, firsts[] = {0, 1u << 21, UINT32_MAX - 1};
  const uint32_t sequence = sequences[source.byte() % 4], first = firsts[source.byte() % 3];
  const Columns columns(source);
  TextTable texts({"MatMul", "Add"}, first);
  std::string trace;
  try {
    trace = encode_all(columns, sequence, texts);
  } catch (const std::invalid_argument&) {
    return;
  }
  if (trace.empty()) return;
  const Bytes bytes{reinterpret_cast<const uint8_t*>(trace.data()), trace.size()};
  const Decompress none = [](Compression, Bytes, size_t) { return Bytes{}; };
  const std::unique_ptr<Output> output = read_trace(bytes, none);
  check(output->whole == trace.size(), "the trace is whole");
  check_output(*output, trace.size());
  compare(columns, *output);
}

}  // namespace
}  // namespace profiler::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  profiler::fuzz::round_trip({data, size});
  return 0;
}
