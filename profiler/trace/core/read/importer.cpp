#include "importer.hpp"

#include <string>
#include <tuple>

#include "chrome.hpp"

namespace profiler::trace {

namespace {

constexpr uint8_t kNamedByType = 1;
constexpr uint8_t kNamedByDescriptor = 2;
constexpr size_t kMaxCategories = 4096;  // characters of an event's categories together
enum InstantScope : uint32_t { kScopeUnspecified = 0, kScopeGlobal = 1, kScopeProcess = 2 };
enum FlowDirection : uint32_t { kFlowIn = 1, kFlowOut = 2, kFlowInOut = 3 };

bool is_async(char phase) {
  switch (phase) {
    case 'b':
    case 'e':
    case 'n':
    case 'S':
    case 'T':
    case 'p':
    case 'F': return true;
    default: return false;
  }
}

Use async_use(char phase) {
  switch (phase) {
    case 'b':
    case 'S': return Use::kBegin;
    case 'e':
    case 'T': return Use::kEnd;
    default: return Use::kInstant;
  }
}

}  // namespace

StringId Importer::category_of(const Event& event, const Generation& generation) {
  if (event.category_iids == 1 && event.categories == 0) {
    const StringId id = generation.category(event.category_iid);
    if (id != kNull) return id;
    if (mode_ != Mode::kSorted) throw NeedsSorting();
    return output_.strings.intern_copy("unknown(" + std::to_string(event.category_iid) + ")");
  }
  if (event.category_iids == 0 && event.categories <= 1) {
    return event.categories ? output_.strings.intern(event.category) : kNull;
  }
  return joined_categories(event, generation);
}

StringId Importer::joined_categories(const Event& event, const Generation& generation) {
  std::string joined;
  const auto add = [&joined](std::string_view text) {
    if (joined.size() + text.size() >= kMaxCategories) return;
    if (!joined.empty()) joined += ',';
    joined += text;
  };
  Field field;
  for (Reader reader(event.whole.data, event.whole.size); reader.next(field);) {
    if (field.number != 3 || !field.is(kVarint)) continue;
    const StringId id = generation.category(field.value);
    if (id == kNull && mode_ != Mode::kSorted) throw NeedsSorting();
    if (id != kNull) add(output_.strings[id]);
  }
  for (Reader reader(event.whole.data, event.whole.size); reader.next(field);) {
    if (field.number == 22 && field.is(kBytes)) add(field.text());
  }
  return joined.empty() ? kNull : output_.strings.intern_copy(joined);
}

StringId Importer::name_of(const Event& event, const Generation& generation) {
  uint64_t iid = event.name_iid;
  if (iid == 0 && event[kHasLegacy]) iid = event.legacy.name_iid;
  if (iid != 0) {
    const StringId id = generation.name(iid);
    if (id == kNull && mode_ != Mode::kSorted) throw NeedsSorting();
    return id;
  }
  return event[kHasName] ? output_.strings.intern(event.name) : kNull;
}

int32_t Importer::thread_of_sequence(const Generation& generation) {
  // Without the process id that a tid may have been made unique with.
  return output_.processes.thread(static_cast<uint32_t>(generation.tid),
                                  static_cast<uint32_t>(generation.pid));
}

// Finds the track, thread and process that the event belongs to.
bool Importer::associate(Current& now) {
  const Event& event = *now.event;
  const Generation& generation = *now.generation;
  now.uuid = event[kHasTrack]               ? event.track
             : generation.has_default_track ? generation.default_track
                                            : 0;
  if (now.uuid != 0 ? !associate_with_track(now) : !associate_with_thread(now)) return false;
  return !event[kHasLegacy] || !event.legacy.has_phase || associate_legacy(now);
}

bool Importer::associate_with_track(Current& now) {
  if (now.uuid != last_uuid_ || last_track_ == kNone) {
    last_uuid_ = now.uuid;
    last_track_ = tracks_.find_or_add(now.uuid);
  }
  now.track = last_track_;
  if (!tracks_.resolve(now.track)) {
    if (mode_ != Mode::kSorted) throw NeedsSorting();
    return false;
  }
  now.thread = tracks_.thread(now.track);
  now.process = tracks_.process(now.track);
  if (now.thread != kNone) return true;
  now.generation->thread_used = true;
  if (!now.generation->has_thread) return true;
  const int32_t thread = thread_of_sequence(*now.generation);
  const int32_t process = output_.processes.thread_row(thread).process;
  if (now.process == kNone || now.process == process) now.passthrough = thread;
  return true;
}

// Events without track belong to the thread of their sequence, if they are of the old kind.
bool Importer::associate_with_thread(Current& now) {
  const Event& event = *now.event;
  Generation& generation = *now.generation;
  const LegacyEvent* legacy = event[kHasLegacy] ? &event.legacy : nullptr;
  const bool other_pid = legacy && legacy->has_pid_override;
  const bool other_tid = legacy && legacy->has_tid_override;
  generation.thread_used = true;
  now.by_thread = ((!event[kHasTrack] || !event[kHasType]) && generation.has_thread) || other_pid ||
                  (other_tid && generation.has_thread);
  if (!now.by_thread) return true;
  auto pid = static_cast<uint32_t>(generation.pid);
  int64_t tid = generation.tid;
  if (other_pid) {
    pid = static_cast<uint32_t>(legacy->pid_override);
    tid = synthetic_tid(-1, pid);
  }
  if (other_tid) {
    tid = static_cast<uint32_t>(legacy->tid_override);
    if (is_synthetic_tid(generation.tid)) tid = synthetic_tid(tid, pid);
  }
  if (pid == 0 || tid == 0) return false;  // reserved for the idle process
  now.thread = output_.processes.thread(tid, pid);
  now.process = output_.processes.thread_row(now.thread).process;
  return true;
}

// Legacy phases may lie elsewhere than the track says.
bool Importer::associate_legacy(Current& now) {
  const LegacyEvent& legacy = now.event->legacy;
  const char phase = static_cast<char>(legacy.phase);
  if (is_async(phase)) {
    now.passthrough = now.thread;
    return true;
  }
  if (phase != 'i' && phase != 'I') return true;
  if (legacy.instant_scope == kScopeGlobal || legacy.instant_scope == kScopeProcess) {
    if (legacy.instant_scope == kScopeProcess && now.process == kNone) return false;
    now.passthrough = now.thread;
    now.thread = kNone;
    return true;
  }
  return now.thread != kNone;
}

char Importer::phase_of(const Current& now) const {
  const Event& event = *now.event;
  if (event[kHasLegacy] && event.legacy.has_phase) return static_cast<char>(event.legacy.phase);
  const bool on_thread = now.thread != kNone;
  switch (event.type) {
    case kSliceBegin: return on_thread ? 'B' : 'b';
    case kSliceEnd: return on_thread ? 'E' : 'e';
    case kInstant: return on_thread ? 'i' : 'n';
    default: return 0;
  }
}

// The row of a legacy asynchronous event, by its id; kNone where it has none.
int32_t Importer::async_row_of(Current& now) {
  const LegacyEvent& legacy = now.event->legacy;
  const char phase = static_cast<char>(legacy.phase);
  const bool of_process = legacy.id_kind == LegacyEvent::Id::kLocal;
  if (legacy.id_kind == LegacyEvent::Id::kNone) return kNone;
  if (of_process && now.process == kNone) return kNone;
  now.source_id = static_cast<int64_t>(legacy.id);
  now.has_source_id = true;
  const bool old = phase == 'S' || phase == 'T' || phase == 'p' || phase == 'F';
  StringId scope = old ? now.name : now.category;
  if (legacy.has_id_scope) {
    std::string text(now.category == kNull ? std::string_view() : output_.strings[now.category]);
    text += ':';
    text += legacy.id_scope;
    scope = output_.strings.intern_copy(text);
  }
  return tracks_.async_row(now.name, now.process, now.source_id, of_process, scope,
                           async_use(phase));
}

int32_t Importer::row_of(Current& now, Use use) {
  const Event& event = *now.event;
  int32_t row = kNone;
  if (!now.by_thread) {
    if (now.track == kNone) now.track = tracks_.find_or_add(now.uuid);
    row = tracks_.row(now.track, now.name, use);
  }
  if (event[kHasLegacy]) {
    const char phase = static_cast<char>(event.legacy.phase);
    if (is_async(phase)) return async_row_of(now);
    if (phase == 'i' || phase == 'I') {
      if (event.legacy.instant_scope == kScopeGlobal) return tracks_.global_instants_row();
      if (event.legacy.instant_scope == kScopeProcess) {
        return tracks_.process_instants_row(now.process);
      }
    }
  }
  return now.by_thread ? tracks_.thread_row(now.thread) : row;
}

// The numbers of our extension are somebody else's where no descriptor says that they are ours.
bool Importer::has_typed_fields(const Event& event) const {
  constexpr uint32_t kNumbersOfOurs = kHasCommand | kHasCall | kHasSpan;
  if (event[kHasTyped] || (event.has & kNumbersOfOurs) == 0) return event[kHasTyped];
  return (event[kHasCommand] && !descriptors_.ours(9900)) ||
         (event[kHasCall] && !descriptors_.ours(9901)) ||
         (event[kHasSpan] && !descriptors_.ours(9902));
}

void Importer::event(const Event& event, const EventContext& context, Generation& generation) {
  const bool has_phase = event[kHasLegacy] && event.legacy.has_phase;
  if (event.type == 0 && !has_phase) return drop(Drop::kPhase);
  Current now;
  now.event = &event;
  now.context = &context;
  now.generation = &generation;
  now.typed = has_typed_fields(event);
  met_typed_ |= now.typed;
  now.category = category_of(event, generation);
  now.name = name_of(event, generation);
  if (!associate(now)) return drop(Drop::kTrack);
  if (context.has_thread_time || context.has_instructions) add_thread_counters(now);
  if (context.extra_count > 0) add_extra_counters(now);
  if (event.type == kCounter) return counter(now);
  import_phase(now, phase_of(now));
}

void Importer::import_phase(Current& now, char phase) {
  const bool on_thread = now.thread != kNone;
  switch (phase) {
    case 'B': return on_thread ? begin(now, phase) : drop(Drop::kPhase);
    case 'E': return on_thread ? end(now) : drop(Drop::kPhase);
    case 'X': return on_thread ? complete(now) : drop(Drop::kPhase);
    case 's':
    case 't':
    case 'f': return legacy_flow(now, phase);
    case 'i':
    case 'I':
    case 'R':
    case 'n':
    case 'T':
    case 'p': return instant(now, phase);
    case 'b':
    case 'S': return begin(now, phase);
    case 'e':
    case 'F': return end(now);
    case 'M': return metadata(now);
    default: return;  // of no meaning for a timeline
  }
}

void Importer::begin(Current& now, char phase) {
  const Event& event = *now.event;
  const int32_t row = row_of(now, Use::kBegin);
  if (row == kNone) return drop(Drop::kTrack);
  if (event[kHasCall] && descriptors_.ours(9901)) return add_flows(now, begin_call(now, row));
  if (event[kHasSpan] && descriptors_.ours(9902)) return add_flows(now, begin_span(now, row));
  const SliceRef slice =
      slices_.begin(now.context->time, row, now.category, slice_name(now), kOpen);
  if (slice == kNoSlice) return;
  output_.slices.call[static_cast<size_t>(slice)] = static_cast<int32_t>(now.context->sequence);
  if (event[kHasCommand] && descriptors_.ours(9900)) {
    command_fields(static_cast<size_t>(slice), event.command);
  }
  flows_.slice_began(row, slice);
  add_args(now, slice, phase);
  add_flows(now, slice);
}

void Importer::end(Current& now) {
  const int32_t row = row_of(now, Use::kEnd);
  if (row == kNone) return drop(Drop::kTrack);
  const SliceRef slice = slices_.end(now.context->time, row, now.category, slice_name(now));
  if (slice == kNoSlice) return;
  if (!is_mark(slice)) add_args(now, slice, 'E');
  add_flows(now, slice);
}

void Importer::complete(Current& now) {
  const int64_t duration = wrap_mul(now.event->legacy.duration_us, 1000);
  if (duration < 0) return drop(Drop::kTime);
  const int32_t row = row_of(now, Use::kWhole);
  if (row == kNone) return drop(Drop::kTrack);
  const SliceRef slice =
      slices_.begin(now.context->time, row, now.category, slice_name(now), duration);
  if (slice == kNoSlice) return;
  output_.slices.call[static_cast<size_t>(slice)] = static_cast<int32_t>(now.context->sequence);
  flows_.slice_began(row, slice);
  add_args(now, slice, 'X');
  add_flows(now, slice);
}

void Importer::instant(Current& now, char phase) {
  const int32_t row = row_of(now, Use::kInstant);
  if (row == kNone) return drop(Drop::kTrack);
  const SliceRef slice = slices_.begin(now.context->time, row, now.category, slice_name(now), 0);
  if (slice == kNoSlice) return;
  output_.slices.call[static_cast<size_t>(slice)] = static_cast<int32_t>(now.context->sequence);
  output_.slices.instants.push(slice);
  flows_.slice_began(row, slice);
  add_args(now, slice, phase);
  if (phase != 'T' && phase != 'p') add_flows(now, slice);
}

void Importer::counter(Current& now) {
  if (now.track == kNone) now.track = tracks_.find_or_add(now.uuid);
  const int32_t row = now.by_thread ? tracks_.thread_row(now.thread)
                                    : tracks_.row(now.track, now.name, Use::kWhole);
  if (row == kNone) return drop(Drop::kCounter);
  const EventContext& context = *now.context;
  output_.counters.add(row, static_cast<int32_t>(context.sequence), context.time,
                       context.counter_value);
}

void Importer::add_thread_counters(Current& now) {
  if (now.thread == kNone) return;
  const auto add = [&](bool instructions, int64_t value) {
    output_.counters.add(tracks_.thread_counter_row(now.thread, instructions),
                         static_cast<int32_t>(now.context->sequence), now.context->time,
                         static_cast<double>(value));
  };
  if (now.context->has_thread_time) add(false, now.context->thread_time);
  if (now.context->has_instructions) add(true, now.context->instructions);
}

// The values were made absolute when the event was read; here their tracks are found again.
void Importer::add_extra_counters(Current& now) {
  const Event& event = *now.event;
  const auto* whole = now.generation->extra_counters.get();
  const auto* real = now.generation->extra_double_counters.get();
  uint32_t index = 0;
  for (const auto& [field_number, value_number, fallback] :
       {std::tuple(31u, 12u, whole), std::tuple(45u, 46u, real)}) {
    std::vector<uint64_t> uuids;
    Field field;
    size_t values = 0;
    for (Reader reader(event.whole.data, event.whole.size); reader.next(field);) {
      if (field.number == field_number && field.is(kVarint)) uuids.push_back(field.value);
      values += field.number == value_number && !field.is(kBytes);
    }
    if (uuids.empty() && fallback != nullptr) uuids = *fallback;
    for (size_t at = 0; at < values && at < uuids.size() && index < now.context->extra_count;
         ++at, ++index) {
      const int32_t row = tracks_.row(tracks_.find_or_add(uuids[at]), kNull, Use::kWhole);
      if (row == kNone) continue;
      output_.counters.add(row, static_cast<int32_t>(now.context->sequence), now.context->time,
                           now.context->extra_values[index]);
    }
  }
}

void Importer::legacy_flow(Current& now, char phase) {
  const LegacyEvent& legacy = now.event->legacy;
  if (legacy.id_kind != LegacyEvent::Id::kUnscoped) return drop(Drop::kTrack);
  const uint64_t id = flows_.legacy_id(legacy.id, now.category, now.name);
  const int32_t row = row_of(now, Use::kWhole);
  if (row == kNone) return drop(Drop::kTrack);
  if (phase == 'f' && !legacy.bind_to_enclosing) return flows_.end_at_next_slice(row, id);
  const SliceRef slice = slices_.innermost(row);
  if (slice == kNoSlice) return;
  const int64_t start = start_of(slice);
  if (phase == 's') flows_.open(slice, start, id);
  if (phase == 't') flows_.step(slice, start, id);
  if (phase == 'f') flows_.end(slice, start, id, false);
}

void Importer::add_flows(Current& now, SliceRef slice) {
  const Event& event = *now.event;
  const uint32_t flags = kHasFlows | kHasOldFlows | kHasEndingFlows | kHasOldEndingFlows;
  const bool legacy = event[kHasLegacy] && event.legacy.has_bind_id;
  if ((event.has & flags) == 0 && !legacy) return;
  const int64_t start = start_of(slice);
  if (legacy && event.legacy.has_flow_direction) {
    const uint64_t id = event.legacy.bind_id;
    if (event.legacy.flow_direction == kFlowOut) flows_.open(slice, start, id);
    if (event.legacy.flow_direction == kFlowInOut) flows_.step(slice, start, id);
    if (event.legacy.flow_direction == kFlowIn) flows_.end(slice, start, id, false);
  }
  // Where an event has both encodings, the newer one counts.
  const auto each = [&](uint32_t number, auto act) {
    Field field;
    for (Reader reader(event.whole.data, event.whole.size); reader.next(field);) {
      if (field.number != number) continue;
      if (!field.is(kBytes)) {
        act(field.value);
        continue;
      }
      for (size_t at = 0; at + 8 <= field.size; at += 8) {
        uint64_t id;
        std::memcpy(&id, field.data + at, 8);
        act(id);
      }
    }
  };
  const bool own = event[kHasCommand] && descriptors_.ours(9900);
  const auto pass = [&](uint64_t id) { flows_.pass(slice, start, id, own); };
  const auto finish = [&](uint64_t id) { flows_.finish(slice, start, id, own); };
  if (event[kHasFlows] || event[kHasOldFlows]) each(event[kHasFlows] ? 47 : 36, pass);
  if (event[kHasEndingFlows] || event[kHasOldEndingFlows]) {
    each(event[kHasEndingFlows] ? 48 : 42, finish);
  }
}

int64_t Importer::start_of(SliceRef slice) const {
  if (!is_mark(slice)) return output_.slices.start_ns[static_cast<size_t>(slice)];
  const size_t number = mark_number(slice);
  return number % 2 == 0 ? output_.calls[number / 2].start_ns : output_.spans[number / 2].start_ns;
}

void Importer::add_args(Current& now, int32_t slice, char phase) {
  const Event& event = *now.event;
  if (now.has_source_id) args_.add_int(slice, "legacy_trace_source_id", now.source_id);
  if (event[kHasAnnotations] || now.typed) {
    args_.add_event(slice, event, *now.generation, now.typed, now.thread != kNone);
  }
  if (phase == 'R' || phase == 'S' || phase == 'T' || phase == 'p') {
    args_.add_text(slice, "legacy_event.phase", std::string_view(&phase, 1));
  }
  if (now.passthrough != kNone) {
    args_.add_uint(slice, "legacy_event.passthrough_utid", static_cast<uint64_t>(now.passthrough));
  }
}

// Names of processes and threads that Chrome writes as events.
void Importer::metadata(Current& now) {
  if (now.name == kNull) return drop(Drop::kPhase);
  const std::string_view what = output_.strings[now.name];
  if (what != "thread_name" && what != "process_name") return;
  Field field, part;
  for (Reader reader(now.event->whole.data, now.event->whole.size); reader.next(field);) {
    if (field.number != 4) continue;
    for (Reader annotation(field); annotation.next(part);) {
      if (part.number != 6 || !part.is(kBytes) || part.size == 0) continue;
      const StringId name = text(part);
      if (what == "thread_name" && now.thread != kNone) {
        output_.processes.name_thread(now.thread, name, kNamedByType);
      }
      if (what == "process_name" && now.process != kNone) {
        output_.processes.name_process(now.process, name);
      }
    }
    return;  // only the first annotation counts
  }
}

void Importer::track_descriptor(const Bytes& descriptor) {
  Field field, part;
  Bytes thread, process;
  uint64_t uuid = 0;
  int32_t thread_type = 0, process_type = 0;
  bool synthetic = false;
  for (Reader reader(descriptor); reader.next(field);) {
    if (field.number == 1) uuid = field.value;
    if (field.number == 4 && field.is(kBytes)) thread = {field.data, field.size};
    if (field.number == 3 && field.is(kBytes)) process = {field.data, field.size};
    if (field.number != 6 && field.number != 7) continue;
    for (Reader chrome(field); chrome.next(part);) {
      if (part.number == 1) {
        (field.number == 6 ? process_type : thread_type) = static_cast<int32_t>(part.value);
      }
      if (field.number == 7 && part.number == 3) synthetic = part.boolean();
    }
  }
  const int32_t track = tracks_.find_or_add(uuid);
  if (!tracks_.resolve(track)) {
    if (mode_ != Mode::kSorted) throw NeedsSorting();
    return drop(Drop::kDescriptor);
  }
  if (thread.data != nullptr) {
    const int32_t row = thread_descriptor(thread, synthetic);
    output_.processes.name_thread(row, known_name(chrome_thread_name(thread_type)), kNamedByType);
  } else if (process.data != nullptr) {
    const int32_t row = process_descriptor(process);
    output_.processes.name_process(row, known_name(chrome_process_name(process_type)));
  }
}

int32_t Importer::thread_descriptor(const Bytes& descriptor, bool synthetic) {
  Field field;
  int64_t pid = 0, tid = 0;
  int32_t type = 0;
  StringId name = kNull;
  for (Reader reader(descriptor); reader.next(field);) {
    if (field.number == 1) pid = static_cast<int32_t>(field.value);
    if (field.number == 2) tid = static_cast<int32_t>(field.value);
    if (field.number == 4) type = static_cast<int32_t>(field.value);
    if (field.number == 5 && field.is(kBytes) && field.size > 0) name = text(field);
  }
  if (synthetic) tid = synthetic_tid(tid, pid);
  if (name == kNull) name = known_name(chrome_thread_name(type));
  const int32_t row = output_.processes.thread(tid, pid);
  output_.processes.name_thread(row, name, kNamedByDescriptor);
  return row;
}

int32_t Importer::process_descriptor(const Bytes& descriptor) {
  Field field;
  uint32_t pid = 0;
  int32_t type = 0;
  StringId name = kNull;
  for (Reader reader(descriptor); reader.next(field);) {
    if (field.number == 1) pid = static_cast<uint32_t>(field.value);
    if (field.number == 4) type = static_cast<int32_t>(field.value);
    if (field.number == 6 && field.is(kBytes) && field.size > 0) name = text(field);
  }
  const int32_t row = output_.processes.process(pid);
  output_.processes.name_process(row, name);
  output_.processes.name_process(row, known_name(chrome_process_name(type)));
  return row;
}

}  // namespace profiler::trace
