#include "read_trace.hpp"

#include "finish.hpp"
#include "tail.hpp"

namespace profiler::trace {

namespace {

constexpr size_t kBytesASlice = 44;  // rather few: room that is not used costs nothing

}  // namespace

std::unique_ptr<Output> read_trace(Bytes trace, const Decompress& decompress, Mode first) {
  for (Mode mode = ends_early(trace) ? Mode::kSorted : first;;) {
    auto output = std::make_unique<Output>(kBudgetFactor * trace.size + kLeastBudget);
    output->slices.expect(trace.size / kBytesASlice);
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
