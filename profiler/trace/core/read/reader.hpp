// Packets → events in order of time. The import itself is the importer's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "clocks.hpp"
#include "descriptors.hpp"
#include "event.hpp"
#include "importer.hpp"
#include "output.hpp"
#include "plain.hpp"
#include "sequence.hpp"
#include "tracks.hpp"
#include "translations.hpp"

namespace profiler::trace {

constexpr size_t kMaxTracks = 4'000'000;
constexpr size_t kMaxExtraCounters = 8;  // of an event
// Made-up texts and described types may take this many times the size of the trace.
constexpr size_t kBudgetFactor = 16;
constexpr size_t kLeastBudget = 1 << 20;
struct TooManyTracks {};

enum SequenceFlags : uint32_t { kStateCleared = 1, kNeedsState = 2 };

// Which fields a packet has.
enum PacketHas : uint32_t {
  kPacketHasTimestamp = 1 << 0,
  kPacketHasClock = 1 << 1,
  kPacketHasSequence = 1 << 2,
  kPacketHasEvent = 1 << 3,
  kPacketHasSnapshot = 1 << 4,
  kPacketHasInterned = 1 << 5,
  kPacketHasDefaults = 1 << 6,
  kPacketHasExtension = 1 << 7,
  kPacketHasDescriptor = 1 << 8,
  kPacketHasThread = 1 << 9,
  kPacketHasProcess = 1 << 10,
  kPacketHasCompressed = 1 << 11,
  kPacketHasCleared = 1 << 12,
  kPacketHasDropped = 1 << 13,
  kPacketHasZstd = 1 << 14,
  kPacketHasProfile = 1 << 15,
  kPacketIsUnsound = 1 << 16,  // one of its parts is no message
  kPacketHasTranslations = 1 << 17,
};
// What waits for its place in time.
enum RecordKind : uint8_t {
  kEventRecord,
  kTrackRecord,
  kThreadRecord,
  kProcessRecord,
  kOtherRecord,  // nothing to import, but a place in the order: see `in_turn`
};

enum class Compression { kDeflate, kZstd };

// Unpacks compressed packets. What it returns stays valid until the end; `size` 0 is a failure.
using Decompress = std::function<Bytes(Compression, Bytes, size_t number)>;

class TraceReader {
 public:
  TraceReader(Output& output, Bytes trace, const Decompress& decompress, Mode mode);

  // Reads as much as is whole. Throws NeedsSorting.
  void read();

 private:
  // Parts are set only where `has` says so.
  struct Packet {
    uint32_t has = 0;
    uint32_t flags = 0;
    uint32_t sequence = 0;
    uint32_t clock;
    uint64_t timestamp;
    Bytes event, clock_snapshot, interned, defaults, extension_set, descriptor, thread, process,
        compressed, profile, translations;
  };
  // What waits for its place in time.
  struct Record {
    const uint8_t* data;
    uint32_t kind : 3;
    uint32_t plain : 1;  // its event stands in `plain_`
    uint32_t size : 28;
    uint32_t generation;
    uint32_t sequence;
    uint32_t extra;  // place in `extras_`, 0 for none
  };
  struct Key {
    int64_t time;
    uint32_t record;
  };
  // What the first look at an event found out beyond its bytes.
  struct Extra {
    EventContext context;
    std::vector<double> values;
  };

  bool read_packets(Bytes bytes, bool nested);
  static bool take(const Field& field, PacketHas what, Bytes& part, Packet& packet);
  static bool parse_rare(const Field& field, Packet& packet);
  static bool parse_packet(Bytes bytes, Packet& packet);
  static bool is_state_sound(const Packet& packet);
  bool packet(Bytes bytes, bool nested);
  bool plain(Bytes bytes);
  void unpack(const Packet& packet, bool nested);
  bool update_state(const Packet& packet, uint32_t index);
  void update_sequence(const Packet& packet, Sequence& sequence);
  void set_defaults(const Bytes& defaults, Sequence& sequence);
  void snapshot(const Bytes& message, uint32_t sequence);
  void payload(const Packet& packet, uint32_t sequence_index, bool at_end);
  bool time_of(const Packet& packet, Sequence& sequence, bool at_end, int64_t& time);
  void track_event(const Packet& packet, uint32_t sequence_index, int64_t time);
  bool event_time(const Event& event, const Packet& packet, Sequence& sequence, int64_t& time);
  bool thread_values(const Event& event, Sequence& sequence, EventContext& context);
  bool counter_value(const Event& event, Sequence& sequence, EventContext& context);
  bool absolute_value(uint64_t uuid, double value, Sequence& sequence, double& absolute);
  bool extra_counters(const Event& event, Sequence& sequence);
  bool import_counter(const Event& event, const EventContext& context);
  void profile(const Bytes& message, Sequence& sequence);
  void descriptors(const Packet& packet, uint32_t sequence_index, int64_t time);
  bool reserve(const Bytes& message, Sequence& sequence);
  void set_thread(const Bytes& thread, bool synthetic, Sequence& sequence);

  uint32_t sequence_of(uint32_t id) {
    return id == last_sequence_id_ ? last_sequence_ : find_or_add_sequence(id);
  }
  uint32_t find_or_add_sequence(uint32_t id);
  Generation& generation_of(const Sequence& sequence) { return *generations_[sequence.generation]; }
  void new_generation(Sequence& sequence, bool keep_interned);

  void push(uint8_t kind, Bytes bytes, int64_t time, uint32_t sequence, const Event* event,
            const EventContext* context);
  void push_plain(const PlainPacket& packet, int64_t time, uint32_t sequence);
  void import_plain(const PlainEvent& event, Bytes bytes, int64_t time, uint32_t sequence,
                    uint32_t generation);
  void import(uint8_t kind, Bytes bytes, int64_t time, uint32_t sequence, uint32_t generation,
              const Event* event, const EventContext* context);
  void flush_if_full();
  void flush(bool everything);
  NeedsSorting out_of_order(int64_t time);
  void check_tie(uint8_t kind, int64_t time);
  static void merge(const Key* a, const Key* b, const Key* c, Key* out);
  void sort_keys();
  void in_turn();
  void note_calls();

  Output& output_;
  Bytes trace_;
  const Decompress& decompress_;
  Mode mode_;
  Translations translations_;
  Tracks tracks_;
  Descriptors descriptors_;
  Clocks clocks_;
  Importer importer_;
  std::vector<Sequence> sequences_;
  IntMap<uint32_t> sequence_index_;
  std::vector<std::unique_ptr<Generation>> generations_;
  uint64_t last_sequence_id_ = UINT64_MAX;  // none yet
  uint32_t last_sequence_ = 0;
  uint64_t last_described_ = 0;
  bool described_ids_ = false;  // the last descriptor was that of a thread or process
  size_t compressed_ = 0;  // compressed packets met

  int64_t latest_ns_ = 0;  // the latest time of any packet so far
  int64_t event_ns_ = -1;  // of the last event, and of the last thread or process descriptor
  int64_t thread_ns_ = -1;
  int64_t horizon_ns_ = 0;   // nothing earlier is expected
  int64_t imported_ns_ = 0;  // and of what has been imported
  std::vector<Bytes> deferred_;
  Column<Record> records_, left_;
  std::vector<PlainEvent> plain_, left_plain_;  // beside `records_`, as long as few wait
  Column<Key> keys_, spare_;
  size_t sorted_ = 0;  // keys in order at the front
  std::vector<Extra> extras_;
  Event event_;  // the event at hand, and its extra values
  std::vector<double> extra_values_;
  std::vector<ClockReading> readings_;
};

}  // namespace profiler::trace
