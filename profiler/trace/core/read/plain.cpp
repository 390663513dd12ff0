// The short way of plain packets: from their bytes to rows.
#include <algorithm>

#include "reader.hpp"

namespace profiler::trace {

// Reads a plain packet on the short way. False where it is not plain; then nothing has happened.
bool TraceReader::plain(Bytes bytes) {
  PlainPacket packet;
  if (!parse_plain(bytes, packet) || packet.sequence == 0) return false;
  if (packet.flags & kStateCleared) return false;
  const uint32_t index = sequence_of(packet.sequence);
  const Sequence& sequence = sequences_[index];
  if (packet.flags & kNeedsState && !sequence.valid) return false;
  int64_t time = static_cast<int64_t>(packet.timestamp);
  if (sequence.default_clock != 0) {
    int64_t clock = sequence.default_clock;
    if (is_sequence_clock(clock)) clock = sequence_clock(packet.sequence, clock);
    if (!clocks_.to_trace_time(clock, time, time)) {
      if (mode_ != Mode::kSorted) throw NeedsSorting();
      deferred_.push_back(bytes);  // a later snapshot may relate its clock
      ++output_.packets;
      return true;
    }
  }
  ++output_.packets;
  push_plain(packet, time, index);
  return true;
}

// `push` for a plain packet.
void TraceReader::push_plain(const PlainPacket& packet, int64_t time, uint32_t sequence) {
  if (time < 0) return output_.drop(Drop::kTime);
  latest_ns_ = std::max(latest_ns_, time);
  const uint32_t generation = sequences_[sequence].generation;
  if (time < imported_ns_ && mode_ != Mode::kSorted) throw out_of_order(time);
  check_tie(kEventRecord, time);
  if (mode_ == Mode::kDirect) {
    imported_ns_ = time;
    return import_plain(packet.event, packet.whole, time, sequence, generation);
  }
  if (records_.size() >= UINT32_MAX) return output_.drop(Drop::kMalformed);
  keys_.push({time, static_cast<uint32_t>(records_.size())});
  records_.push({packet.whole.data, kEventRecord, true,
                      static_cast<uint32_t>(packet.whole.size), generation, sequence, 0});
  if (mode_ == Mode::kSorted) return;
  plain_.push_back(packet.event);
  flush_if_full();
}

void TraceReader::import_plain(const PlainEvent& event, Bytes bytes, int64_t time,
                               uint32_t sequence, uint32_t generation) {
  if (!importer_.plain(event, bytes, time, sequence, *generations_[generation])) {
    EventContext context;
    context.time = time;
    context.sequence = sequence;
    event.put(bytes, event_);
    importer_.event(event_, context, *generations_[generation]);
  }
  if (tracks_.row_count() > kMaxTracks) throw TooManyTracks();
}

bool Importer::plain(const PlainEvent& event, const Bytes& bytes, int64_t time, uint32_t sequence,
                     Generation& generation) {
  const bool is_command = (event.has & kHasCommand) != 0;
  if (!translations_.empty() || (is_command && !descriptors_.ours(9900))) return false;
  StringId category = kNull, name = kNull;
  if (event.category_iids != 0) {
    category = generation.category(event.category_iid);
    if (category == kNull) return false;
  }
  if (event.name_iid != 0) {
    name = generation.name(event.name_iid);
    if (name == kNull) return false;
  }
  const uint64_t uuid = event.has & kHasTrack ? event.track : generation.default_track;
  if (uuid == 0 || generation.has_thread) return false;
  if (uuid != last_uuid_ || last_track_ == kNone) {
    last_uuid_ = uuid;
    last_track_ = tracks_.find_or_add(uuid);
  }
  if (!tracks_.resolve(last_track_)) return false;
  const bool begins = event.type == kSliceBegin;
  const int32_t row = tracks_.row(last_track_, name, begins ? Use::kBegin : Use::kEnd);
  if (row == kNone) return false;
  generation.thread_used |= tracks_.thread(last_track_) == kNone;
  const bool has_flows = (event.has & (kHasFlows | kHasEndingFlows)) != 0;
  const bool has_args = (event.has & kHasAnnotations) != 0;
  if (!begins) {
    const SliceRef slice = slices_.end(time, row, category, name);
    if (has_args && slice != kNoSlice && !is_mark(slice)) {
      add_plain_args(event, bytes, slice, generation);
    }
    if (has_flows && slice != kNoSlice) add_plain_flows(event, bytes, slice);
    return true;
  }
  const SliceRef slice = slices_.begin(time, row, category, name, kOpen);
  if (slice == kNoSlice) return true;
  output_.slices.call[static_cast<size_t>(slice)] = static_cast<int32_t>(sequence);
  if (is_command) {
    command_numbers(static_cast<size_t>(slice),
                    {bytes.data + event.command_at, event.command_size});
  }
  flows_.slice_began(row, slice);
  if (has_args) add_plain_args(event, bytes, slice, generation);
  if (has_flows) add_plain_flows(event, bytes, slice);
  return true;
}

void Importer::add_plain_args(const PlainEvent& plain, const Bytes& bytes, SliceRef slice,
                              const Generation& generation) {
  Event event;
  plain.put(bytes, event);
  args_.add_event(slice, event, generation, false, false);
}

void Importer::add_plain_flows(const PlainEvent& plain, const Bytes& bytes, SliceRef slice) {
  Event event;
  plain.put(bytes, event);
  Current now;
  now.event = &event;
  add_flows(now, slice);
}

}  // namespace profiler::trace
