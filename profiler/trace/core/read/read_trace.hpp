// A whole trace → columns.
#pragma once

#include <memory>

#include "output.hpp"
#include "reader.hpp"

namespace profiler::trace {

// Reads a trace, again where it turns out to need another mode than `first`. Throws TooManyTracks,
// std::bad_alloc, and what `decompress` throws.
std::unique_ptr<Output> read_trace(Bytes trace, const Decompress& decompress,
                                   Mode first = Mode::kDirect);

}  // namespace profiler::trace
