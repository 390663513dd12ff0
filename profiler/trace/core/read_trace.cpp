#include "read_trace.hpp"

#include "finish.hpp"

namespace profiler::trace {

std::unique_ptr<Output> read_trace(Bytes trace, const Decompress& decompress, Mode first) {
  for (Mode mode = first;;) {
    auto output = std::make_unique<Output>(16 * trace.size + (1 << 20));
    try {
      TraceReader(*output, trace, decompress, mode).read();
    } catch (const NeedsSorting& needed) {
      mode = needed.mode;
      continue;
    }
    output->slices.finish();
    sort_counters(output->counters);
    if (output->args.slice.size() > 0) {
      group_args(output->args, output->strings.intern("legacy_event.passthrough_utid"));
    }
    return output;
  }
}

}  // namespace profiler::trace
