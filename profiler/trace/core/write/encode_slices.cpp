#include "encode_slices.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace profiler::trace::encode {
namespace {

constexpr size_t kBlock = 4096;  // slices, or samples of a counter
constexpr size_t kChunkBytes = 1 << 16;

enum : uint32_t { kNanosecondClock = 64, kMicrosecondClock = 65, kRealtime = 1 };

// Tags that the hot loop writes; most take one byte.
constexpr uint8_t kPacketTag = tag(1, kBytes);          // Trace.packet
constexpr uint8_t kSequenceTag = tag(10, kVarint);      // TracePacket
constexpr uint8_t kTimestampTag = tag(8, kVarint);
constexpr uint8_t kTrackEventTag = tag(11, kBytes);
constexpr uint8_t kTypeTag = tag(9, kVarint);           // TrackEvent
constexpr uint32_t kCounterValueTag = tag(30, kVarint);
constexpr uint32_t kDoubleCounterValueTag = tag(44, kFixed64);
constexpr uint32_t kFlowIdsTag = tag(47, kFixed64);
constexpr uint32_t kTerminatingFlowIdsTag = tag(48, kFixed64);
constexpr uint32_t kCommandTag = tag(9900, kBytes);     // our extension of TrackEvent
constexpr uint8_t kCommandIndexTag = tag(2, kVarint);   // Command
constexpr uint8_t kBytesReadTag = tag(5, kVarint);
constexpr uint8_t kBytesWrittenTag = tag(6, kVarint);
constexpr uint8_t kFlopsTag = tag(7, kVarint);
constexpr uint8_t kStepTag = tag(10, kVarint);
constexpr uint8_t kLayerTag = tag(11, kVarint);
constexpr uint8_t kOpTypeTag = tag(12, kVarint);
constexpr uint8_t kRoleTag = tag(13, kVarint);
constexpr uint8_t kShapesTag = tag(14, kVarint);
constexpr uint8_t kStageTag = tag(15, kVarint);
constexpr uint32_t kPipelineTag = tag(16, kVarint);
constexpr uint32_t kKernelTag = tag(17, kVarint);
constexpr uint32_t kModuleTag = tag(18, kVarint);

enum : uint8_t { kSliceBegin = 1, kSliceEnd = 2, kCounter = 4 };

constexpr size_t kMaxCommand = 120;  // 5 texts of 6 bytes, 2 of 7, 5 numbers of 11, 1 of 12, a snippet
constexpr size_t kMaxEvent = kMaxCommand + 64;
constexpr size_t kFlowBytes = 10;
constexpr int32_t kNoStep = -1;

uint8_t* put_number(uint8_t* at, uint8_t number_tag, int64_t value) {
  *at++ = number_tag;
  return put_varint(at, static_cast<uint64_t>(value));
}

uint8_t* put_text(uint8_t* at, uint8_t text_tag, const Snippet& number) {
  *at++ = text_tag;
  return number.put(at);
}

int64_t earliest(const Slices& slices, const Lanes& lanes,
                 const std::vector<CounterSamples>& counters) {
  int64_t earliest_ns = lanes.order.empty() ? INT64_MAX : slices.start(lanes.order.front());
  for (const CounterSamples& counter : counters) {
    if (!counter.times_ns.empty()) earliest_ns = std::min(earliest_ns, counter.times_ns.front());
  }
  return earliest_ns == INT64_MAX ? 0 : earliest_ns;
}

}  // namespace

Encoder::Encoder(uint32_t sequence, Slices slices, Strings strings, Lanes lanes,
                 std::vector<CounterSamples> counters, const std::vector<Dependency>& flows)
    : sequence_(sequence),
      slices_(std::move(slices)),
      strings_(std::move(strings)),
      lanes_(std::move(lanes)),
      counters_(std::move(counters)),
      state_(lanes_.track_of.size()),
      scratch_(kMaxEvent),
      base_ns_(earliest(slices_, lanes_, counters_)) {
  prefix_.add_varint(kSequenceTag);
  prefix_.add_varint(sequence);
  connect(flows);
}

void Encoder::next(ByteBuffer& out) {
  bool more = true;
  while (more && out.size() < kChunkBytes) {
    more = write_strings(out) || write_samples(out) || write_block(out);
  }
}

