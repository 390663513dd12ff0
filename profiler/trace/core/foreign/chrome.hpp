// Words of Chrome that its traces hold as numbers only.
#pragma once

#include <cstdint>

namespace profiler::trace {

// Names of chrome_enums.proto's process and thread types; nullptr where there is none.
const char* chrome_process_name(int32_t type);
const char* chrome_thread_name(int32_t type);

}  // namespace profiler::trace
