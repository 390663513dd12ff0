// Any bytes → columns that hold together, within the memory that the reader promises.
#include <cstdlib>
#include <deque>

#include "check_output.hpp"
#include "encode_wire.hpp"
#include "memory.hpp"
#include "read_trace.hpp"

namespace profiler::fuzz {
namespace {

using namespace trace;
using encode::Message;

// What `profiler/trace/reader.py` promises: this many times the size of the unpacked trace. The
// rest is what a trace of no size takes: one block of each column, Chrome's known messages.
constexpr size_t kFactor = 64;
constexpr size_t kLeast = 3 << 20;
constexpr size_t kMostUnpacked = 1 << 14;

// Unpacks without a library, so that mutations reach what is packed: a deflate packet is its first
// byte, how often the rest is repeated; a Zstandard packet is itself.
class Unpacker {
 public:
  Bytes get(Compression how, Bytes packed, size_t number) {
    if (number >= parts_.size()) parts_.push_back(unpack(how, packed));
    const std::vector<uint8_t>& part = parts_[number];
    return {part.empty() ? nullptr : part.data(), part.size()};
  }
  size_t size() const { return size_; }

 private:
  std::vector<uint8_t> unpack(Compression how, Bytes packed) {
    std::vector<uint8_t> part;
    size_t repeats = 1;
    if (how == Compression::kDeflate && packed.size > 0) {
      repeats = *packed.data++;
      --packed.size;
    }
    for (; repeats > 0 && size_ + packed.size <= kMostUnpacked; --repeats) {
      part.insert(part.end(), packed.data, packed.data + packed.size);
      size_ += packed.size;
    }
    part.shrink_to_fit();  // the sanitizer sees where it ends
    return part;
  }

  std::deque<std::vector<uint8_t>> parts_;
  size_t size_ = 0;
};

// Columns, and what their texts may stand in.
struct Reading {
  Unpacker unpacker;
  std::unique_ptr<Output> output;
};

Reading read(Bytes trace, Mode first) {
  Reading reading;
  Unpacker& unpacker = reading.unpacker;
  std::unique_ptr<Output>& output = reading.output;
  const Decompress decompress = [&](Compression how, Bytes packed, size_t number) {
    return unpacker.get(how, packed, number);
  };
  start_counting_memory();
  try {
    output = read_trace(trace, decompress, first);
  } catch (const TooManyTracks&) {
  }
  const size_t most = stop_counting_memory(), size = trace.size + unpacker.size();
  if (std::getenv("PROFILE_SD3_FUZZ_MEMORY")) {
    std::fprintf(stderr, "%zu bytes, %zu unpacked: %zu held\n", trace.size, size, most);
  }
  check(most <= kFactor * size + kLeast, "memory is within its bound");
  if (output) check_output(*output, trace.size);
  return reading;
}

// The same packets, each with a field that nobody knows: the reader's short way for packets that
// have nothing unusual is closed to them.
std::vector<uint8_t> made_unusual(Bytes trace) {
  const std::string_view field("\xA0\x1F\x00", 3);
  Message result;
  Field packet;
  Reader reader(trace);
  while (reader.next(packet)) {
    if (packet.number != 1 || !packet.is(kBytes)) return {};
    Field part;
    Reader parts(packet);
    while (parts.next(part)) {
    }
    if (parts.bad()) return {};  // it would end otherwise
    result.bytes(1, std::string(packet.text()).append(field));
  }
  if (reader.bad()) return {};  // a field that only the trace's own reader skips
  return {result.wire().begin(), result.wire().end()};
}

// Whether no bound was met that depends on the size of the trace: those are wider for a larger one.
bool is_unbounded(const Output& output, size_t size) {
  return size <= 1 << 16 && output.dropped[static_cast<size_t>(Drop::kArgument)] == 0;
}

}  // namespace
}  // namespace profiler::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using profiler::trace::Mode;
  profiler::fuzz::Reading readings[3];
  for (const Mode first : {Mode::kDirect, Mode::kWindowed, Mode::kSorted}) {
    readings[static_cast<size_t>(first)] = profiler::fuzz::read({data, size}, first);
  }
  if (!readings[0].output) return 0;
  const auto unusual = profiler::fuzz::made_unusual({data, readings[0].output->whole});
  if (unusual.empty() || !profiler::fuzz::is_unbounded(*readings[0].output, size)) return 0;
  const auto other = profiler::fuzz::read({unusual.data(), unusual.size()}, Mode::kDirect);
  if (other.output) profiler::fuzz::check_same(*readings[0].output, *other.output);
  return 0;
}
