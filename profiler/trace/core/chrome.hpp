// Words of Chrome that its traces hold as numbers only.
#pragma once

#include <cstdint>
#include <vector>

#include "descriptors.hpp"

namespace profiler::trace {

// Names of chrome_enums.proto's process and thread types; nullptr where there is none.
const char* chrome_process_name(int32_t type);
const char* chrome_thread_name(int32_t type);

// Fields of messages in Perfetto's TrackEvent, and values of their enums. Names are those of
// package perfetto.protos.
struct KnownField {
  const char* message;
  uint32_t number;
  const char* name;
  FieldType type;
  bool repeated;
  const char* type_name;
};
struct KnownValue {
  const char* type;
  int32_t number;
  const char* name;
};
const std::vector<KnownField>& known_fields();
const std::vector<KnownValue>& known_values();

}  // namespace profiler::trace
