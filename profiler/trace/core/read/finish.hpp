// The last touches on columns.
#pragma once

#include "output.hpp"

namespace profiler::trace {

// Brings counter samples in order of time.
void sort_counters(CounterTable& counters);

// Groups arguments by slice, each key once: the last value counts, as in trace_processor.
void group_args(ArgTable& args, StringId first_counts);

}  // namespace profiler::trace
