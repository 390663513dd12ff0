// How much memory the code under test holds, counted by the sanitizer's hooks.
#pragma once

#include <cstddef>

namespace profiler::fuzz {

// From here on blocks are counted; what was allocated before is not.
void start_counting_memory();
// Stops counting; the most bytes that were held at one time since the start.
size_t stop_counting_memory();

}  // namespace profiler::fuzz
