#include "event.hpp"

namespace profiler::trace {

namespace {

bool parse_legacy(const Field& message, LegacyEvent& legacy) {
  legacy = LegacyEvent();
  Field field;
  Reader reader(message);
  while (reader.next(field)) {
    switch (field.number) {
      case 1: legacy.name_iid = field.value; break;
      case 2:
        legacy.phase = static_cast<int32_t>(field.value);
        legacy.has_phase = true;
        break;
      case 3: legacy.duration_us = field.sint(); break;
      case 4: legacy.thread_duration_us = field.sint(); break;
      case 6:
      case 10:
      case 11: {
        const auto kind = field.number == 6    ? LegacyEvent::Id::kUnscoped
                          : field.number == 11 ? LegacyEvent::Id::kGlobal
                                               : LegacyEvent::Id::kLocal;
        // An unscoped id counts before a global one, and that before a local one.
        if (kind < legacy.id_kind) break;
        legacy.id_kind = kind;
        legacy.id = field.value;
        break;
      }
      case 7:
        if (!field.is(kBytes)) return false;
        legacy.id_scope = field.text();
        legacy.has_id_scope = true;
        break;
      case 8:
        legacy.bind_id = field.value;
        legacy.has_bind_id = true;
        break;
      case 12: legacy.bind_to_enclosing = field.boolean(); break;
      case 13:
        legacy.flow_direction = static_cast<uint32_t>(field.value);
        legacy.has_flow_direction = true;
        break;
      case 14: legacy.instant_scope = static_cast<uint32_t>(field.value); break;
      case 18:
        legacy.pid_override = static_cast<int32_t>(field.value);
        legacy.has_pid_override = true;
        break;
      case 19:
        legacy.tid_override = static_cast<int32_t>(field.value);
        legacy.has_tid_override = true;
        break;
      default: break;
    }
  }
  return !reader.bad();
}

void parse_rare(const Field& field, Event& event) {
  switch (field.number) {
    case 1:
      event.time_delta_us = field.sint();
      event.has |= kHasTimeDelta;
      break;
    case 2:
      event.thread_time_us = field.sint();
      event.has |= kHasThreadTimeDelta;
      break;
    case 8:
      event.instructions = field.sint();
      event.has |= kHasInstructionsDelta;
      break;
    case 16: event.time_absolute_us = field.sint(); break;
    case 17:
      event.thread_time_us = field.sint();
      event.has |= kHasThreadTime;
      break;
    case 20:
      event.instructions = field.sint();
      event.has |= kHasInstructions;
      break;
    case 36: event.has |= kHasOldFlows; break;
    case 42: event.has |= kHasOldEndingFlows; break;
    case 12:
    case 46: event.has |= kHasExtraCounters; break;
    case 5:   // task execution
    case 21:  // log message
    case 33:  // source location
    case 34:
    case 52:  // correlation ids
    case 53:
    case 54: event.has |= kHasTyped; break;
    default:
      if (field.number >= 1000 || (field.number >= 24 && field.number <= 50)) {
        event.has |= kHasTyped;
      }
  }
}

}  // namespace

bool parse_event(Bytes bytes, Event& event) {
  event.whole = bytes;
  event.has = 0;
  event.type = 0;
  event.category_iids = event.categories = 0;
  event.name_iid = 0;
  event.time_absolute_us = 0;
  Reader reader(bytes.data, bytes.size);
  Field field;
  while (reader.next(field)) {
    const uint32_t key = tag(field.number, static_cast<Wire>(field.wire));
    switch (key) {
      case tag(9, kVarint):
        event.type = static_cast<uint32_t>(field.value);
        event.has |= kHasType;
        break;
      case tag(11, kVarint):
        event.track = field.value;
        event.has |= kHasTrack;
        break;
      case tag(10, kVarint): event.name_iid = field.value; break;
      case tag(3, kVarint):
        if (event.category_iids++ == 0) event.category_iid = field.value;
        break;
      case tag(22, kBytes):
        if (event.categories++ == 0) event.category = field.text();
        break;
      case tag(23, kBytes):
        event.name = field.text();
        event.has |= kHasName;
        break;
      case tag(4, kBytes): event.has |= kHasAnnotations; break;
      case tag(47, kFixed64):
      case tag(47, kBytes): event.has |= kHasFlows; break;
      case tag(48, kFixed64):
      case tag(48, kBytes): event.has |= kHasEndingFlows; break;
      case tag(30, kVarint):
        event.counter_value = field.sint();
        event.has |= kHasCounterValue;
        break;
      case tag(44, kFixed64):
        event.double_value = field.real();
        event.has |= kHasDoubleValue;
        break;
      case tag(6, kBytes):
        if (!parse_legacy(field, event.legacy)) return false;
        event.has |= kHasLegacy;
        break;
      case tag(9900, kBytes):
        event.command = {field.data, field.size};
        event.has |= kHasCommand;
        break;
      case tag(9901, kBytes):
        event.call = {field.data, field.size};
        event.has |= kHasCall;
        break;
      case tag(9902, kBytes):
        event.span = {field.data, field.size};
        event.has |= kHasSpan;
        break;
      default: parse_rare(field, event);
    }
  }
  return !reader.bad();
}

}  // namespace profiler::trace
