// What must hold of columns, whatever they were read from.
#pragma once

#include "output.hpp"

namespace profiler::fuzz {

// Says what is wrong and aborts.
[[noreturn]] void fail(const char* what);
inline void check(bool holds, const char* what) {
  if (!holds) fail(what);
}

// Columns of one table have one length, every index points at something, parents come before
// their children and lie on the same track, times are ones that tables can hold.
void check_output(trace::Output& output, size_t trace_size);

// That two readings of one trace say the same.
void check_same(trace::Output& one, trace::Output& other);

}  // namespace profiler::fuzz
