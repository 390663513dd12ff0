#include "tracks.hpp"

#include <tuple>

namespace profiler::trace {

namespace {

constexpr size_t kMaxAncestors = 100;
constexpr uint32_t kNoLane = UINT32_MAX;
constexpr uint64_t kGlobalInstants = 1;

uint64_t set_key(Scope scope, int32_t member, uint64_t parent, Merge merge, StringId key) {
  uint64_t hash = combine(1, static_cast<uint64_t>(scope));
  hash = combine(hash, static_cast<uint64_t>(member));
  hash = combine(hash, parent);
  hash = combine(hash, static_cast<uint64_t>(merge));
  return combine(hash, static_cast<uint64_t>(static_cast<int64_t>(key)));
}

}  // namespace

bool Descriptor::same_track(const Descriptor& o) const {
  return std::tie(parent, has_pid, pid, has_tid, tid, counter, merge, merge_key) ==
             std::tie(o.parent, o.has_pid, o.pid, o.has_tid, o.tid, o.counter, o.merge,
                      o.merge_key) &&
         (!counter ||
          std::tie(counter_category, unit_multiplier, incremental, counter_type) ==
              std::tie(o.counter_category, o.unit_multiplier, o.incremental, o.counter_type));
}

int32_t Tracks::find(uint64_t uuid) const {
  const int32_t* found = by_uuid_.find(uuid);
  return found != nullptr && at(*found).described ? *found : kNone;
}

int32_t Tracks::find_or_add(uint64_t uuid) {
  const int32_t* known = by_uuid_.find(uuid);
  if (known != nullptr) return *known;
  const auto track = static_cast<int32_t>(states_.size());
  by_uuid_.insert(uuid, track);
  states_.emplace_back();
  State& state = states_.back();
  state.descriptor.uuid = uuid;
  if (uuid == 0) state.descriptor.name = strings_.intern("Default Track");
  state.row = new_row(uuid, state.descriptor.name, TrackKind::kPlain, kNone, kNone);
  return track;
}

bool Tracks::describe(const Descriptor& descriptor, bool& changed) {
  if (descriptor.uuid == 0 && descriptor.parent != 0) return false;
  const int32_t track = find_or_add(descriptor.uuid);
  State& state = at(track);
  if (!state.described) {
    changed |= state.resolved || state.placed != Placed::kNot;
    state.described = true;
    state.descriptor = descriptor;
    TrackRow& row = row_at(state.row);
    row.name = descriptor.name;
    row.unit = descriptor.unit;
    row.kind = descriptor.has_tid   ? TrackKind::kThread
               : descriptor.has_pid ? TrackKind::kProcess
               : descriptor.counter ? TrackKind::kCounter
                                    : TrackKind::kPlain;
    if (descriptor.counter) row.kind = TrackKind::kCounter;
    return true;
  }
  if (!state.descriptor.same_track(descriptor)) return false;
  const bool renames = descriptor.merge == Merge::kNever || state.descriptor.name == kNull;
  if (descriptor.name != kNull && renames && descriptor.name != state.descriptor.name) {
    changed |= state.placed != Placed::kNot && descriptor.merge != Merge::kNever;
    state.descriptor.name = descriptor.name;
    row_at(state.row).name = descriptor.name;
  }
  return true;
}

bool Tracks::hierarchy_is_valid(uint64_t uuid) const {
  for (size_t depth = 0; depth < kMaxAncestors; ++depth) {
    if (uuid == 0) return true;
    const int32_t* track = by_uuid_.find(uuid);
    if (track == nullptr || (depth > 0 && !at(*track).described && !at(*track).resolved)) {
      return false;
    }
    uuid = at(*track).descriptor.parent;
  }
  return false;
}

bool Tracks::is_global(int32_t track) const {
  uint64_t uuid = at(track).descriptor.uuid;
  if (!hierarchy_is_valid(uuid)) return false;
  for (; uuid != 0; uuid = at(*by_uuid_.find(uuid)).descriptor.parent) {
    const Descriptor& about = at(*by_uuid_.find(uuid)).descriptor;
    if (about.has_pid || about.has_tid || about.name == kNull) return false;
  }
  return true;
}

bool Tracks::resolve_slowly(int32_t track) {
  State& state = at(track);
  const bool valid = hierarchy_is_valid(state.descriptor.uuid) && resolve_as(state, track);
  at(track).resolved = valid;  // what is missing now may still come
  return valid;
}

bool Tracks::resolve_as(State& state, int32_t track) {
  Descriptor& about = state.descriptor;
  if (about.synthetic && about.has_tid && about.has_pid) {
    about.tid = synthetic_tid(about.tid, about.pid);
    about.synthetic = false;
  }
  const uint64_t uuid = about.uuid;
  int32_t parent = kNone;
  if (about.parent != 0) {
    parent = *by_uuid_.find(about.parent);
    if (!resolve(parent)) return false;
  }
  State& self = at(track);
  if (about.has_tid) {
    int32_t thread = processes_.thread(about.tid, about.pid);
    const auto [owner, fresh] = uuids_of_threads_.insert(static_cast<uint64_t>(thread), uuid);
    if (!fresh) {
      // One uuid a thread: another one means that the tid is used again. (The new thread is
      // nobody's yet: trace_processor gives it to a third uuid, too.)
      *owner = uuid;
      thread = processes_.restart_thread(about.tid, about.pid);
    }
    self.scope = Scope::kThread;
    self.thread = thread;
    self.root = true;
  } else if (about.has_pid) {
    int32_t process = processes_.process(about.pid);
    const auto [owner, fresh] = uuids_of_processes_.insert(static_cast<uint64_t>(process), uuid);
    if (!fresh) {
      *owner = uuid;
      process = processes_.restart_process(about.pid);
    }
    self.scope = Scope::kProcess;
    self.process = process;
    self.root = true;
  } else if (parent != kNone) {
    self.scope = at(parent).scope;
    self.thread = at(parent).thread;
    self.process = at(parent).process;
  }
  if (self.thread != kNone) self.process = processes_.thread_row(self.thread).process;
  TrackRow& row = row_at(self.row);
  row.thread = self.thread;
  row.process = self.process;
  return true;
}

int32_t Tracks::new_row(uint64_t uuid, StringId name, TrackKind kind, int32_t thread,
                        int32_t process) {
  rows_.push_back({uuid, name, kNull, kNone, thread, process, kind});
  return static_cast<int32_t>(rows_.size() - 1);
}

int32_t Tracks::thread_row(int32_t thread) {
  const auto [row, fresh] = rows_of_threads_.insert(static_cast<uint64_t>(thread), kNone);
  if (fresh) {
    *row = new_row(0, kNull, TrackKind::kThread, thread, processes_.thread_row(thread).process);
  }
  return *row;
}

void Tracks::take_row(State& state, int32_t row, StringId name) {
  state.placed = Placed::kRow;
  state.target = row;
  if (row == state.row) {
    state.row_taken = true;
    row_at(row).name = name;
  }
}

// Interns a parent track, which may need a lane of its set to be somebody's parent.
int32_t Tracks::parent_row(int32_t track) {
  if (at(track).placed == Placed::kNot && !place(track, kNull)) return kNone;
  State& state = at(track);
  if (state.placed == Placed::kRow) return state.target;
  Set& set = sets_[static_cast<size_t>(state.target)];
  if (set.lanes.empty()) {
    const uint32_t lane = lane_for(set, 0, kNoLane);
    take_or_leave(set, lane, Use::kInstant);
    return lane_row(track, lane);
  }
  return set.lanes.front().row;
}

// Decides where events of the track go: on a row, or on one of a set of rows.
bool Tracks::place(int32_t track, StringId event_name) {
  if (!resolve(track)) return false;
  const uint64_t parent_uuid = at(track).descriptor.parent;
  bool below = false;
  if (parent_uuid != 0) {
    const int32_t parent = *by_uuid_.find(parent_uuid);
    below = parent_row(parent) != kNone;
  }
  State& state = at(track);
  const Descriptor& about = state.descriptor;
  const bool of_process = state.scope == Scope::kProcess && (state.root || below);
  const auto translated = [&](StringId raw) {
    return of_process ? translations_.process_track(raw) : raw;
  };
  if (state.root) {
    if (state.scope == Scope::kThread && !about.counter && !about.separate) {
      const auto [row, fresh] =
          rows_of_threads_.insert(static_cast<uint64_t>(state.thread), state.row);
      take_row(state, *row, about.name);
    } else {
      take_row(state, state.row, translated(about.name));
    }
    return true;
  }
  const StringId name = translated(about.name == kNull ? event_name : about.name);
  if (about.counter || about.merge == Merge::kNever) {
    take_row(state, state.row, about.counter ? translated(about.name) : name);
    return true;
  }
  const Scope scope = below ? state.scope : Scope::kGlobal;
  const int32_t member = scope == Scope::kThread ? state.thread : state.process;
  const StringId key = about.merge == Merge::kByKey ? about.merge_key : name;
  state.placed = Placed::kSet;
  state.set_name = name;
  state.target = set_of(
      set_key(scope, scope == Scope::kGlobal ? kNone : member, parent_uuid, about.merge, key));
  return true;
}

int32_t Tracks::set_of(uint64_t key) {
  const auto [set, fresh] = sets_by_key_.insert(key, static_cast<int32_t>(sets_.size()));
  if (fresh) sets_.emplace_back();
  return *set;
}

int32_t Tracks::row_slowly(int32_t track, StringId event_name, Use use) {
  if (at(track).placed == Placed::kNot && !place(track, event_name)) return kNone;
  State& state = at(track);
  if (state.placed == Placed::kRow) return state.target;
  if (use == Use::kWhole) return kNone;
  Set& set = sets_[static_cast<size_t>(state.target)];
  state.lane = use_lane(set, static_cast<int64_t>(state.descriptor.uuid), state.lane, use);
  return lane_row(track, state.lane);
}

int32_t Tracks::lane_row(int32_t track, uint32_t lane) {
  State& state = at(track);
  int32_t& row = sets_[static_cast<size_t>(state.target)].lanes[lane].row;
  if (row != kNone) return row;
  if (!state.row_taken) {
    state.row_taken = true;
    row_at(state.row).name = state.set_name;
    row = state.row;
  } else {
    row = new_row(state.descriptor.uuid, state.set_name, TrackKind::kPlain, state.thread,
                  state.process);
    row_at(row).parent = row_at(state.row).parent;
  }
  return row;
}

// The lane that `owner` has, else the first that nobody uses, else a new one. An owner has at
// most one lane, and `hint` is the one it had last: it may have been taken over since.
uint32_t Tracks::lane_for(Set& set, int64_t owner, uint32_t hint) {
  if (hint < set.lanes.size() && set.lanes[hint].owner == owner) return hint;
  while (!set.free.empty()) {
    const uint32_t lane = set.free.top();
    set.free.pop();
    set.lanes[lane].listed = false;
    if (set.lanes[lane].open > 0) continue;
    set.lanes[lane].owner = owner;
    return lane;
  }
  set.lanes.push_back({owner, 0, kNone, false});
  return static_cast<uint32_t>(set.lanes.size() - 1);
}

uint32_t Tracks::use_lane(Set& set, int64_t owner, uint32_t hint, Use use) {
  const uint32_t lane = lane_for(set, owner, hint);
  take_or_leave(set, lane, use);
  return lane;
}

int32_t Tracks::async_row(StringId name, int32_t process, int64_t id, bool of_process,
                          StringId scope, Use use) {
  if (of_process) name = translations_.process_track(name);
  const uint64_t owner =
      of_process ? combine(static_cast<uint64_t>(process) + 1, static_cast<uint64_t>(id))
                 : combine(0, static_cast<uint64_t>(id));
  // All events of an id go to the set that its first event was named after.
  const StringId first = *async_names_.insert(owner, name).first;
  uint64_t key = combine(of_process ? 2 : 3, static_cast<uint64_t>(of_process ? process : 0));
  key = combine(key, static_cast<uint64_t>(static_cast<int64_t>(scope)));
  key = combine(key, static_cast<uint64_t>(static_cast<int64_t>(first)));
  const int32_t set_index = set_of(key);
  const auto [hint, fresh] = async_lanes_.insert(combine(key, static_cast<uint64_t>(id)), kNoLane);
  Set& set = sets_[static_cast<size_t>(set_index)];
  *hint = use_lane(set, id, *hint, use);
  int32_t& row = set.lanes[*hint].row;
  if (row == kNone) {
    row = new_row(0, name, TrackKind::kPlain, kNone, of_process ? process : kNone);
  }
  return row;
}

int32_t Tracks::global_instants_row() {
  const auto [row, fresh] = special_rows_.insert(kGlobalInstants, kNone);
  if (fresh) *row = new_row(0, kNull, TrackKind::kPlain, kNone, kNone);
  return *row;
}

int32_t Tracks::process_instants_row(int32_t process) {
  const auto [row, fresh] = special_rows_.insert(combine(2, static_cast<uint64_t>(process)), kNone);
  if (fresh) *row = new_row(0, kNull, TrackKind::kPlain, kNone, process);
  return *row;
}

int32_t Tracks::thread_counter_row(int32_t thread, bool instructions) {
  const uint64_t key = combine(instructions ? 3 : 4, static_cast<uint64_t>(thread));
  const auto [row, fresh] = special_rows_.insert(key, kNone);
  if (fresh) {
    const StringId name =
        strings_.intern(instructions ? "thread_instruction_count" : "thread_time");
    *row = new_row(0, name, TrackKind::kCounter, thread, processes_.thread_row(thread).process);
  }
  return *row;
}

std::vector<TrackRow> Tracks::finish() {
  for (const State& state : states_) {
    const uint64_t parent = state.descriptor.parent;
    const int32_t* above = parent != 0 ? by_uuid_.find(parent) : nullptr;
    row_at(state.row).parent = above ? at(*above).row : kNone;
  }
  for (TrackRow& row : rows_) {
    if (row.uuid == 0) continue;
    row.parent = row_at(at(*by_uuid_.find(row.uuid)).row).parent;
  }
  return std::move(rows_);
}

}  // namespace profiler::trace
