// Events and descriptors in order of time: what is ahead of its time waits.
#include <algorithm>

#include "reader.hpp"

namespace profiler::trace {

namespace {

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

}  // namespace

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
  keys_.push({time, static_cast<uint32_t>(records_.size())});
  if (mode_ == Mode::kWindowed) plain_.emplace_back();
  records_.push(
      {bytes.data, kind, false, static_cast<uint32_t>(bytes.size), generation, sequence, extra});
  if (mode_ != Mode::kWindowed) return;
  flush_if_full();
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
  size_t others = 0;
  for (const Key& key : keys_) others += !is_event(key);
  spare_.reserve(keys_.size());
  spare_.set_size(keys_.size());
  const Key *descriptor = spare_.data(), *const middle = descriptor + others, *event = middle;
  Key *to_descriptor = spare_.data(), *to_event = to_descriptor + others;
  for (const Key& key : keys_) *(is_event(key) ? to_event : to_descriptor)++ = key;
  Key* out = keys_.begin();
  const auto take = [&out](const Key*& from, const Key* end, const Key* other,
                           const Key* other_end) {
    const int64_t until = other == other_end ? INT64_MAX : other->time;
    while (from != end && from->time <= until) *out++ = *from++;
  };
  const Key* const end = spare_.end();
  while (descriptor != middle || event != end) {
    if (event == end || (descriptor != middle && descriptor->time <= event->time)) {
      take(descriptor, middle, event, end);
    } else {
      take(event, end, descriptor, middle);
    }
  }
}

// Merges [a, b) and [b, c). Which one is next cannot be predicted, so it is no branch.
void TraceReader::merge(const Key* a, const Key* const b, const Key* const c, Key* out) {
  const Key* other = b;
  while (a < b && other < c) {
    const bool later = other->time < a->time;
    *out++ = *(later ? other : a);
    other += later;
    a += !later;
  }
  std::copy(other, c, std::copy(a, b, out));
}

// Merges runs that are in order already, as tracers write them, until all is one run. Stable.
void TraceReader::sort_keys() {
  std::vector<size_t> runs{0};
  for (size_t at = std::max<size_t>(sorted_, 1); at < keys_.size(); ++at) {
    if (keys_[at].time < keys_[at - 1].time) runs.push_back(at);
  }
  runs.push_back(keys_.size());
  while (runs.size() > 2) {
    spare_.reserve(keys_.size());
    spare_.set_size(keys_.size());
    std::vector<size_t> merged;
    size_t run = 0;
    for (; run + 2 < runs.size(); run += 2) {
      const Key* const a = keys_.data() + runs[run];
      const Key* const b = keys_.data() + runs[run + 1];
      const Key* const c = keys_.data() + runs[run + 2];
      Key* const out = spare_.data() + runs[run];
      merged.push_back(runs[run]);
      if (b->time >= (b - 1)->time) {
        std::copy(a, c, out);
      } else {
        merge(a, b, c, out);
      }
    }
    if (run + 1 < runs.size()) {
      merged.push_back(runs[run]);
      std::copy(keys_.begin() + static_cast<ptrdiff_t>(runs[run]), keys_.end(),
                spare_.begin() + static_cast<ptrdiff_t>(runs[run]));
    }
    merged.push_back(keys_.size());
    std::swap(keys_, spare_);
    runs.swap(merged);
  }
}

void TraceReader::flush_if_full() {
  if (keys_.size() >= (horizon_ns_ > 0 ? kWindowByClock : kWindow)) flush(false);
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
  std::vector<Extra> extras;
  left_.clear();
  left_plain_.clear();
  for (size_t at = count; at < keys_.size(); ++at) {
    Record record = records_[keys_[at].record];
    left_plain_.push_back(plain_[keys_[at].record]);
    keys_[at - count] = {keys_[at].time, static_cast<uint32_t>(left_.size())};
    if (record.extra != 0) {
      if (extras.empty()) extras.emplace_back();
      extras.push_back(std::move(extras_[record.extra]));
      record.extra = static_cast<uint32_t>(extras.size() - 1);
    }
    left_.push(record);
  }
  extras_.swap(extras);
  keys_.set_size(left_.size());
  sorted_ = keys_.size();
  std::swap(records_, left_);
  plain_.swap(left_plain_);
}

}  // namespace profiler::trace
