#include "slices.hpp"

namespace profiler::trace {

void Slices::pop(Stack& stack) {
  if (stack.entries.back().duration != kOpen) --stack.ended;
  stack.entries.pop_back();
}

void Slices::set_duration(Entry& entry, int64_t duration) {
  if (duration < 0) duration = 0;  // absurd times that wrapped around
  entry.duration = duration;
  if (is_mark(entry.ref)) {
    closed_marks.emplace_back(entry.ref, duration);
  } else {
    output_.slices.duration_ns[static_cast<size_t>(entry.ref)] = duration;
  }
}

// Takes what is over at `time` off the stack. False where a slice of known duration would only
// partly overlap the ones that are left.
bool Slices::make_room(Stack& stack, int64_t time, int64_t duration) {
  if (stack.ended == 0) return true;
  bool open_above = false;
  for (size_t at = stack.entries.size(); at-- > 0;) {
    const Entry entry = stack.entries[at];
    if (entry.duration == kOpen) {
      open_above = true;
      continue;
    }
    const int64_t end = wrap_add(entry.start, entry.duration);
    if (open_above) {
      if (time <= end) continue;
      // Slices inside one that is over are over, too, although nobody ended them.
      while (stack.entries.size() > at + 1) {
        Entry& inner = stack.entries.back();
        if (inner.duration == kOpen) {
          set_duration(inner, wrap_sub(end, inner.start));
          ++stack.ended;
        }
        pop(stack);
      }
      pop(stack);
      open_above = false;
      continue;
    }
    // Intervals are closed on the left and open on the right; moments only stack on moments.
    if (end < time || (end == time && !(entry.duration == 0 && duration == 0))) {
      pop(stack);
      continue;
    }
    if (duration == kOpen) continue;
    if (time < end && wrap_add(time, duration) > end) return false;
  }
  return true;
}

bool Slices::push(int64_t time, int32_t track, StringId category, StringId name, int64_t duration,
                  SliceRef ref) {
  Stack& stack = stack_of(track);
  if (stack.entries.size() >= kMaxDepth) {
    output_.drop(Drop::kDepth);
    return false;
  }
  stack.entries.push_back({time, duration, ref, name, category});
  if (duration != kOpen) ++stack.ended;
  return true;
}

SliceRef Slices::begin_slowly(int64_t time, int32_t track, StringId category, StringId name,
                              int64_t duration) {
  Stack& stack = stack_of(track);
  if (!make_room(stack, time, duration)) {
    output_.drop(Drop::kOverlap);
    return kNoSlice;
  }
  SliceTable& slices = output_.slices;
  const int32_t row = slices.add(track, time, duration, name, category);
  const size_t depth = stack.entries.size();
  const SliceRef parent = depth == 0 ? kNoSlice : stack.entries.back().ref;
  if (!push(time, track, category, name, duration, row)) return kNoSlice;
  slices.set_parent(static_cast<size_t>(row), static_cast<int32_t>(depth), parent);
  return row;
}

void Slices::begin_mark(int64_t time, int32_t track, StringId category, StringId name,
                        SliceRef ref) {
  make_room(stack_of(track), time, kOpen);
  push(time, track, category, name, kOpen, ref);
}

SliceRef Slices::end_slowly(int64_t time, int32_t track, StringId category, StringId name) {
  Stack& stack = stack_of(track);
  make_room(stack, time, kOpen);
  for (size_t at = stack.entries.size(); at-- > 0;) {
    Entry& entry = stack.entries[at];
    if (entry.duration != kOpen) continue;
    if (category != kNull && category != entry.category) continue;
    if (name != kNull && entry.name != kNull && name != entry.name) continue;
    set_duration(entry, wrap_sub(time, entry.start));
    ++stack.ended;
    const SliceRef ref = entry.ref;
    if (at + 1 == stack.entries.size()) pop(stack);
    return ref;
  }
  ++output_.unmatched_ends;
  return kNoSlice;
}

void Flows::connect(const Point& from, const Point& to) {
  if (from.slice < 0 || to.slice < 0) return;  // calls and spans are no rows
  output_.flows.source.push(from.slice);
  output_.flows.target.push(to.slice);
}

void Flows::open(SliceRef slice, int64_t start, uint64_t id) { active_.insert(id, {slice, start}); }

void Flows::step(SliceRef slice, int64_t start, uint64_t id) {
  Point* last = active_.find(id);
  if (last == nullptr) return;
  const Point here{slice, start};
  // A slice that is open for longer is where the flow comes from, whatever was read first.
  if (last->start > start) {
    connect(here, *last);
  } else {
    connect(*last, here);
  }
  *last = here;
}

void Flows::end(SliceRef slice, int64_t start, uint64_t id, bool close) {
  const Point* last = active_.find(id);
  if (last == nullptr) return;
  const Point there = *last, here{slice, start};
  if (close) active_.erase(id);
  if (there.start > start && !there.own) {
    connect(here, there);
  } else {
    connect(there, here);
  }
}

void Flows::pass(SliceRef slice, int64_t start, uint64_t id, bool own) {
  if (own) {
    if (const Point* target = early_.find(id)) {
      connect({slice, start}, *target);
      early_.erase(id);
      return;
    }
  }
  const auto [point, fresh] = active_.insert(id, {slice, start, own});
  if (!fresh) step(slice, start, id);
}

void Flows::finish(SliceRef slice, int64_t start, uint64_t id, bool own) {
  if (own && active_.find(id) == nullptr) {
    early_.insert(id, {slice, start});
  } else {
    end(slice, start, id, true);
  }
}

uint64_t Flows::legacy_id(uint64_t id, StringId category, StringId name) {
  uint64_t key = combine(id, static_cast<uint64_t>(static_cast<int64_t>(category)));
  key = combine(key, static_cast<uint64_t>(static_cast<int64_t>(name)));
  const auto [number, fresh] = legacy_ids_.insert(key, next_legacy_id_);
  if (fresh) ++next_legacy_id_;
  return *number;
}

void Flows::end_at_next_slice(int32_t track, uint64_t id) {
  pending_.insert(static_cast<uint64_t>(track), {}).first->push_back(id);
  has_pending_ = true;
}

void Flows::bind_pending(int32_t track, SliceRef slice) {
  std::vector<uint64_t>* ids = pending_.find(static_cast<uint64_t>(track));
  if (ids == nullptr) return;
  for (const uint64_t id : *ids) {
    const Point* from = active_.find(id);
    if (from != nullptr) connect(*from, {slice, 0});
  }
  pending_.erase(static_cast<uint64_t>(track));
}

}  // namespace profiler::trace
