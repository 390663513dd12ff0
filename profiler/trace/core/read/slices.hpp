// Begins and ends become slices; flows connect them.
#pragma once

#include <cstdint>
#include <vector>

#include "output.hpp"

namespace profiler::trace {

// A slice by row; calls and spans, which are no rows, by `mark`.
using SliceRef = int32_t;
constexpr SliceRef kNoSlice = INT32_MIN;
inline SliceRef mark(size_t number) { return -static_cast<SliceRef>(number) - 2; }
inline size_t mark_number(SliceRef ref) { return static_cast<size_t>(-(ref + 2)); }
inline bool is_mark(SliceRef ref) { return ref < -1; }

constexpr size_t kMaxDepth = 512;

class Slices {
 public:
  explicit Slices(Output& output) : output_(output) {}

  // Opens a slice, or adds one of known duration. kNoSlice where it does not nest.
  SliceRef begin(int64_t time, int32_t track, StringId category, StringId name, int64_t duration) {
    Stack& stack = stack_of(track);
    const size_t depth = stack.entries.size();
    if (stack.ended > 0 || depth >= kMaxDepth) {
      return begin_slowly(time, track, category, name, duration);
    }
    const int32_t row = output_.slices.add(track, time, duration, name, category);
    if (depth > 0) {
      const SliceRef parent = stack.entries.back().ref;
      output_.slices.set_parent(static_cast<size_t>(row), static_cast<int32_t>(depth), parent);
    }
    stack.entries.push_back({time, duration, row, name, category});
    if (duration != kOpen) ++stack.ended;
    return row;
  }
  // Opens a call or span.
  void begin_mark(int64_t time, int32_t track, StringId category, StringId name, SliceRef ref);
  // Closes the innermost open slice that fits; an event that names neither fits every slice.
  SliceRef end(int64_t time, int32_t track, StringId category, StringId name) {
    Stack& stack = stack_of(track);
    if (stack.ended > 0 || stack.entries.empty() || category != kNull || name != kNull) {
      return end_slowly(time, track, category, name);
    }
    const Entry entry = stack.entries.back();
    stack.entries.pop_back();
    if (is_mark(entry.ref)) {
      closed_marks.emplace_back(entry.ref, time < entry.start ? 0 : wrap_sub(time, entry.start));
      return entry.ref;
    }
    const int64_t duration = wrap_sub(time, entry.start);
    output_.slices.duration_ns[static_cast<size_t>(entry.ref)] = duration < 0 ? 0 : duration;
    return entry.ref;
  }
  // Ends of marks are found here: reference and end, in the order of closing.
  std::vector<std::pair<SliceRef, int64_t>> closed_marks;

  SliceRef innermost(int32_t track) const {
    const auto index = static_cast<size_t>(track);
    if (index >= stacks_.size() || stacks_[index].entries.empty()) return kNoSlice;
    return stacks_[index].entries.back().ref;
  }

 private:
  struct Entry {
    int64_t start;
    int64_t duration;
    SliceRef ref;
    StringId name;
    StringId category;
  };
  struct Stack {
    std::vector<Entry> entries;
    size_t ended = 0;  // entries whose duration is known
  };

  Stack& stack_of(int32_t track) {
    const auto index = static_cast<size_t>(track);
    if (index >= stacks_.size())
      stacks_.resize(index + 1 > 2 * stacks_.size() ? index + 1 : 2 * stacks_.size());
    return stacks_[index];
  }
  SliceRef begin_slowly(int64_t time, int32_t track, StringId category, StringId name,
                        int64_t duration);
  SliceRef end_slowly(int64_t time, int32_t track, StringId category, StringId name);
  bool make_room(Stack& stack, int64_t time, int64_t duration);
  void set_duration(Entry& entry, int64_t duration);
  bool push(int64_t time, int32_t track, StringId category, StringId name, int64_t duration,
            SliceRef ref);
  static void pop(Stack& stack);

  Output& output_;
  std::vector<Stack> stacks_;
};

class Flows {
 public:
  explicit Flows(Output& output) : output_(output) {}

  // A flow id seen on a slice: the first opens the flow, every other continues it. `own` says that
  // the event is a command of ours: the ids of those connect one source with one target, in the
  // direction that was written, whatever the times.
  void pass(SliceRef slice, int64_t start, uint64_t id, bool own);
  // A flow id that ends here, and may be used again. Without an open flow it means nothing, but
  // for a command of ours that had ended when its source began.
  void finish(SliceRef slice, int64_t start, uint64_t id, bool own);

  void open(SliceRef slice, int64_t start, uint64_t id);
  void step(SliceRef slice, int64_t start, uint64_t id);
  void end(SliceRef slice, int64_t start, uint64_t id, bool close);

  // Legacy flow events stand beside slices: they bind to the innermost open one of their track,
  // or to the next that begins there.
  uint64_t legacy_id(uint64_t id, StringId category, StringId name);
  void end_at_next_slice(int32_t track, uint64_t id);
  void slice_began(int32_t track, SliceRef slice) {
    if (has_pending_) bind_pending(track, slice);
  }

 private:
  struct Point {
    SliceRef slice;
    int64_t start;
    bool own = false;
  };

  void connect(const Point& from, const Point& to);
  void bind_pending(int32_t track, SliceRef slice);

  Output& output_;
  IntMap<Point> active_;
  IntMap<Point> early_;  // targets of ours whose source has not begun yet
  IntMap<uint64_t> legacy_ids_;
  IntMap<std::vector<uint64_t>> pending_;
  uint64_t next_legacy_id_ = 0;
  bool has_pending_ = false;
};

}  // namespace profiler::trace