bool Encoder::write_strings(ByteBuffer& out) {
  if (strings_written_ == strings_.packets.size()) return false;
  out.append(strings_.packets[strings_written_++]);
  return true;
}

bool Encoder::write_samples(ByteBuffer& out) {
  if (counters_written_ == counters_.size()) return false;
  const CounterSamples& counter = counters_[counters_written_];
  const size_t count = counter.times_ns.size();
  const size_t end = std::min(samples_written_ + kBlock, count);
  if (samples_written_ == 0 && count > 0) {
    block_ns_ = base_ns_;
    current_ = 0;  // two counters may share a track, and the second starts anew
    enter(out, counter.track_uuid, false);
  }
  for (; samples_written_ < end; ++samples_written_) {
    uint8_t event[2 + 2 + kMaxVarint] = {kTypeTag, kCounter};
    const uint64_t value = static_cast<uint64_t>(counter.values[samples_written_]);
    uint8_t* at = put_varint(event + 2, counter.real ? kDoubleCounterValueTag : kCounterValueTag);
    at = counter.real ? put_fixed64(at, value) : put_varint(at, value);
    packet(out, event, static_cast<size_t>(at - event), counter.times_ns[samples_written_]);
  }
  if (end == count) {
    ++counters_written_;
    samples_written_ = 0;
  }
  return true;
}

// Blocks follow each other in time: what ends after the last begin of a block is left to the next
// one. So every lane's clock can start where the block before began its last slice.
bool Encoder::write_block(ByteBuffer& out) {
  const size_t count = lanes_.order.size(), end = std::min(slices_written_ + kBlock, count);
  if (slices_written_ == count) return false;
  const auto start_ns = [&](size_t place) { return slices_.start(lanes_.order[place]); };
  block_ns_ = start_ns(slices_written_ ? slices_written_ - 1 : 0);
  for (size_t place = slices_written_; place < end; ++place) {
    const uint32_t lane = lanes_.lane_of[place];
    if (state_[lane].places.empty() && state_[lane].open.empty()) touched_.push_back(lane);
    state_[lane].places.push_back(static_cast<uint32_t>(place));
  }
  std::sort(touched_.begin(), touched_.end());
  size_t open = 0;
  for (const uint32_t lane : touched_) {
    for (const uint32_t place : state_[lane].places) {
      close(out, lane, start_ns(place));
      begin(out, lane, place);
    }
    state_[lane].places.clear();
    close(out, lane, start_ns(end - 1));
    if (!state_[lane].open.empty()) touched_[open++] = lane;
  }
  touched_.resize(open);
  slices_written_ = end;
  if (end == count) close_all(out);
  return true;
}

// The lane that ends first comes first, so that a file of one lane is in order of time.
void Encoder::close_all(ByteBuffer& out) {
  block_ns_ = slices_.start(lanes_.order.back());
  std::stable_sort(touched_.begin(), touched_.end(), [&](uint32_t a, uint32_t b) {
    return state_[a].open.back().end_ns < state_[b].open.back().end_ns;
  });
  for (const uint32_t lane : touched_) close(out, lane, INT64_MAX);
}

void Encoder::begin(ByteBuffer& out, uint32_t lane, uint32_t place) {
  const uint32_t row = lanes_.order[place];
  const bool command = slices_.is_command(row);
  const size_t needed = kMaxEvent + flows_of(place) * kFlowBytes +
                        (command ? 0 : slices_.extra(row).event.size());
  if (scratch_.size() < needed) scratch_.resize(needed);
  uint8_t* at = scratch_.data();
  *at++ = kTypeTag;
  *at++ = kSliceBegin;
  at = strings_.categories[lanes_.track_of[lane]].put(at);
  if (command) {
    at = put_command(at, row);
    // Whoever gave the columns may have changed them since they were checked: `at`.
    at = strings_.names.at(static_cast<size_t>(slices_.commands.name_of(row))).put(at);
  } else {
    const Extra& extra = slices_.extra(row);
    at = strings_.extras[row - slices_.commands.rows].put(at);
    std::memcpy(at, extra.event.data(), extra.event.size());
    at += extra.event.size();
  }
  at = put_flows(at, place, false);
  enter(out, uuids_[lane], lanes_.in_microseconds[lane]);
  packet(out, scratch_.data(), static_cast<size_t>(at - scratch_.data()), slices_.start(row));
  const int64_t end_ns = slices_.end(row);
  if (end_ns != kUnclosed) state_[lane].open.push_back({end_ns, place});
}

