// Plain packets, which traces mostly consist of: a time, and a begin or end with nothing but a
// track, an interned name and category, a command of ours, flows and annotations. They are taken
// apart in one pass; `parse_packet` and `parse_event` read everything.
#pragma once

#include <cstdint>
#include <cstring>

#include "event.hpp"
#include "wire.hpp"

namespace profiler::trace {

// So many bytes behind a packet may be looked at, too.
constexpr ptrdiff_t kLookahead = 16;

struct PlainPacket {
  Bytes whole;  // the event
  uint64_t timestamp;
  uint32_t sequence;
  uint32_t flags;
  PlainEvent event;
};

#if defined(_MSC_VER)
#define PROFILER_INLINE __forceinline
#else
#define PROFILER_INLINE inline __attribute__((always_inline))
#endif

// `read_varint` without a branch for each byte, and with a position behind `end` where it is cut or
// too long. Ten bytes behind `at` must be readable.
PROFILER_INLINE const uint8_t* read_varint_ahead(const uint8_t* at, const uint8_t* end,
                                                 uint64_t& value) {
  if (*at < 0x80) {
    value = *at;
    return at + 1;
  }
  uint64_t word;
  std::memcpy(&word, at, 8);  // little-endian, as is every platform we build for
  const uint64_t tops = ~word & 0x8080808080808080u;
  if (tops == 0) {
    const uint8_t* const next = read_varint(at, at + 10, value);
    return next != nullptr ? next : end + 1;
  }
  const uint64_t behind = (tops & (0 - tops)) - 1;  // the bits below the last byte's top bit
  word &= behind;
  word = (word & 0x007F007F007F007Fu) | (word & 0x7F007F007F007F00u) >> 1;
  word = (word & 0x00003FFF00003FFFu) | (word & 0x3FFF00003FFF0000u) >> 2;
  value = (word & 0x000000000FFFFFFFu) | (word & 0x0FFFFFFF00000000u) >> 4;
  const uint64_t more = (behind >> 7) & 0x0101010101010101u;  // a bit for each further byte
  return at + 1 + (more * 0x0101010101010101u >> 56);
}

// False where the event is not plain.
inline bool parse_plain_event(const uint8_t* at, const uint8_t* const end, PlainEvent& event) {
  constexpr uint8_t kType = tag(9, kVarint), kTrack = tag(11, kVarint), kName = tag(10, kVarint),
                    kCategory = tag(3, kVarint), kAnnotation = tag(4, kBytes);
  constexpr uint32_t kCommand = tag(9900, kBytes);
  constexpr uint8_t kCommandTag[] = {(kCommand & 0x7F) | 0x80, (kCommand >> 7 & 0x7F) | 0x80,
                                     kCommand >> 14};
  constexpr uint32_t kFlows = tag(47, kFixed64), kEndingFlows = tag(48, kFixed64);
  const uint8_t* const begin = at;
  uint64_t value, name = 0, category = 0, type = 0;
  event.has = 0;
  event.category_iids = 0;
  while (at < end) {
    switch (*at++) {
      case kType:
        at = read_varint_ahead(at, end, type);
        event.has |= kHasType;
        break;
      case kTrack:
        at = read_varint_ahead(at, end, event.track);
        event.has |= kHasTrack;
        break;
      case kName: at = read_varint_ahead(at, end, name); break;
      case kCategory:
        if (event.category_iids++ != 0) return false;
        at = read_varint_ahead(at, end, category);
        break;
      case kAnnotation:
        at = read_varint_ahead(at, end, value);
        if (at > end || value > static_cast<size_t>(end - at)) return false;
        event.has |= kHasAnnotations;
        at += value;
        break;
      case kCommandTag[0]:
        if (at[0] != kCommandTag[1] || at[1] != kCommandTag[2]) return false;
        at = read_varint_ahead(at + 2, end, value);
        if (at > end || value > static_cast<size_t>(end - at)) return false;
        if (at + value - begin > UINT16_MAX) return false;
        event.command_at = static_cast<uint16_t>(at - begin);
        event.command_size = static_cast<uint16_t>(value);
        event.has |= kHasCommand;
        at += value;
        break;
      case (kFlows & 0x7F) | 0x80:
        if (*at != kFlows >> 7) return false;
        event.has |= kHasFlows;
        at += 9;
        break;
      case (kEndingFlows & 0x7F) | 0x80:
        if (*at != kEndingFlows >> 7) return false;
        event.has |= kHasEndingFlows;
        at += 9;
        break;
      default: return false;
    }
  }
  event.type = static_cast<uint8_t>(type);
  event.name_iid = static_cast<uint32_t>(name);
  event.category_iid = static_cast<uint32_t>(category);
  return at == end && (type == kSliceBegin || type == kSliceEnd) && name <= UINT32_MAX &&
         category <= UINT32_MAX;
}

// False where the packet is not plain. `kLookahead` bytes behind it must be readable.
inline bool parse_plain(Bytes bytes, PlainPacket& packet) {
  constexpr uint8_t kTimestamp = tag(8, kVarint), kSequence = tag(10, kVarint),
                    kEvent = tag(11, kBytes), kFlags = tag(13, kVarint);
  enum : uint32_t { kHasTimestamp = 1, kHasSequence = 2, kHasEvent = 4 };
  const uint8_t* at = bytes.data;
  const uint8_t* const end = at + bytes.size;
  uint64_t value;
  uint32_t has = 0;
  packet.flags = 0;
  while (at < end) {
    switch (*at++) {
      case kTimestamp:
        at = read_varint_ahead(at, end, packet.timestamp);
        has |= kHasTimestamp;
        break;
      case kSequence:
        at = read_varint_ahead(at, end, value);
        packet.sequence = static_cast<uint32_t>(value);
        has |= kHasSequence;
        break;
      case kEvent:
        at = read_varint_ahead(at, end, value);
        if (at > end || value > static_cast<size_t>(end - at)) return false;
        packet.whole = {at, static_cast<size_t>(value)};
        at += value;
        if (!parse_plain_event(packet.whole.data, at, packet.event)) return false;
        has |= kHasEvent;
        break;
      case kFlags:
        at = read_varint_ahead(at, end, value);
        packet.flags = static_cast<uint32_t>(value);
        break;
      default: return false;
    }
  }
  return at == end && has == (kHasTimestamp | kHasSequence | kHasEvent);
}

}  // namespace profiler::trace
