#include "reader.hpp"

#include <algorithm>

namespace profiler::trace {

namespace {

// Snapshots relate few clocks; a bundle adds one clock a file. More is hostile.
size_t clock_edges(size_t trace_size) { return 16384 + trace_size / 4096; }
constexpr uint64_t kLeastSearches = 10'000'000;

}  // namespace

TraceReader::TraceReader(Output& output, Bytes trace, const Decompress& decompress, Mode mode)
    : output_(output),
      trace_(trace),
      decompress_(decompress),
      mode_(mode),
      tracks_(output.strings, output.processes, translations_),
      descriptors_(output.strings, kBudgetFactor * trace.size + kLeastBudget),
      clocks_(clock_edges(trace.size), kLeastSearches + trace.size),
      importer_(output, tracks_, descriptors_, translations_, mode) {}

void TraceReader::read() {
  read_packets(trace_, false);
  const std::vector<Bytes> deferred = std::move(deferred_);
  for (const Bytes& bytes : deferred) {
    Packet again;
    if (!parse_packet(bytes, again)) continue;
    payload(again, sequence_of(again.sequence), true);
  }
  flush(true);
  importer_.finish();
  note_calls();
  output_.tracks = tracks_.finish();
}

// Reads packets up to the first that is cut or damaged.
bool TraceReader::read_packets(Bytes bytes, bool nested) {
  const uint8_t* at = bytes.data;
  const uint8_t* const end = bytes.data + bytes.size;
  while (at < end) {
    // Small packets, with others behind them.
    while (end - at >= kLookahead + 130 && at[0] == tag(1, kBytes) && at[1] < 0x80 &&
           plain({at + 2, at[1]})) {
      at += 2 + at[1];
    }
    if (!nested) output_.whole = static_cast<size_t>(at - bytes.data);
    if (at == end) break;
    uint64_t key, size;
    const uint8_t* next = read_varint(at, end, key);
    if (next == nullptr || (key & 7) == 0) {
      // Only packets stand at the top, but readers skip what they do not know.
      if (next == nullptr || key < 8 || (next = read_varint(next, end, size)) == nullptr) break;
    } else if (key == tag(1, kBytes)) {
      next = read_varint(next, end, size);
      if (next == nullptr || size > static_cast<uint64_t>(end - next)) break;
      if (!packet({next, static_cast<size_t>(size)}, nested)) break;
      next += size;
    } else {
      Field other;
      Reader reader(at, static_cast<size_t>(end - at));
      if (!reader.next(other)) break;
      next = reader.position();
    }
    at = next;
    if (!nested) output_.whole = static_cast<size_t>(at - bytes.data);
  }
  return at == end;
}

// Notes a part of a packet; false where it is no message.
bool TraceReader::take(const Field& field, PacketHas what, Bytes& part, Packet& packet) {
  part = {field.data, field.size};
  packet.has |= what;
  Field inner;
  Reader reader(part);
  while (reader.next(inner)) {
  }
  return !reader.bad();
}

// The parts that most packets do not have.
bool TraceReader::parse_rare(const Field& field, Packet& packet) {
  switch (tag(field.number, static_cast<Wire>(field.wire))) {
    case tag(6, kBytes): return take(field, kPacketHasSnapshot, packet.clock_snapshot, packet);
    case tag(12, kBytes): return take(field, kPacketHasInterned, packet.interned, packet);
    case tag(43, kBytes): return take(field, kPacketHasProcess, packet.process, packet);
    case tag(44, kBytes): return take(field, kPacketHasThread, packet.thread, packet);
    case tag(54, kBytes): return take(field, kPacketHasProfile, packet.profile, packet);
    case tag(59, kBytes): return take(field, kPacketHasDefaults, packet.defaults, packet);
    case tag(60, kBytes): return take(field, kPacketHasDescriptor, packet.descriptor, packet);
    case tag(72, kBytes): return take(field, kPacketHasExtension, packet.extension_set, packet);
    case tag(82, kBytes): return take(field, kPacketHasTranslations, packet.translations, packet);
    case tag(41, kVarint):
      if (field.boolean()) packet.has |= kPacketHasCleared;
      return true;
    case tag(42, kVarint):
      if (field.boolean()) packet.has |= kPacketHasDropped;
      return true;
    case tag(50, kBytes):
    case tag(133, kBytes):
      packet.compressed = {field.data, field.size};
      packet.has |= kPacketHasCompressed;
      if (field.number == 133) packet.has |= kPacketHasZstd;
      return true;
    default: return true;
  }
}

// False where the bytes are no message. Parts that are none make the packet unsound.
bool TraceReader::parse_packet(Bytes bytes, Packet& packet) {
  Field field;
  Reader reader(bytes);
  while (reader.next(field)) {
    switch (tag(field.number, static_cast<Wire>(field.wire))) {
      case tag(8, kVarint):
        packet.timestamp = field.value;
        packet.has |= kPacketHasTimestamp;
        break;
      case tag(10, kVarint):
        packet.sequence = static_cast<uint32_t>(field.value);
        packet.has |= kPacketHasSequence;
        break;
      case tag(11, kBytes):
        packet.event = {field.data, field.size};
        packet.has |= kPacketHasEvent;
        break;
      case tag(13, kVarint): packet.flags = static_cast<uint32_t>(field.value); break;
      case tag(58, kVarint):
        packet.clock = static_cast<uint32_t>(field.value);
        packet.has |= kPacketHasClock;
        break;
      default:
        if (!parse_rare(field, packet)) packet.has |= kPacketIsUnsound;
    }
  }
  if (packet.flags & kStateCleared) packet.has |= kPacketHasCleared;
  return !reader.bad();
}

namespace {

// Whether a message can be read to its end, and so can those of its fields that `messages` names,
// a bit a field number.
bool is_sound(const Bytes& message, uint64_t messages) {
  Field field, inner;
  Reader reader(message);
  while (reader.next(field)) {
    if (field.number >= 64 || !(messages >> field.number & 1) || !field.is(kBytes)) continue;
    Reader part(field);
    while (part.next(inner)) {
    }
    if (part.bad()) return false;
  }
  return !reader.bad();
}

}  // namespace

// Whether what a packet says of the packets behind it can be read to its end. What can be read of it
// counts all the same, as in trace_processor.
bool TraceReader::is_state_sound(const Packet& packet) {
  return is_sound(packet.defaults, uint64_t{1} << 11) &&
         is_sound(packet.clock_snapshot, uint64_t{1} << 1) && is_sound(packet.interned, ~uint64_t{0});
}

// False where the packet itself is damaged: nothing behind it can be trusted.
bool TraceReader::packet(Bytes bytes, bool nested) {
  Packet packet;
  if (!parse_packet(bytes, packet)) return false;
  if (packet.has & kPacketIsUnsound) {
    output_.drop(Drop::kMalformed);
    return true;
  }
  if (packet.has != 0 || packet.flags != 0) ++output_.packets;
  if (packet.has & kPacketHasCompressed) {
    unpack(packet, nested);
    return true;
  }
  const uint32_t index = sequence_of(packet.sequence);
  constexpr uint32_t kState = kPacketHasCleared | kPacketHasDropped | kPacketHasDefaults |
                              kPacketHasInterned | kPacketHasSnapshot | kPacketHasExtension;
  if (packet.has & kState) {
    if (!is_state_sound(packet)) output_.drop(Drop::kMalformed);
    if (!update_state(packet, index)) return true;
  }
  if (packet.flags & kNeedsState && !sequences_[index].valid) {
    output_.drop(Drop::kStateLost);
    return true;
  }
  if (packet.has & kPacketHasProfile) profile(packet.profile, sequences_[index]);
  if (packet.has & kPacketHasTranslations) {
    if (mode_ != Mode::kSorted) throw NeedsSorting();  // they hold for what came before, too
    translations_.add(packet.translations, output_.strings);
  }
  constexpr uint32_t kPayload = kPacketHasTimestamp | kPacketHasEvent | kPacketHasDescriptor |
                                kPacketHasThread | kPacketHasProcess;
  if ((packet.has & kPayload) == 0 && mode_ != Mode::kSorted) return true;
  payload(packet, index, false);
  if (!deferred_.empty() && deferred_.back().data == nullptr) deferred_.back() = bytes;
  return true;
}

void TraceReader::unpack(const Packet& packet, bool nested) {
  if (nested) return output_.drop(Drop::kCompressed);
  const Compression how = packet.has & kPacketHasZstd ? Compression::kZstd : Compression::kDeflate;
  const Bytes inner = decompress_(how, packet.compressed, compressed_++);
  output_.strings.allow(kBudgetFactor * inner.size);
  descriptors_.allow(kBudgetFactor * inner.size);
  if (inner.data == nullptr || !read_packets(inner, true)) output_.drop(Drop::kCompressed);
}

uint32_t TraceReader::find_or_add_sequence(uint32_t id) {
  const auto [index, fresh] = sequence_index_.insert(id, static_cast<uint32_t>(sequences_.size()));
  if (fresh) {
    sequences_.emplace_back();
    sequences_.back().id = id;
    sequences_.back().generation = static_cast<uint32_t>(generations_.size());
    generations_.push_back(std::make_unique<Generation>());
  }
  last_sequence_id_ = id;
  return last_sequence_ = *index;
}

// Events of the old generation may still wait, so it stays.
void TraceReader::new_generation(Sequence& sequence, bool keep_interned) {
  const Generation& old = generation_of(sequence);
  Generation next;
  if (keep_interned) next.interned = old.interned;
  next.has_thread = old.has_thread;
  next.pid = old.pid;
  next.tid = old.tid;
  if (mode_ == Mode::kDirect) {
    generation_of(sequence) = std::move(next);
    return;
  }
  sequence.generation = static_cast<uint32_t>(generations_.size());
  generations_.push_back(std::make_unique<Generation>(std::move(next)));
}

// False where the packet has nothing else to say: one with a snapshot or an extension has not.
bool TraceReader::update_state(const Packet& packet, uint32_t index) {
  if (packet.has & kPacketHasSequence) update_sequence(packet, sequences_[index]);
  if (packet.has & kPacketHasSnapshot) {
    snapshot(packet.clock_snapshot, packet.sequence);
    return false;
  }
  if (!(packet.has & kPacketHasExtension)) return true;
  Field field;
  for (Reader reader(packet.extension_set); reader.next(field);) {
    if (field.number != 1 || !field.is(kBytes)) continue;
    if (!descriptors_.add({field.data, field.size}, index)) output_.drop(Drop::kArgument);
    const bool late = descriptors_.changed() && importer_.met_typed_fields();
    if (late && mode_ != Mode::kSorted) throw NeedsSorting();
    importer_.forget_texts();
  }
  return false;
}

void TraceReader::update_sequence(const Packet& packet, Sequence& sequence) {
  if (packet.has & kPacketHasCleared) {
    new_generation(sequence, false);
    sequence.forget_deltas();
    sequence.default_clock = 0;
    sequence.valid = true;
  } else if (packet.has & kPacketHasDropped) {
    sequence.valid = false;
    sequence.has_reference = false;
  }
  if (packet.has & kPacketHasDefaults) set_defaults(packet.defaults, sequence);
  if (!(packet.has & kPacketHasInterned) || !sequence.valid) return;
  Generation& generation = generation_of(sequence);
  if (!generation.interned) generation.interned = std::make_shared<Interned>();
  Field entry;
  for (Reader reader(packet.interned); reader.next(entry);) {
    generation.interned->add(entry, output_.strings);
  }
}

void TraceReader::set_defaults(const Bytes& defaults, Sequence& sequence) {
  new_generation(sequence, true);
  sequence.forget_deltas();
  sequence.default_clock = 0;
  Generation& generation = generation_of(sequence);
  Field field, inner;
  for (Reader reader(defaults); reader.next(field);) {
    if (field.number == 58 && field.is(kVarint)) {
      sequence.default_clock = static_cast<uint32_t>(field.value);
    }
    if (field.number != 11) continue;
    for (Reader event(field); event.next(inner);) {
      if (!inner.is(kVarint)) continue;
      if (inner.number == 11) {
        generation.default_track = inner.value;
        generation.has_default_track = true;
      }
      auto* uuids = inner.number == 31   ? &generation.extra_counters
                    : inner.number == 45 ? &generation.extra_double_counters
                                         : nullptr;
      if (uuids == nullptr) continue;
      if (!*uuids) *uuids = std::make_shared<std::vector<uint64_t>>();
      if ((*uuids)->size() < kMaxExtraCounters) (*uuids)->push_back(inner.value);
    }
  }
}

void TraceReader::snapshot(const Bytes& message, uint32_t sequence) {
  readings_.clear();
  int64_t primary = 0;
  Field field, part;
  for (Reader reader(message); reader.next(field);) {
    if (field.number == 2 && field.is(kVarint)) primary = static_cast<uint32_t>(field.value);
    if (field.number != 1) continue;
    ClockReading reading;
    for (Reader clock(field); clock.next(part);) {
      if (!part.is(kVarint)) continue;
      switch (part.number) {
        case 1: reading.clock = static_cast<uint32_t>(part.value); break;
        case 2: reading.timestamp = part.sint(); break;
        case 3: reading.incremental = part.boolean(); break;
        case 4: reading.unit_ns = part.value ? part.sint() : 1; break;
        default: break;
      }
    }
    if (is_sequence_clock(reading.clock)) {
      if (sequence == 0) return output_.drop(Drop::kSnapshot);
      reading.clock = sequence_clock(sequence, reading.clock);
    }
    readings_.push_back(reading);
  }
  if (primary != 0) clocks_.set_trace_clock(primary);
  if (!clocks_.add_snapshot(readings_)) return output_.drop(Drop::kSnapshot);
  // What an incremental clock measures from now on is not before now.
  if (readings_.size() == 2 && readings_[1].incremental) horizon_ns_ = readings_[0].timestamp;
}

bool TraceReader::time_of(const Packet& packet, Sequence& sequence, bool at_end, int64_t& time) {
  if (!(packet.has & kPacketHasTimestamp)) {
    time = latest_ns_;
    return true;
  }
  time = static_cast<int64_t>(packet.timestamp);
  int64_t clock = packet.has & kPacketHasClock ? packet.clock : sequence.default_clock;
  if (clock == 0) return true;
  if (is_sequence_clock(clock)) clock = sequence_clock(packet.sequence, clock);
  if (clocks_.to_trace_time(clock, time, time)) return true;
  if (at_end) {
    output_.drop(Drop::kClock);
  } else {
    if (mode_ != Mode::kSorted) throw NeedsSorting();
    deferred_.push_back({});  // a later snapshot may relate it; `packet` fills in the bytes
  }
  return false;
}

void TraceReader::payload(const Packet& packet, uint32_t index, bool at_end) {
  int64_t time = 0;
  if (!time_of(packet, sequences_[index], at_end, time)) return;
  latest_ns_ = std::max(latest_ns_, time);
  if (packet.has & kPacketHasEvent) {
    track_event(packet, index, time);
  } else if (packet.has & (kPacketHasDescriptor | kPacketHasThread | kPacketHasProcess)) {
    descriptors(packet, index, time);
  } else if (mode_ == Mode::kSorted) {
    push(kOtherRecord, {}, time, index, nullptr, nullptr);
  }
}

void TraceReader::import(uint8_t kind, Bytes bytes, int64_t time, uint32_t sequence,
                         uint32_t generation, const Event* event, const EventContext* context) {
  switch (kind) {
    case kEventRecord: {
      EventContext plain;
      if (event == nullptr) {
        parse_event(bytes, event_);
        event = &event_;
      }
      if (context == nullptr) {
        plain.time = time;
        plain.sequence = sequence;
        context = &plain;
      }
      importer_.event(*event, *context, *generations_[generation]);
      break;
    }
    case kTrackRecord: importer_.track_descriptor(bytes); break;
    case kThreadRecord: importer_.thread_descriptor(bytes, false); break;
    case kProcessRecord: importer_.process_descriptor(bytes); break;
    default: break;
  }
  if (tracks_.row_count() > kMaxTracks) throw TooManyTracks();
}

// Slices and samples know their sequence; now it is known which call that belongs to.
void TraceReader::note_calls() {
  for (const auto& [sequence, call] : importer_.calls_of_sequences) {
    sequences_[sequence].call = call;
  }
  const auto replace = [this](Column<int32_t>& calls, size_t size) {
    for (size_t row = 0; row < size; ++row) {
      if (calls[row] >= 0) calls[row] = sequences_[static_cast<size_t>(calls[row])].call;
    }
  };
  replace(output_.slices.call, output_.slices.size);
  replace(output_.counters.call, output_.counters.call.size());
}

}  // namespace profiler::trace