uint8_t* Encoder::put_command(uint8_t* at, uint32_t row) const {
  const Commands& commands = slices_.commands;
  at = put_varint(at, kCommandTag);
  uint8_t* const size = at++;
  const auto text = [&](uint8_t text_tag, int32_t code) {
    at = put_text(at, text_tag, strings_.numbers.at(static_cast<size_t>(code)));
  };
  at = put_number(at, kCommandIndexTag, commands.command_index[row]);
  text(kLayerTag, commands.layer[row]);
  if (commands.op_type[row]) text(kOpTypeTag, commands.op_type[row]);
  if (commands.role[row]) text(kRoleTag, commands.role[row]);
  if (commands.shapes[row]) text(kShapesTag, commands.shapes[row]);
  if (commands.stage[row]) text(kStageTag, commands.stage[row]);
  if (commands.step[row] != kNoStep) at = put_number(at, kStepTag, commands.step[row]);
  if (commands.bytes_read[row] >= 0) at = put_number(at, kBytesReadTag, commands.bytes_read[row]);
  if (commands.bytes_written[row] >= 0) {
    at = put_number(at, kBytesWrittenTag, commands.bytes_written[row]);
  }
  if (commands.flops[row] >= 0) at = put_number(at, kFlopsTag, commands.flops[row]);
  if (commands.pipeline != nullptr && commands.pipeline[row] >= 0) {
    at = put_varint(put_varint(at, kPipelineTag), static_cast<uint64_t>(commands.pipeline[row]));
  }
  for (const auto& [text_tag, column] :
       {std::pair{kKernelTag, commands.kernel}, std::pair{kModuleTag, commands.module}}) {
    if (column == nullptr || column[row] == 0) continue;
    at = put_varint(at, text_tag);
    at = strings_.numbers.at(static_cast<size_t>(column[row])).put(at);
  }
  *size = static_cast<uint8_t>(at - size - 1);  // below 128: see kMaxCommand
  return at;
}

// Ends what is open on the lane and ends by `horizon_ns`, innermost first.
void Encoder::close(ByteBuffer& out, uint32_t lane, int64_t horizon_ns) {
  std::vector<OpenSlice>& open = state_[lane].open;
  while (!open.empty() && open.back().end_ns <= horizon_ns) {
    const OpenSlice slice = open.back();
    open.pop_back();
    const size_t needed = kMaxEvent + flows_of(slice.place) * kFlowBytes;
    if (scratch_.size() < needed) scratch_.resize(needed);
    uint8_t* at = scratch_.data();
    *at++ = kTypeTag;
    *at++ = kSliceEnd;
    at = put_flows(at, slice.place, true);
    enter(out, uuids_[lane], lanes_.in_microseconds[lane]);
    packet(out, scratch_.data(), static_cast<size_t>(at - scratch_.data()), slice.end_ns);
  }
}

void Encoder::packet(ByteBuffer& out, const uint8_t* event, size_t size, int64_t time_ns) {
  uint64_t delta = static_cast<uint64_t>(time_ns - clock_ns_);
  if (unit_ns_ != 1) delta /= static_cast<uint64_t>(unit_ns_);
  clock_ns_ = time_ns;
  const size_t body = prefix_.size + 1 + varint_size(size) + size + 1 + varint_size(delta);
  uint8_t* at = out.room(body + 32);
  *at++ = kPacketTag;
  at = put_varint(at, body);
  at = prefix_.put(at);
  *at++ = kTrackEventTag;
  at = put_varint(at, size);
  std::memcpy(at, event, size);
  at += size;
  *at++ = kTimestampTag;
  out.commit(put_varint(at, delta));
}

