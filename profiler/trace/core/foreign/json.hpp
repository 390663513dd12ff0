// JSON text, as events: for the JSON values of Chrome's annotations.
#pragma once

#include <cstdint>
#include <string_view>

namespace profiler::trace {

// Null values are skipped with their place: no `enter_…` comes for them.
class JsonSink {
 public:
  virtual ~JsonSink() = default;
  virtual void enter_member(std::string_view name) = 0;
  virtual void enter_element() = 0;
  virtual void leave() = 0;
  virtual void boolean(bool value) = 0;
  virtual void integer(int64_t value) = 0;
  virtual void real(double value) = 0;
  virtual void string(std::string_view value) = 0;
};

// False where the text is no JSON or nested too deeply; what came before has been reported.
bool parse_json(std::string_view text, JsonSink& sink);

}  // namespace profiler::trace
