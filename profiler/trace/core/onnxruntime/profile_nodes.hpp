// The executed nodes of ONNX Runtime's profiles as columns, read from the text of their events.
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

// What executions of a node have in common: texts of the profile as they are.
enum KindPart : size_t {
  kNodeName,
  kOpName,
  kProvider,
  kParameterSize,
  kActivationSize,
  kOutputSize,
  kInputs,   // JSON
  kOutputs,  // JSON
  kKindParts
};
using Kind = std::array<std::string_view, kKindParts>;

// An executed node; times are µs, `arena` bytes or -1.
struct NodeRow {
  int32_t kind;
  int64_t thread, start, duration, arena;
};

// An event that is no node and matters: its text is that of the block from `begin` to `end`;
// `ahead` is the number of nodes before it.
struct OtherEvent {
  size_t ahead, begin, end;
};

class ProfileNodes {
 public:
  ProfileNodes() : kinds_(SIZE_MAX) {}

  // Appends the nodes of a text: events apart by commas, all within brackets or a part of that.
  // False where any of it is no event, has no time, or is spelled as JSON can and nobody does: then
  // no row was added.
  bool scan(std::string_view text);

  // Appends one node. `in_use` is a number of bytes as text, whatever it holds.
  void add(const Kind& kind, int64_t thread, int64_t start, int64_t duration,
           std::string_view in_use);

  // Of the last text that was scanned.
  const std::vector<OtherEvent>& others() const { return others_; }
  size_t scanned() const { return scanned_; }

  size_t size() const { return start.size(); }
  size_t kind_count() const { return kinds_.size() - 1; }
  Kind kind_at(size_t number) const;

  Column<int32_t> kind;
  Column<int64_t> thread, start, duration, arena;

 private:
  struct Event;

  bool events(JsonCursor& json, const char* from);
  bool event(JsonCursor& json, Event& event);
  bool member(JsonCursor& json, std::string_view name, Event& event);
  bool arguments(JsonCursor& json, Event& event);
  void set_size(size_t rows);

  StringTable kinds_;  // the empty text is no kind, so numbers begin at 1 there
  std::string key_;
  std::vector<OtherEvent> others_;
  size_t scanned_ = 0;
};

}  // namespace profiler::trace