// Makes a track the default one and starts its clock at the begin of the block.
void Encoder::enter(ByteBuffer& out, uint64_t track_uuid, bool in_microseconds) {
  if (current_ == track_uuid) return;
  current_ = track_uuid;
  unit_ns_ = 1;
  clock_ns_ = block_ns_;
  if (in_microseconds) {
    const int64_t over = ((block_ns_ - lanes_.residue_ns) % 1000 + 1000) % 1000;
    if (over <= block_ns_) {
      unit_ns_ = 1000;
      clock_ns_ = block_ns_ - over;
    }
  }
  const uint64_t clock = unit_ns_ == 1 ? kNanosecondClock : kMicrosecondClock;
  Message own;
  own.varint(1, clock).varint(2, static_cast<uint64_t>(clock_ns_ / unit_ns_)).varint(3, 1);
  if (unit_ns_ != 1) own.varint(4, static_cast<uint64_t>(unit_ns_));
  const Message realtime =
      Message().varint(1, kRealtime).varint(2, static_cast<uint64_t>(clock_ns_));
  const Message snapshot = Message().message(1, realtime).message(1, own);
  const Message defaults =
      Message().message(11, Message().varint(11, track_uuid)).varint(58, clock);
  const Message packet =
      Message().varint(10, sequence_).message(6, snapshot).message(59, defaults);
  out.append(Message().message(1, packet).wire());
}

// Perfetto directs flows by time: it connects an event with what took the same id before. So a
// target that was already open when its source began (a wait) takes the flow at its end.
void Encoder::connect(const std::vector<Dependency>& flows) {
  if (flows.empty()) return;
  std::vector<uint32_t> place_of(slices_.size());
  for (uint32_t place = 0; place < lanes_.order.size(); ++place) {
    place_of[lanes_.order[place]] = place;
  }
  uint64_t id = static_cast<uint64_t>(sequence_) << 32;
  const auto rows = static_cast<int64_t>(slices_.commands.rows);
  for (const Dependency& flow : flows) {
    if (flow.source < 0 || flow.source >= rows || flow.target < 0 || flow.target >= rows) {
      throw std::invalid_argument("a flow connects rows that are no commands");
    }
    const auto source_row = static_cast<uint32_t>(flow.source);
    const auto target_row = static_cast<uint32_t>(flow.target);
    const uint32_t source = place_of[source_row], target = place_of[target_row];
    const bool waited = !begins_before(source, target) &&
                        slices_.end(target_row) > slices_.start(source_row);
    ++id;
    flow_ends_.push_back({source, false, false, id});
    flow_ends_.push_back({target, waited, true, id});
  }
  std::stable_sort(flow_ends_.begin(), flow_ends_.end(),
                   [](const FlowEnd& a, const FlowEnd& b) { return a.place < b.place; });
  flows_from_.assign(lanes_.order.size() + 1, 0);
  for (const FlowEnd& end : flow_ends_) ++flows_from_[end.place + 1];
  std::partial_sum(flows_from_.begin(), flows_from_.end(), flows_from_.begin());
}

// Whether `place` begins before `other` in the order of a reader that sorts events by time and
// leaves those of one moment as they stand in the file.
bool Encoder::begins_before(uint32_t place, uint32_t other) const {
  const int64_t start = slices_.start(lanes_.order[place]);
  const int64_t other_start = slices_.start(lanes_.order[other]);
  if (start != other_start) return start < other_start;
  const size_t block = place / kBlock, other_block = other / kBlock;
  if (block != other_block) return block < other_block;
  const uint32_t lane = lanes_.lane_of[place], other_lane = lanes_.lane_of[other];
  return lane != other_lane ? lane < other_lane : place < other;
}

size_t Encoder::flows_of(uint32_t place) const {
  return flows_from_.empty() ? 0 : flows_from_[place + 1] - flows_from_[place];
}

uint8_t* Encoder::put_flows(uint8_t* at, uint32_t place, bool at_end) const {
  if (flows_from_.empty()) return at;
  for (uint32_t number = flows_from_[place]; number < flows_from_[place + 1]; ++number) {
    const FlowEnd& end = flow_ends_[number];
    if (end.at_end != at_end) continue;
    at = put_varint(at, end.terminating ? kTerminatingFlowIdsTag : kFlowIdsTag);
    std::memcpy(at, &end.id, sizeof end.id);
    at += sizeof end.id;
  }
  return at;
}

}  // namespace profiler::trace::encode
