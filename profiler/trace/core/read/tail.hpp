// The end of a trace, looked at before it is read.
#pragma once

#include "wire.hpp"

namespace profiler::trace {

// Whether the clock snapshots at the end of a large trace go back in time, as they do where what
// went on beside all the rest stands last: then events have to be sorted, and no other mode needs
// to be tried. A guess, from the last packets alone: what is missed costs time and nothing else.
bool ends_early(const Bytes& trace);

}  // namespace profiler::trace
