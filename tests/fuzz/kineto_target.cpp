// Any bytes → events of torch.profiler as columns that hold together, or refused.
#include "check_output.hpp"
#include "kineto_events.hpp"
#include "memory.hpp"

namespace profiler::fuzz {
namespace {

using namespace trace;

constexpr size_t kFactor = 32;
constexpr size_t kLeast = 1 << 20;

ArgumentNames names() {
  return {{"External id", "correlation"},
          {"device", "stream", "name", "Collective name"},
          {"Input Dims", "grid"},
          "Collective name"};
}

void check_code(const Column<int32_t>& codes, size_t row, const StringTable& texts) {
  check(codes[row] >= 0 && static_cast<size_t>(codes[row]) < texts.size(), "a text is known");
}

void check_events(const KinetoEvents& events) {
  const size_t rows = events.name.size();
  check(events.category.size() == rows && events.thread.size() == rows &&
            events.start.size() == rows && events.duration.size() == rows &&
            events.arguments.size() == rows,
        "columns have one length");
  for (size_t row = 0; row < rows; ++row) {
    check_code(events.name, row, events.names);
    check_code(events.category, row, events.categories);
    check_code(events.thread, row, events.threads);
    check(events.start[row] != kNoNumber, "an event has a time");
    check(events.arguments[row] >= -1 &&
              events.arguments[row] < static_cast<int32_t>(events.kind.size()),
          "arguments are there");
  }
  for (size_t row = 0; row < events.kind.size(); ++row) check_code(events.kind, row, events.kinds);
  for (const Column<int64_t>& column : events.numbers) {
    check(column.size() == events.kind.size(), "numbers are those of arguments");
  }
}

void check_spans(const KinetoEvents& events, std::string_view text) {
  check(text[events.list.begin] == '[' && text[events.list.end - 1] == ']', "the list is one");
  for (const std::vector<Span>* spans : {&events.others, &events.marked}) {
    size_t end = events.list.begin;
    for (const Span& one : *spans) {
      check(one.begin >= end && one.begin < one.end && one.end < events.list.end,
            "events lie in the list, in order");
      check(text[one.begin] == '{' && text[one.end - 1] == '}', "events are objects");
      end = one.end;
    }
  }
  check(events.marked.size() == events.marked_rows.size(), "each marked event has its row");
  for (const size_t row : events.marked_rows) check(row < events.name.size(), "a row is there");
}

void read(std::string_view text) {
  start_counting_memory();
  KinetoEvents events(names());
  const bool found = events.scan(text);
  check(stop_counting_memory() <= kFactor * text.size() + kLeast, "memory is bounded");
  if (!found) return;
  check_events(events);
  check_spans(events, text);
  const size_t rows = events.name.size(), texts = events.names.size();
  check(events.scan(text) && events.name.size() == rows && events.names.size() == texts,
        "what was read is read again");
}

}  // namespace
}  // namespace profiler::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  profiler::fuzz::read({reinterpret_cast<const char*>(data), size});
  return 0;
}
