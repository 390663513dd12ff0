#include "encode_lanes.hpp"

#include <algorithm>
#include <numeric>

#include "containers.hpp"

namespace profiler::trace::encode {
namespace {

// Order of begin. At one moment what takes no time comes first, then what never ends, then the
// longest; so parents come before their children.
struct Earlier {
  const Slices& slices;

  bool operator()(uint32_t a, uint32_t b) const {
    const int64_t start_a = slices.start(a), start_b = slices.start(b);
    if (start_a != start_b) return start_a < start_b;
    const int64_t end_a = slices.end(a), end_b = slices.end(b);
    const bool lasts_a = end_a > start_a, lasts_b = end_b > start_b;
    return lasts_a != lasts_b ? lasts_b : end_a > end_b;
  }
};

// Producers hand over commands by their start, so usually nothing or only moments that several
// share need sorting.
void sort_commands(std::vector<uint32_t>& rows, const Slices& slices) {
  const Earlier earlier{slices};
  if (std::is_sorted(rows.begin(), rows.end(), earlier)) return;
  const int64_t* start = slices.commands.start_ns;
  if (!std::is_sorted(start, start + rows.size())) {
    std::stable_sort(rows.begin(), rows.end(), earlier);
    return;
  }
  for (size_t first = 0, last; first < rows.size(); first = last) {
    for (last = first + 1; last < rows.size() && start[last] == start[first];) ++last;
    std::stable_sort(rows.begin() + first, rows.begin() + last, earlier);
  }
}

std::vector<uint32_t> in_order(const Slices& slices) {
  std::vector<uint32_t> commands(slices.commands.rows);
  std::iota(commands.begin(), commands.end(), 0u);
  sort_commands(commands, slices);
  if (slices.extras.empty()) return commands;
  std::vector<uint32_t> extras(slices.extras.size());
  std::iota(extras.begin(), extras.end(), static_cast<uint32_t>(slices.commands.rows));
  const Earlier earlier{slices};
  std::stable_sort(extras.begin(), extras.end(), earlier);
  std::vector<uint32_t> all(slices.size());
  std::merge(extras.begin(), extras.end(), commands.begin(), commands.end(), all.begin(), earlier);
  return all;
}

constexpr uint32_t kNone = UINT32_MAX;

class Placer {
 public:
  Placer(const Slices& slices, size_t track_count) : slices_(slices), lanes_of_(track_count) {
    lanes_.order = in_order(slices);
    lanes_.lane_of.reserve(slices.size());
  }

  Lanes run() {
    for (const uint32_t row : lanes_.order) {
      const int64_t start = slices_.start(row), end = slices_.end(row);
      const uint32_t track = slices_.track(row);
      uint32_t lane = end == kUnclosed ? kNone : nesting_lane(track, start, end);
      if (lane == kNone) lane = add_lane(track, start, end);
      watch_unit(lane, start, end);
      lanes_.lane_of.push_back(lane);
    }
    choose_residue();
    return std::move(lanes_);
  }

 private:
  struct Unit {
    int64_t residue = 0;
    size_t slices = 0;
    bool whole = true;
  };

  uint32_t nesting_lane(uint32_t track, int64_t start, int64_t end) {
    for (const uint32_t lane : lanes_of_[track]) {
      std::vector<int64_t>& ends = ends_[lane];
      while (!ends.empty() && ends.back() <= start) ends.pop_back();
      if (!ends.empty() && ends.back() < end) continue;
      ends.push_back(end);
      return lane;
    }
    return kNone;
  }

  uint32_t add_lane(uint32_t track, int64_t start, int64_t end) {
    const auto lane = static_cast<uint32_t>(ends_.size());
    ends_.emplace_back();
    lanes_.track_of.push_back(track);
    units_.push_back({start % 1000, 0, true});
    if (end != kUnclosed) {
      ends_.back().push_back(end);
      lanes_of_[track].push_back(lane);
    }
    return lane;
  }

  void watch_unit(uint32_t lane, int64_t start, int64_t end) {
    Unit& unit = units_[lane];
    ++unit.slices;
    if (!unit.whole) return;
    unit.whole = start % 1000 == unit.residue &&
                 (end == kUnclosed || wrap_sub(end, start) % 1000 == 0);
  }

  // All lanes in microseconds share one clock, so they must leave the same residue: that of the
  // largest.
  void choose_residue() {
    size_t most = 0;
    for (const Unit& unit : units_) {
      if (!unit.whole || unit.slices <= most) continue;
      most = unit.slices;
      lanes_.residue_ns = unit.residue;
    }
    for (const Unit& unit : units_) {
      lanes_.in_microseconds.push_back(unit.whole && unit.residue == lanes_.residue_ns);
    }
  }

  const Slices& slices_;
  Lanes lanes_;
  std::vector<std::vector<uint32_t>> lanes_of_;  // of each track, those of slices that closed
  std::vector<std::vector<int64_t>> ends_;       // of each lane, of the slices open now
  std::vector<Unit> units_;
};

}  // namespace

Lanes place(const Slices& slices, size_t track_count) { return Placer(slices, track_count).run(); }

}  // namespace profiler::trace::encode
