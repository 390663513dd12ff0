// Which Perfetto track each slice of a file stands on, and in which order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace profiler::trace::encode {

constexpr int64_t kUnclosed = -1;  // the duration and the end of a slice that never closed

// The command columns, as views: `rows` values each.
struct Commands {
  size_t rows = 0;
  const int32_t* track = nullptr;
  const int32_t* layer = nullptr;
  const int32_t* command_index = nullptr;
  const int32_t* op_type = nullptr;
  const int32_t* role = nullptr;
  const int32_t* shapes = nullptr;
  const int32_t* stage = nullptr;
  const int32_t* step = nullptr;
  const int32_t* pipeline = nullptr;  // these are null where no command has one
  const int32_t* kernel = nullptr;
  const int32_t* module = nullptr;
  const int32_t* name = nullptr;  // of the slice; 0 where that is the layer
  const int64_t* start_ns = nullptr;
  const int64_t* duration_ns = nullptr;
  const int64_t* bytes_read = nullptr;
  const int64_t* bytes_written = nullptr;
  const int64_t* flops = nullptr;

  // The code of what a command's slice is called.
  int32_t name_of(size_t row) const {
    return name != nullptr && name[row] != 0 ? name[row] : layer[row];
  }
};

// A slice that is no command: a call or a span. `event` is what its TrackEvent holds beside type,
// name and category.
struct Extra {
  uint32_t track = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  std::string name;
  std::string event;
};

// Commands and extras under one numbering: commands first.
struct Slices {
  Commands commands;
  std::vector<Extra> extras;

  size_t size() const { return commands.rows + extras.size(); }
  bool is_command(uint32_t row) const { return row < commands.rows; }
  const Extra& extra(uint32_t row) const { return extras[row - commands.rows]; }
  uint32_t track(uint32_t row) const {
    return is_command(row) ? static_cast<uint32_t>(commands.track[row]) : extra(row).track;
  }
  int64_t start(uint32_t row) const {
    return is_command(row) ? commands.start_ns[row] : extra(row).start_ns;
  }
  int64_t end(uint32_t row) const {
    if (!is_command(row)) return extra(row).end_ns;
    const int64_t duration = commands.duration_ns[row];
    if (duration == kUnclosed) return kUnclosed;
    return commands.start_ns[row] + (duration > 0 ? duration : 0);
  }
};

// Slices of one Perfetto track must nest. Where commands of a track overlap without nesting, the
// later one goes to a further lane: a Perfetto track of its own under the same name and parent.
// A slice that never closed gets a lane of its own, so that nothing seems to lie in it.
struct Lanes {
  std::vector<uint32_t> order;    // rows as they begin, parents before children
  std::vector<uint32_t> lane_of;  // of each place in `order`
  std::vector<uint32_t> track_of;  // of each lane
  std::vector<bool> in_microseconds;  // of each lane: its times differ by whole microseconds …
  int64_t residue_ns = 0;             // … and leave this when divided by 1000
};

Lanes place(const Slices& slices, size_t track_count);

}  // namespace profiler::trace::encode
