// Tracks: what descriptors say about a uuid, and on which row of the track table its events go.
//
// Two things that look the same are kept apart, as in trace_processor. A *descriptor track* is
// what a uuid stands for. A *row* is what slices lie on. A thread has one row whatever uuids
// refer to it; and plain tracks of one name below one parent share a set of rows, from which each
// uuid takes the first that is free while its slices are open.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <string_view>
#include <vector>

#include "containers.hpp"
#include "processes.hpp"
#include "strings.hpp"
#include "translations.hpp"

namespace profiler::trace {

enum class TrackKind : uint8_t { kPlain, kThread, kProcess, kCounter };

struct TrackRow {
  uint64_t uuid = 0;
  StringId name = kNull;
  StringId unit = kNull;
  int32_t parent = kNone;
  int32_t thread = kNone;
  int32_t process = kNone;
  TrackKind kind = TrackKind::kPlain;
};

enum class Scope : uint8_t { kGlobal, kThread, kProcess };
enum class Merge : uint8_t { kByName, kNever, kByKey };
enum class Use { kBegin, kEnd, kInstant, kWhole };

// What one TrackDescriptor says.
struct Descriptor {
  uint64_t uuid = 0;
  uint64_t parent = 0;
  int64_t pid = 0;
  int64_t tid = 0;
  StringId name = kNull;
  StringId merge_key = kNull;
  StringId counter_category = kNull;
  StringId unit = kNull;
  int64_t unit_multiplier = 0;
  uint8_t counter_type = 0;
  Merge merge = Merge::kByName;
  bool has_pid = false;
  bool has_tid = false;
  bool separate = false;   // a row of its own although it is a thread's
  bool synthetic = false;  // the tid is unique only within the process
  bool counter = false;
  bool incremental = false;

  bool same_track(const Descriptor& other) const;
};

class Tracks {
 public:
  Tracks(StringTable& strings, Processes& processes, const Translations& translations)
      : strings_(strings), processes_(processes), translations_(translations) {}

  // Takes note of a descriptor. `changed` tells that a track that events already lie on would
  // have been another one, had this descriptor come first. False where it contradicts an earlier
  // descriptor of its uuid, which then stays.
  bool describe(const Descriptor& descriptor, bool& changed);

  // The place of a uuid, made where nobody described it.
  int32_t find_or_add(uint64_t uuid);
  // The place of a described uuid, kNone otherwise.
  int32_t find(uint64_t uuid) const;
  const Descriptor& descriptor(int32_t track) const { return at(track).descriptor; }

  // Finds out to which thread or process the track belongs. False where its parents are unknown,
  // too many or a circle.
  bool resolve(int32_t track) { return at(track).resolved || resolve_slowly(track); }
  // Whether the track and all above it have names of their own and are no thread's or process':
  // then nothing depends on when they are met first.
  bool is_global(int32_t track) const;
  Scope scope(int32_t track) const { return at(track).scope; }
  int32_t thread(int32_t track) const { return at(track).thread; }
  int32_t process(int32_t track) const { return at(track).process; }

  // The row for an event; kNone where `resolve` fails. `event_name` names a track that nobody
  // named.
  int32_t row(int32_t track, StringId event_name, Use use) {
    State& state = at(track);
    if (state.placed == Placed::kRow) return state.target;
    if (state.placed == Placed::kSet && use != Use::kWhole) {
      Set& set = sets_[static_cast<size_t>(state.target)];
      if (state.lane < set.lanes.size()) {
        Lane& lane = set.lanes[state.lane];
        if (lane.owner == static_cast<int64_t>(state.descriptor.uuid) && lane.row != kNone) {
          take_or_leave(set, state.lane, use);
          return lane.row;
        }
      }
    }
    return row_slowly(track, event_name, use);
  }
  int32_t thread_row(int32_t thread);
  // The track of `legacy_event` phases b, e, n, S, T, p and F.
  int32_t async_row(StringId name, int32_t process, int64_t id, bool of_process, StringId scope,
                    Use use);
  int32_t global_instants_row();
  int32_t process_instants_row(int32_t process);
  // Where the legacy fields thread_time and thread_instruction_count are shown.
  int32_t thread_counter_row(int32_t thread, bool instructions);

  // Rows as they are handed out: parents resolved, threads and processes filled in.
  std::vector<TrackRow> finish();
  size_t row_count() const { return rows_.size(); }

 private:
  enum class Placed : uint8_t { kNot, kRow, kSet };
  struct State {
    Descriptor descriptor;
    int32_t row = kNone;     // its own row, taken or not
    int32_t target = kNone;  // a row or a set
    int32_t thread = kNone;
    int32_t process = kNone;
    uint32_t lane = UINT32_MAX;  // where it was last in its set
    StringId set_name = kNull;
    Scope scope = Scope::kGlobal;
    Placed placed = Placed::kNot;
    bool described = false;
    bool resolved = false;
    bool root = false;  // it is the thread or process itself, not something below it
    bool row_taken = false;
  };
  struct Lane {
    int64_t owner = 0;
    uint32_t open = 0;
    int32_t row = kNone;
    bool listed = false;  // among the free ones
  };
  struct Set {
    std::vector<Lane> lanes;
    std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> free;
  };

  State& at(int32_t track) { return states_[static_cast<size_t>(track)]; }
  const State& at(int32_t track) const { return states_[static_cast<size_t>(track)]; }
  TrackRow& row_at(int32_t row) { return rows_[static_cast<size_t>(row)]; }

  bool hierarchy_is_valid(uint64_t uuid) const;
  bool resolve_slowly(int32_t track);
  bool resolve_as(State& state, int32_t track);
  bool place(int32_t track, StringId event_name);
  void take_row(State& state, int32_t row, StringId name);
  int32_t parent_row(int32_t track);
  int32_t row_slowly(int32_t track, StringId event_name, Use use);
  int32_t new_row(uint64_t uuid, StringId name, TrackKind kind, int32_t thread, int32_t process);
  int32_t lane_row(int32_t track, uint32_t lane);
  int32_t set_of(uint64_t key);
  uint32_t lane_for(Set& set, int64_t owner, uint32_t hint);
  uint32_t use_lane(Set& set, int64_t owner, uint32_t hint, Use use);
  static void take_or_leave(Set& set, uint32_t number, Use use) {
    Lane& lane = set.lanes[number];
    if (use == Use::kBegin) ++lane.open;
    if (use == Use::kEnd && lane.open > 0) --lane.open;
    if (lane.open > 0 || lane.listed) return;
    lane.listed = true;
    set.free.push(number);
  }

  StringTable& strings_;
  Processes& processes_;
  const Translations& translations_;
  std::vector<State> states_;
  std::vector<TrackRow> rows_;
  std::vector<Set> sets_;
  IntMap<int32_t> by_uuid_;
  IntMap<int32_t> rows_of_threads_;
  IntMap<uint64_t> uuids_of_threads_;
  IntMap<uint64_t> uuids_of_processes_;
  IntMap<int32_t> sets_by_key_;
  IntMap<int32_t> special_rows_;
  IntMap<uint32_t> async_lanes_;
  IntMap<StringId> async_names_;
};

}  // namespace profiler::trace
