// Any bytes → columns that hold together, within the memory that the reader promises.
#include <cstdlib>
#include <deque>

#include "check_output.hpp"
#include "memory.hpp"
#include "read_trace.hpp"

namespace profiler::fuzz {
namespace {

using namespace trace;

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

void read(Bytes trace, Mode first) {
  Unpacker unpacker;
  const Decompress decompress = [&](Compression how, Bytes packed, size_t number) {
    return unpacker.get(how, packed, number);
  };
  start_counting_memory();
  std::unique_ptr<Output> output;
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
}

}  // namespace
}  // namespace profiler::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using profiler::trace::Mode;
  for (const Mode first : {Mode::kDirect, Mode::kWindowed, Mode::kSorted}) {
    profiler::fuzz::read({data, size}, first);
  }
  return 0;
}
