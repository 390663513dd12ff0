// What must be found out about events and descriptors in the order of the file: times that are
// deltas, counter values that are increments, and what descriptors say about tracks.
#include <algorithm>

#include "reader.hpp"
#include "track_descriptor.hpp"

namespace profiler::trace {

void TraceReader::track_event(const Packet& packet, uint32_t index, int64_t time) {
  if (!(packet.has & kPacketHasSequence)) return output_.drop(Drop::kNoSequence);
  Event& event = event_;
  if (!parse_event(packet.event, event)) {
    --output_.packets;
    return output_.drop(Drop::kMalformed);
  }
  Sequence& sequence = sequences_[index];
  EventContext context;
  context.sequence = index;
  constexpr uint32_t kDeltas = kHasTimeDelta | kHasThreadTimeDelta | kHasThreadTime |
                               kHasInstructionsDelta | kHasInstructions;
  const bool simple = (event.has & kDeltas) == 0 && event.time_absolute_us == 0;
  if (!simple &&
      (!event_time(event, packet, sequence, time) || !thread_values(event, sequence, context))) {
    return;
  }
  if (simple && !(packet.has & kPacketHasTimestamp)) return output_.drop(Drop::kTime);
  context.time = time;
  if (event.type == kCounter && !counter_value(event, sequence, context)) {
    return output_.drop(Drop::kCounter);
  }
  if (event[kHasExtraCounters]) {
    extra_values_.clear();
    if (!extra_counters(event, sequence)) return output_.drop(Drop::kCounter);
    context.extra_values = extra_values_.data();
    context.extra_count = static_cast<uint32_t>(extra_values_.size());
  }
  if (event.type == kCounter && import_counter(event, context)) return;
  push(kEventRecord, packet.event, time, index, &event, &context);
}

// Counter samples need not wait for their place in time, unless their track's thread or process
// is found by it.
bool TraceReader::import_counter(const Event& event, const EventContext& context) {
  if (mode_ == Mode::kDirect || event[kHasExtraCounters] || context.has_thread_time ||
      context.has_instructions || context.time < 0) {
    return false;
  }
  Generation& generation = generation_of(sequences_[context.sequence]);
  const uint64_t uuid = event[kHasTrack] ? event.track : generation.default_track;
  if (uuid == 0 || generation.has_thread || !tracks_.is_global(tracks_.find_or_add(uuid))) {
    return false;
  }
  latest_ns_ = std::max(latest_ns_, context.time);
  importer_.event(event, context, generation);
  return true;
}

// The time of an event that does not have its packet's.
bool TraceReader::event_time(const Event& event, const Packet& packet, Sequence& sequence,
                             int64_t& time) {
  if (event[kHasTimeDelta]) {
    if (!sequence.has_reference) {
      output_.drop(Drop::kStateLost);
      return false;
    }
    sequence.time_ns = wrap_add(sequence.time_ns, wrap_mul(event.time_delta_us, 1000));
    time = sequence.time_ns;
  } else if (event.time_absolute_us != 0) {
    time = wrap_mul(event.time_absolute_us, 1000);
  } else if (packet.has & kPacketHasTimestamp) {
    return true;
  } else {
    output_.drop(Drop::kTime);
    return false;
  }
  int64_t converted;
  if (clocks_.to_trace_time(kClockMonotonic, time, converted)) time = converted;
  return true;
}

// A StreamingProfilePacket: its samples are none of a timeline, but their times are deltas of the
// same reference as those of events.
void TraceReader::profile(const Bytes& message, Sequence& sequence) {
  Field field;
  for (Reader reader(message); sequence.has_reference && reader.next(field);) {
    if (field.number != 2 || !field.is(kVarint)) continue;
    sequence.time_ns = wrap_add(sequence.time_ns, wrap_mul(field.sint(), 1000));
  }
}

bool TraceReader::thread_values(const Event& event, Sequence& sequence, EventContext& context) {
  const uint32_t deltas = event.has & (kHasThreadTimeDelta | kHasInstructionsDelta);
  if (deltas != 0 && !sequence.has_reference) {
    output_.drop(Drop::kStateLost);
    return false;
  }
  if (event[kHasThreadTimeDelta]) {
    sequence.thread_time_ns =
        wrap_add(sequence.thread_time_ns, wrap_mul(event.thread_time_us, 1000));
    context.thread_time = sequence.thread_time_ns;
    context.has_thread_time = true;
  } else if (event[kHasThreadTime]) {
    context.thread_time = wrap_mul(event.thread_time_us, 1000);
    context.has_thread_time = true;
  }
  if (event[kHasInstructionsDelta]) {
    sequence.instructions = wrap_add(sequence.instructions, event.instructions);
    context.instructions = sequence.instructions;
    context.has_instructions = true;
  } else if (event[kHasInstructions]) {
    context.instructions = event.instructions;
    context.has_instructions = true;
  }
  return true;
}

bool TraceReader::absolute_value(uint64_t uuid, double value, Sequence& sequence,
                                 double& absolute) {
  const int32_t track = tracks_.find(uuid);
  if (track == kNone) return false;
  const Descriptor& descriptor = tracks_.descriptor(track);
  if (!descriptor.counter) return false;
  absolute = value;
  if (descriptor.unit_multiplier > 0) {
    absolute *= static_cast<double>(descriptor.unit_multiplier);
  }
  if (descriptor.incremental) absolute = sequence.add_to_counter(uuid, absolute);
  return true;
}

bool TraceReader::counter_value(const Event& event, Sequence& sequence, EventContext& context) {
  const Generation& generation = generation_of(sequence);
  if (!event[kHasTrack] && !generation.has_default_track) return false;
  if (!event[kHasCounterValue] && !event[kHasDoubleValue]) return false;
  const uint64_t uuid = event[kHasTrack] ? event.track : generation.default_track;
  const double value =
      event[kHasCounterValue] ? static_cast<double>(event.counter_value) : event.double_value;
  return absolute_value(uuid, value, sequence, context.counter_value);
}

bool TraceReader::extra_counters(const Event& event, Sequence& sequence) {
  const Generation& generation = generation_of(sequence);
  std::vector<uint64_t> uuids[2];
  std::vector<double> values[2];
  Field field;
  for (Reader reader(event.whole.data, event.whole.size); reader.next(field);) {
    if (field.is(kBytes)) continue;
    if (field.number == 31) uuids[0].push_back(field.value);
    if (field.number == 45) uuids[1].push_back(field.value);
    if (field.number == 12) values[0].push_back(static_cast<double>(field.sint()));
    if (field.number == 46) values[1].push_back(field.real());
  }
  if (uuids[0].empty() && generation.extra_counters) uuids[0] = *generation.extra_counters;
  if (uuids[1].empty() && generation.extra_double_counters) {
    uuids[1] = *generation.extra_double_counters;
  }
  for (size_t kind = 0; kind < 2; ++kind) {
    for (size_t at = 0; at < values[kind].size(); ++at) {
      double absolute;
      if (at >= uuids[kind].size() || uuids[kind][at] == 0 ||
          extra_values_.size() >= kMaxExtraCounters ||
          !absolute_value(uuids[kind][at], values[kind][at], sequence, absolute)) {
        return false;
      }
      extra_values_.push_back(absolute);
    }
  }
  return true;
}

void TraceReader::descriptors(const Packet& packet, uint32_t index, int64_t time) {
  Sequence& sequence = sequences_[index];
  if (packet.has & kPacketHasThread) {
    if (!(packet.has & kPacketHasSequence) || !sequence.valid) {
      return output_.drop(Drop::kStateLost);
    }
    set_thread(packet.thread, false, sequence);
  }
  if (packet.has & kPacketHasDescriptor && !reserve(packet.descriptor, sequence)) return;
  const auto later = [&](uint8_t kind, const Bytes& bytes) {
    push(kind, bytes, time, index, nullptr, nullptr);
  };
  if (packet.has & kPacketHasProcess) later(kProcessRecord, packet.process);
  if (packet.has & kPacketHasThread) later(kThreadRecord, packet.thread);
  if (!(packet.has & kPacketHasDescriptor)) return;
  const int32_t track = tracks_.find_or_add(last_described_);
  if (mode_ != Mode::kSorted && !described_ids_ && tracks_.is_global(track)) {
    tracks_.resolve(track);  // nothing that depends on when
  } else {
    later(kTrackRecord, packet.descriptor);
  }
}

// Takes note of a TrackDescriptor. False where it is of no use.
bool TraceReader::reserve(const Bytes& message, Sequence& sequence) {
  DescriptorParser parser(output_.strings);
  if (!parser.parse(message)) {
    output_.drop(Drop::kDescriptor);
    return false;
  }
  const Descriptor& descriptor = parser.descriptor;
  last_described_ = descriptor.uuid;
  described_ids_ = descriptor.has_pid;
  bool changed = false;
  if (!tracks_.describe(descriptor, changed)) output_.drop(Drop::kDescriptor);
  if (changed && mode_ != Mode::kSorted) throw NeedsSorting();
  if (tracks_.row_count() > kMaxTracks) throw TooManyTracks();
  if (descriptor.has_tid && sequence.valid)
    set_thread(parser.thread, descriptor.synthetic, sequence);
  return true;
}

// The thread of the sequence, and the reference of its delta times.
void TraceReader::set_thread(const Bytes& thread, bool synthetic, Sequence& sequence) {
  Field field;
  int32_t pid = 0, tid = 0;
  int64_t time = 0, thread_time = 0, instructions = 0;
  for (Reader reader(thread); reader.next(field);) {
    switch (field.number) {
      case 1: pid = static_cast<int32_t>(field.value); break;
      case 2: tid = static_cast<int32_t>(field.value); break;
      case 6: time = field.sint(); break;
      case 7: thread_time = field.sint(); break;
      case 8: instructions = field.sint(); break;
      default: break;
    }
  }
  Generation& generation = generation_of(sequence);
  const int64_t full_tid = synthetic ? synthetic_tid(tid, pid) : tid;
  const bool same = generation.has_thread && generation.pid == pid && generation.tid == full_tid;
  if (!same && generation.thread_used && mode_ != Mode::kSorted) throw NeedsSorting();
  generation.has_thread = true;
  generation.pid = pid;
  generation.tid = full_tid;
  sequence.has_reference = true;
  sequence.time_ns = wrap_mul(time, 1000);
  sequence.thread_time_ns = wrap_mul(thread_time, 1000);
  sequence.instructions = instructions;
}

}  // namespace profiler::trace
