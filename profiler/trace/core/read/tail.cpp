#include "tail.hpp"

#include <algorithm>
#include <cstdint>

namespace profiler::trace {

namespace {

#ifndef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
constexpr size_t kTail = 1 << 20;
#else  // so that small inputs have one
constexpr size_t kTail = 256;
#endif
constexpr size_t kTried = 1 << 16;   // places where a packet may begin
constexpr int kSteady = 32;          // packets in a row: then they are some
constexpr int64_t kBack = 1'000'000;  // ns; lanes of one block begin within a microsecond

bool are_packets(Reader reader) {
  Field packet;
  for (int seen = 0; seen < kSteady; ++seen) {
    if (!reader.next(packet)) return seen > 0 && !reader.bad();
    if (packet.number != 1 || !packet.is(kBytes)) return false;
  }
  return true;
}

// Notes the first reading of a packet's clock snapshot; false where it has none.
bool snapshot_of(const Field& packet, uint64_t& clock, int64_t& time) {
  Field part, reading, value;
  for (Reader parts(packet); parts.next(part);) {
    if (part.number != 6 || !part.is(kBytes)) continue;
    Reader readings(part);
    if (!readings.next(reading) || reading.number != 1) return false;
    clock = 0;
    time = -1;
    for (Reader values(reading); values.next(value);) {
      if (value.number == 1 && value.is(kVarint)) clock = value.value;
      if (value.number == 2 && value.is(kVarint)) time = value.sint();
    }
    return time >= 0;
  }
  return false;
}

}  // namespace

bool ends_early(const Bytes& trace) {
  if (trace.size < 8 * kTail) return false;
  const uint8_t* at = trace.data + trace.size - kTail;
  const uint8_t* const end = trace.data + trace.size;
  const uint8_t* const last = at + std::min(kTail, kTried);
  while (at < last && !are_packets({at, static_cast<size_t>(end - at)})) ++at;
  if (at == last) return false;
  uint64_t clock = 0, first_clock = 0;
  int64_t time = 0, latest = -1;
  Field packet;
  for (Reader packets(at, static_cast<size_t>(end - at)); packets.next(packet);) {
    if (packet.number != 1 || !snapshot_of(packet, clock, time)) continue;
    if (latest < 0) first_clock = clock;
    if (clock != first_clock) continue;
    if (time < latest - kBack) return true;
    latest = std::max(latest, time);
  }
  return false;
}

}  // namespace profiler::trace
