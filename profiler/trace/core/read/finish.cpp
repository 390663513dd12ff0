#include "finish.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace profiler::trace {

namespace {

template <typename T>
void permute(Column<T>& column, const std::vector<uint32_t>& order) {
  Column<T> result;
  result.reserve(order.size());
  for (const uint32_t from : order) result.push(column[from]);
  std::swap(column, result);
}

template <typename T>
std::vector<uint32_t> stable_order(const Column<T>& by) {
  std::vector<uint32_t> order(by.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&by](uint32_t a, uint32_t b) { return by[a] < by[b]; });
  return order;
}

}  // namespace

void sort_counters(CounterTable& counters) {
  if (std::is_sorted(counters.time_ns.begin(), counters.time_ns.end())) return;
  const std::vector<uint32_t> order = stable_order(counters.time_ns);
  permute(counters.track, order);
  permute(counters.call, order);
  permute(counters.time_ns, order);
  permute(counters.value, order);
}

void group_args(ArgTable& args, StringId first_counts) {
  if (!std::is_sorted(args.slice.begin(), args.slice.end())) {
    const std::vector<uint32_t> order = stable_order(args.slice);
    permute(args.slice, order);
    permute(args.key, order);
    permute(args.kind, order);
    permute(args.value, order);
  }
  size_t kept = 0;
  std::vector<size_t> place_of;  // by key: where it was put for the slice at hand
  int32_t slice = kNone;
  size_t first = 0;
  for (size_t at = 0; at < args.slice.size(); ++at) {
    if (args.slice[at] != slice) {
      slice = args.slice[at];
      first = kept;
    }
    const StringId key = args.key[at];
    const auto index = static_cast<size_t>(key);
    if (index >= place_of.size())
      place_of.resize(std::max(index + 1, place_of.size() * 2), SIZE_MAX);
    const size_t place = place_of[index];
    const bool known =
        place != SIZE_MAX && place >= first && place < kept && args.key[place] == key;
    if (known && key == first_counts) continue;
    const size_t to = known ? place : kept++;
    place_of[index] = to;
    args.slice[to] = slice;
    args.key[to] = key;
    args.kind[to] = args.kind[at];
    args.value[to] = args.value[at];
  }
  args.slice.set_size(kept);
  args.key.set_size(kept);
  args.kind.set_size(kept);
  args.value.set_size(kept);
}

}  // namespace profiler::trace
