#include "reader.hpp"

#include <algorithm>

namespace profiler::trace {

namespace {

enum SequenceFlags : uint32_t { kStateCleared = 1, kNeedsState = 2 };

// Events that wait for their place in time while a trace is only locally out of order: until no
// earlier one can come, where a clock says so, else until many later ones have come. Our own
// writer's blocks hold 8192.
#ifndef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
constexpr size_t kWindow = 32768;
constexpr size_t kWindowByClock = 16384;
#else  // so that small inputs fill it
constexpr size_t kWindow = 16;
constexpr size_t kWindowByClock = 8;
#endif

// Snapshots relate few clocks; a bundle adds one clock a file. More is hostile.
size_t clock_edges(size_t trace_size) { return 16384 + trace_size / 4096; }
constexpr uint64_t kLeastSearches = 10'000'000;

}  // namespace

TraceReader::TraceReader(Output& output, Bytes trace, const Decompress& decompress, Mode mode)
    : output_(output),
      trace_(trace),
      decompress_(decompress),
      mode_(mode),
      tracks_(output.strings, output.processes),
      descriptors_(output.strings, kBudgetFactor * trace.size + kLeastBudget),
      clocks_(clock_edges(trace.size), kLeastSearches + trace.size),
      importer_(output, tracks_, descriptors_, mode) {}

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
  if (packet.has & kState && !update_state(packet, index)) return true;
  if (packet.flags & kNeedsState && !sequences_[index].valid) {
    output_.drop(Drop::kStateLost);
    return true;
  }
  if (packet.has & kPacketHasProfile) profile(packet.profile, sequences_[index]);
  constexpr uint32_t kPayload = kPacketHasTimestamp | kPacketHasEvent | kPacketHasDescriptor |
                                kPacketHasThread | kPacketHasProcess;
  if ((packet.has & kPayload) == 0 && mode_ != Mode::kSorted) return true;
  payload(packet, index, false);
  if (!deferred_.empty() && deferred_.back().data == nullptr) deferred_.back() = bytes;
  return true;
}

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
    if (importer_.met_typed_fields() && mode_ != Mode::kSorted) throw NeedsSorting();
    if (!descriptors_.add({field.data, field.size})) output_.drop(Drop::kArgument);
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

