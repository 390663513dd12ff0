// What reading a trace costs at least: every field of every packet, event and command is looked
// at once, and nothing is kept. `benchmarks/trace.py` compiles this and measures beside it.
#include "wire.hpp"

using namespace profiler::trace;

namespace {

uint64_t sum(const Bytes& message, int depth) {
  uint64_t total = 0;
  Field field;
  for (Reader reader(message); reader.next(field);) {
    const bool nested = field.is(kBytes) && (field.number == 11 || field.number == 9900);
    total += nested && depth < 2 ? sum({field.data, field.size}, depth + 1) : field.value;
  }
  return total;
}

}  // namespace

extern "C" uint64_t read_all(const uint8_t* data, size_t size) {
  uint64_t total = 0;
  Field packet;
  for (Reader reader(data, size); reader.next(packet);) {
    if (packet.is(kBytes)) total += sum({packet.data, packet.size}, 0);
  }
  return total;
}
