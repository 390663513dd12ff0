// Any bytes → nodes of a profile that hold together, or refused with nothing added.
#include <cstdlib>
#include <vector>

#include "check_output.hpp"
#include "memory.hpp"
#include "profile_nodes.hpp"

namespace profiler::fuzz {
namespace {

using namespace trace;

constexpr size_t kFactor = 16;
constexpr size_t kLeast = 1 << 20;

void check_rows(const ProfileNodes& nodes) {
  for (size_t row = 0; row < nodes.size(); ++row) {
    const auto kind = static_cast<size_t>(nodes.kind[row]);
    check(kind < nodes.kind_count(), "a node has a kind");
    check(!nodes.kind_at(kind)[kNodeName].empty(), "a kind has a name");
    check(nodes.duration[row] >= 0, "a node ends behind its begin");
    check(std::llabs(nodes.start[row]) < int64_t{1} << 50, "a time fits");
    check(nodes.arena[row] >= -1, "an arena holds something");
  }
  check(nodes.kind.size() == nodes.size() && nodes.thread.size() == nodes.size() &&
            nodes.duration.size() == nodes.size() && nodes.arena.size() == nodes.size(),
        "columns have one length");
}

void check_others(const ProfileNodes& nodes, std::string_view text) {
  size_t ahead = 0, end = 0;
  for (const OtherEvent& other : nodes.others()) {
    check(other.ahead >= ahead && other.ahead <= nodes.size(), "others are in order of nodes");
    check(other.begin >= end && other.begin < other.end && other.end <= text.size(),
          "others are parts of the text");
    check(text[other.begin] == '{' && text[other.end - 1] == '}', "others are objects");
    ahead = other.ahead;
    end = other.end;
  }
  check(nodes.scanned() >= nodes.size() + nodes.others().size(), "events are counted");
}

// What is read once more is the same, and nothing new.
void check_again(ProfileNodes& nodes, std::string_view text) {
  const size_t rows = nodes.size(), kinds = nodes.kind_count();
  check(nodes.scan(text), "what was read is read again");
  check(nodes.size() == 2 * rows && nodes.kind_count() == kinds, "the same nodes are found");
  for (size_t row = 0; row < rows; ++row) {
    check(nodes.kind[row] == nodes.kind[rows + row] && nodes.start[row] == nodes.start[rows + row],
          "a node is read as before");
  }
}

// Lines that are read one by one hold what they hold together.
void check_lines(std::string_view text, const ProfileNodes& whole) {
  ProfileNodes lines;
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find('\n', from), text.size());
    if (!lines.scan(text.substr(from, end - from))) return;
    from = end + 1;
  }
  check(lines.size() == whole.size(), "lines have the nodes of the text");
  for (size_t row = 0; row < lines.size(); ++row) {
    check(lines.start[row] == whole.start[row], "in their order");
  }
}

void read(std::string_view text) {
  start_counting_memory();
  {
    ProfileNodes nodes;
    if (!nodes.scan(text)) {
      check(nodes.size() == 0 && nodes.others().empty(), "what is refused leaves nothing");
    } else {
      check_rows(nodes);
      check_others(nodes, text);
    }
    check(stop_counting_memory() <= kFactor * text.size() + kLeast, "memory is bounded");
  }
  ProfileNodes nodes;
  if (!nodes.scan(text)) return;
  check_lines(text, nodes);
  check_again(nodes, text);
}

}  // namespace
}  // namespace profiler::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  profiler::fuzz::read({reinterpret_cast<const char*>(data), size});
  return 0;
}