// Imports at once what is known to be in order; lets wait what is not.
void TraceReader::push(uint8_t kind, Bytes bytes, int64_t time, uint32_t sequence,
                       const Event* event, const EventContext* context) {
  if (time < 0) return output_.drop(Drop::kTime);
  latest_ns_ = std::max(latest_ns_, time);
  const uint32_t generation = sequences_[sequence].generation;
  if (time < imported_ns_ && mode_ != Mode::kSorted) throw out_of_order(time);
  check_tie(kind, time);
  if (mode_ == Mode::kDirect ||
      (mode_ == Mode::kWindowed && keys_.empty() && kind != kEventRecord)) {
    imported_ns_ = time;
    return import(kind, bytes, time, sequence, generation, event, context);
  }
  uint32_t extra = 0;
  if (context != nullptr && (context->extra_count > 0 || context->has_thread_time ||
                             context->has_instructions || event->type == kCounter)) {
    if (extras_.empty()) extras_.emplace_back();
    extra = static_cast<uint32_t>(extras_.size());
    const double* values = context->extra_values;
    extras_.push_back({*context, {values, values + context->extra_count}});
  }
  if (bytes.size >= 1u << 28 || records_.size() >= UINT32_MAX) {
    return output_.drop(Drop::kMalformed);
  }
  keys_.push_back({time, static_cast<uint32_t>(records_.size())});
  bool plain = false;
  if (mode_ == Mode::kWindowed) {
    plain_.emplace_back();
    plain = kind == kEventRecord && extra == 0 && plain_.back().take(*event);
  }
  records_.push_back(
      {bytes.data, kind, plain, static_cast<uint32_t>(bytes.size), generation, sequence, extra});
  if (mode_ != Mode::kWindowed) return;
  if (keys_.size() >= (horizon_ns_ > 0 ? kWindowByClock : kWindow)) flush(false);
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
  keys_.push_back({time, static_cast<uint32_t>(records_.size())});
  records_.push_back({packet.whole.data, kEventRecord, true,
                      static_cast<uint32_t>(packet.whole.size), generation, sequence, 0});
  if (mode_ == Mode::kSorted) return;
  plain_.push_back(packet.event);
  if (keys_.size() >= (horizon_ns_ > 0 ? kWindowByClock : kWindow)) flush(false);
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

// What to do about an event that is earlier than one that has been imported: a window helps where
// few are later.
NeedsSorting TraceReader::out_of_order(int64_t time) {
  if (mode_ != Mode::kDirect) return {Mode::kSorted};
  const int64_t* starts = output_.slices.start_ns.data();
  const int64_t* end = starts + output_.slices.size;
  const bool few = end - std::upper_bound(starts, end, time) < ptrdiff_t{kWindowByClock};
  return {few ? Mode::kWindowed : Mode::kSorted};
}

// Whether a descriptor of a thread or process or an event of the same time comes first decides
// about threads and processes whose ids are used again: see `in_turn`.
void TraceReader::check_tie(uint8_t kind, int64_t time) {
  int64_t& own = kind == kEventRecord ? event_ns_ : thread_ns_;
  const int64_t other = kind == kEventRecord ? thread_ns_ : event_ns_;
  if (time == other && event_ns_ >= 0 && mode_ != Mode::kSorted) throw NeedsSorting();
  own = time;
}

// Brings descriptors and events, each in order, into the order of trace_processor, which takes
// them from two queues: descriptors (and whatever else is no event) first where both wait for the
// same time, but a queue that is ahead is emptied up to and including the time of the other's
// first.
void TraceReader::in_turn() {
  const auto is_event = [this](const Key& key) {
    return records_[key.record].kind == kEventRecord;
  };
  spare_ = keys_;
  const auto middle = std::stable_partition(spare_.begin(), spare_.end(),
                                            [&](const Key& key) { return !is_event(key); });
  auto descriptor = spare_.begin(), event = middle;
  auto out = keys_.begin();
  const auto take = [&out](auto& from, auto end, const auto& other, auto other_end) {
    const int64_t until = other == other_end ? INT64_MAX : other->time;
    while (from != end && from->time <= until) *out++ = *from++;
  };
  while (descriptor != middle || event != spare_.end()) {
    if (event == spare_.end() || (descriptor != middle && descriptor->time <= event->time)) {
      take(descriptor, middle, event, spare_.end());
    } else {
      take(event, spare_.end(), descriptor, middle);
    }
  }
}

// Merges runs that are in order already, as tracers write them, until all is one run. Stable.
void TraceReader::sort_keys() {
  std::vector<size_t> runs{0};
  for (size_t at = std::max<size_t>(sorted_, 1); at < keys_.size(); ++at) {
    if (keys_[at].time < keys_[at - 1].time) runs.push_back(at);
  }
  runs.push_back(keys_.size());
  const auto earlier = [](const Key& a, const Key& b) { return a.time < b.time; };
  while (runs.size() > 2) {
    spare_.resize(keys_.size());
    std::vector<size_t> merged;
    size_t run = 0;
    for (; run + 2 < runs.size(); run += 2) {
      const auto a = keys_.begin() + static_cast<ptrdiff_t>(runs[run]);
      const auto b = keys_.begin() + static_cast<ptrdiff_t>(runs[run + 1]);
      const auto c = keys_.begin() + static_cast<ptrdiff_t>(runs[run + 2]);
      const auto out = spare_.begin() + static_cast<ptrdiff_t>(runs[run]);
      merged.push_back(runs[run]);
      if (!earlier(*b, *(b - 1))) {
        std::copy(a, c, out);
      } else {
        std::merge(a, b, b, c, out, earlier);
      }
    }
    if (run + 1 < runs.size()) {
      merged.push_back(runs[run]);
      std::copy(keys_.begin() + static_cast<ptrdiff_t>(runs[run]), keys_.end(),
                spare_.begin() + static_cast<ptrdiff_t>(runs[run]));
    }
    merged.push_back(keys_.size());
    keys_.swap(spare_);
    runs.swap(merged);
  }
}

// Imports what waits: everything, or what is before the horizon, or else the older half.
void TraceReader::flush(bool everything) {
  sort_keys();
  if (mode_ == Mode::kSorted) in_turn();
  size_t count = keys_.size();
  if (!everything) {
    const auto before = std::partition_point(
        keys_.begin(), keys_.end(), [this](const Key& key) { return key.time < horizon_ns_; });
    count = static_cast<size_t>(before - keys_.begin());
    if (count < keys_.size() / 4) count = keys_.size() / 2;
  }
  for (size_t at = 0; at < count; ++at) {
    const Record& record = records_[keys_[at].record];
    const EventContext* context = nullptr;
    if (record.extra != 0) {
      Extra& extra = extras_[record.extra];
      extra.context.extra_values = extra.values.data();
      context = &extra.context;
    }
    const Bytes bytes{record.data, record.size};
    if (record.plain) {
      PlainEvent again;
      const bool kept = mode_ == Mode::kWindowed;
      if (!kept) parse_plain_event(record.data, record.data + record.size, again);
      import_plain(kept ? plain_[keys_[at].record] : again, bytes, keys_[at].time,
                   record.sequence, record.generation);
    } else {
      import(record.kind, bytes, keys_[at].time, record.sequence, record.generation, nullptr,
             context);
    }
  }
  if (count > 0) imported_ns_ = std::max(imported_ns_, keys_[count - 1].time);
  std::vector<Record> left;
  std::vector<PlainEvent> plain;
  std::vector<Extra> extras;
  if (!everything) {
    left.reserve(kWindow);
    plain.reserve(kWindow);
  }
  for (size_t at = count; at < keys_.size(); ++at) {
    left.push_back(records_[keys_[at].record]);
    plain.push_back(plain_[keys_[at].record]);
    keys_[at - count] = {keys_[at].time, static_cast<uint32_t>(left.size() - 1)};
    uint32_t& extra = left.back().extra;
    if (extra == 0) continue;
    if (extras.empty()) extras.emplace_back();
    extras.push_back(std::move(extras_[extra]));
    extra = static_cast<uint32_t>(extras.size() - 1);
  }
  extras_.swap(extras);
  keys_.resize(left.size());
  sorted_ = keys_.size();
  records_.swap(left);
  plain_.swap(plain);
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
