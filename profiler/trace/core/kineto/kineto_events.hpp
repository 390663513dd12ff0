// The complete events of a torch.profiler trace as columns, read from its JSON in one pass.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "containers.hpp"
#include "json_cursor.hpp"
#include "strings.hpp"

namespace profiler::trace {

constexpr int64_t kNoNumber = INT64_MIN;  // the event does not have it

// A part of the text that was scanned.
struct Span {
  size_t begin, end;
};

// What is read of an event's `args`, by key.
struct ArgumentNames {
  // Numbers that differ from event to event: a column each, if they are integers.
  std::vector<std::string> numbers;
  // Numbers and texts of which many events have the same ones.
  std::vector<std::string> scalars;
  // Values of any kind.
  std::vector<std::string> values;
  // The key whose events are asked for by their texts, one of `scalars`.
  std::string marked;
};

class KinetoEvents {
 public:
  explicit KinetoEvents(const ArgumentNames& names);

  // Reads a document: an object with the list `traceEvents`. Replaces what was read before, but for
  // the tables of texts, which grow. False if any of it is no such event, or spelled in a way that
  // nobody writes: then what was read is undefined, and another reader has to say what is wrong.
  bool scan(std::string_view text);

  // Of each complete event with a time: numbers of texts; ns; the row of its arguments, or -1.
  // `duration` is kNoNumber if there is none.
  Column<int32_t> name, category, thread, arguments;
  Column<int64_t> start, duration;
  // Of arguments: the number of the text of all that is no integer of `numbers`, and these.
  Column<int32_t> kind;
  std::vector<Column<int64_t>> numbers;

  size_t dropped = 0;            // complete events without a time
  Span list{0, 0};               // the value of `traceEvents`
  std::vector<Span> others;      // samples, instants, begins, ends and metadata
  std::vector<Span> marked;      // complete events with the marked argument, ...
  std::vector<size_t> marked_rows;  // ... and their rows

  // Texts by number. A thread is `pid,tid`, a kind `"key":value,...`: JSON as it stands in the file.
  StringTable names, categories, threads, kinds;

 private:
  enum class Reads : uint8_t { kNothing, kNumber, kScalar, kMarked, kValue };
  struct Argument {
    std::string name;
    Reads reads;
    size_t column;
  };
  struct Event;

  const Argument* argument(std::string_view name) const;
  bool document(JsonCursor& json, const char* from);
  bool events(JsonCursor& json, const char* from);
  bool event(JsonCursor& json, Event& event);
  bool member(JsonCursor& json, std::string_view name, Event& event);
  bool args(JsonCursor& json, Event& event);
  bool arg(JsonCursor& json, const Argument& argument, Event& event);
  void add(const Event& event, Span span);
  void clear();

  std::array<std::vector<Argument>, 32> arguments_;  // by the length of their names
  std::string key_;
};

}  // namespace profiler::trace
