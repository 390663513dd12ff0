// One TrackEvent, taken apart.
#pragma once

#include <cstdint>
#include <string_view>

#include "wire.hpp"

namespace profiler::trace {

enum EventType : uint32_t { kSliceBegin = 1, kSliceEnd = 2, kInstant = 3, kCounter = 4 };

// Which fields an event has, and what else must be looked for in its bytes.
enum EventHas : uint32_t {
  kHasType = 1 << 0,
  kHasTrack = 1 << 1,
  kHasName = 1 << 2,
  kHasCounterValue = 1 << 3,
  kHasDoubleValue = 1 << 4,
  kHasLegacy = 1 << 5,
  kHasTimeDelta = 1 << 6,
  kHasThreadTimeDelta = 1 << 7,
  kHasThreadTime = 1 << 8,
  kHasInstructionsDelta = 1 << 9,
  kHasInstructions = 1 << 10,
  kHasFlows = 1 << 11,
  kHasOldFlows = 1 << 12,
  kHasEndingFlows = 1 << 13,
  kHasOldEndingFlows = 1 << 14,
  kHasExtraCounters = 1 << 15,
  kHasAnnotations = 1 << 16,
  kHasTyped = 1 << 17,  // fields that become arguments: extensions, source locations, …
  kHasCommand = 1 << 18,
  kHasCall = 1 << 19,
  kHasSpan = 1 << 20,
};

// TrackEvent.LegacyEvent: what Chrome's JSON events were turned into.
struct LegacyEvent {
  uint64_t name_iid = 0;
  int64_t duration_us = 0;
  int64_t thread_duration_us = 0;
  uint64_t id = 0;
  uint64_t bind_id = 0;
  std::string_view id_scope;
  int32_t phase = 0;
  int32_t pid_override = 0;
  int32_t tid_override = 0;
  uint32_t flow_direction = 0;
  uint32_t instant_scope = 0;
  enum class Id : uint8_t { kNone, kLocal, kGlobal, kUnscoped } id_kind = Id::kNone;
  bool has_phase = false;
  bool has_bind_id = false;
  bool has_flow_direction = false;
  bool has_id_scope = false;
  bool has_pid_override = false;
  bool has_tid_override = false;
  bool bind_to_enclosing = false;
};

// Members are set only where `has` says so; counts always.
struct Event {
  Bytes whole;
  uint32_t has;
  uint32_t type;
  uint32_t category_iids;
  uint32_t categories;
  uint64_t track;
  uint64_t name_iid;
  uint64_t category_iid;  // the first
  std::string_view name;
  std::string_view category;  // the first
  int64_t time_delta_us;
  int64_t time_absolute_us;
  int64_t thread_time_us;
  int64_t instructions;
  int64_t counter_value;
  double double_value;
  Bytes command;
  Bytes call;
  Bytes span;
  LegacyEvent legacy;

  bool operator[](uint32_t flag) const { return (has & flag) != 0; }
};

// What most events come down to: see plain.hpp.
struct PlainEvent {
  uint64_t track;
  uint32_t has;
  uint32_t name_iid;
  uint32_t category_iid;
  uint16_t command_at;
  uint16_t command_size;
  uint8_t type;
  uint8_t category_iids;

  void put(Bytes whole, Event& event) const {
    event.whole = whole;
    event.has = has;
    event.type = type;
    event.category_iids = category_iids;
    event.categories = 0;
    event.track = track;
    event.name_iid = name_iid;
    event.category_iid = category_iid;
    if (event[kHasCommand]) event.command = {whole.data + command_at, command_size};
  }
};

// False where the bytes are no message.
bool parse_event(Bytes bytes, Event& event);

}  // namespace profiler::trace
