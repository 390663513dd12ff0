// Columns → packets of one sequence, a chunk at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "encode_lanes.hpp"
#include "encode_texts.hpp"
#include "encode_wire.hpp"

namespace profiler::trace::encode {

// The strings that the columns use, as they go on the wire. `names` and `numbers` are indexed by
// the code of a string; those that are not used stay empty.
struct Strings {
  std::vector<Snippet> names;        // name_iid of a command's slice
  std::vector<Snippet> numbers;      // number of a text
  std::vector<Snippet> extras;       // name_iid of each extra slice
  std::vector<Snippet> categories;   // category_iid of each track, empty for none
  std::vector<std::string> packets;  // what defines them all
};

// Which strings the columns use: as the name of how many slices, and whether as a text.
struct Usage {
  std::vector<uint32_t> names;
  std::vector<uint8_t> texts;
};

struct CounterSamples {
  uint64_t track_uuid = 0;
  std::vector<int64_t> times_ns;  // in order
  std::vector<int64_t> values;  // of reals, their bits
  bool real = false;
};

struct Dependency {
  int64_t source = 0;  // row
  int64_t target = 0;
};

// Throws std::invalid_argument where a code points outside its table.
Usage count_usage(const Commands& commands, size_t strings, size_t tracks);

// Interns what is used; `strings` need to be valid only where `usage` says so.
Strings intern(uint32_t sequence, const Usage& usage, const std::vector<std::string_view>& strings,
               const std::vector<Extra>& extras, const std::vector<std::string>& categories,
               TextTable& texts);

// Writes slices in blocks that follow each other in time. Within a block all events of one lane
// stand together behind a packet that makes the lane the sequence's default track and sets its
// clock, so that events need neither.
class Encoder {
 public:
  Encoder(uint32_t sequence, Slices slices, Strings strings, Lanes lanes,
          std::vector<CounterSamples> counters, const std::vector<Dependency>& flows);

  const Lanes& lanes() const { return lanes_; }
  int64_t base_ns() const { return base_ns_; }  // no event is earlier
  void set_uuids(std::vector<uint64_t> uuids) { uuids_ = std::move(uuids); }

  // Appends whole packets, about 64 to 300 KB. Nothing: it was all.
  void next(ByteBuffer& out);

 private:
  struct OpenSlice {
    int64_t end_ns;
    uint32_t place;
  };
  struct Lane {
    std::vector<uint32_t> places;  // of the block at hand
    std::vector<OpenSlice> open;
  };
  struct FlowEnd {
    uint32_t place;
    bool at_end;  // of the slice: its end event takes it, not its begin
    bool terminating;
    uint64_t id;
  };

  void connect(const std::vector<Dependency>& flows);
  bool begins_before(uint32_t place, uint32_t other) const;
  uint8_t* put_flows(uint8_t* at, uint32_t place, bool at_end) const;
  size_t flows_of(uint32_t place) const;

  bool write_strings(ByteBuffer& out);
  bool write_samples(ByteBuffer& out);
  bool write_block(ByteBuffer& out);
  void close_all(ByteBuffer& out);
  void begin(ByteBuffer& out, uint32_t lane, uint32_t place);
  void close(ByteBuffer& out, uint32_t lane, int64_t horizon_ns);
  uint8_t* put_command(uint8_t* at, uint32_t row) const;
  void enter(ByteBuffer& out, uint64_t track_uuid, bool in_microseconds);
  void packet(ByteBuffer& out, const uint8_t* event, size_t size, int64_t time_ns);

  uint32_t sequence_;
  Slices slices_;
  Strings strings_;
  Lanes lanes_;
  std::vector<CounterSamples> counters_;
  std::vector<uint64_t> uuids_;
  std::vector<FlowEnd> flow_ends_;    // by place
  std::vector<uint32_t> flows_from_;  // of each place: the first of its flow ends

  Snippet prefix_;  // the sequence id of a packet
  std::vector<Lane> state_;
  std::vector<uint32_t> touched_;  // lanes of the block at hand
  std::vector<uint8_t> scratch_;
  int64_t base_ns_ = 0;
  int64_t block_ns_ = 0;  // no event of the block is earlier
  int64_t clock_ns_ = 0;  // of the last event
  int64_t unit_ns_ = 1;
  uint64_t current_ = 0;  // the default track
  size_t strings_written_ = 0;
  size_t counters_written_ = 0;
  size_t samples_written_ = 0;  // of the counter at hand
  size_t slices_written_ = 0;
};

}  // namespace profiler::trace::encode
