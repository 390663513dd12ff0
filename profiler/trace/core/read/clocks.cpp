#include "clocks.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace profiler::trace {

namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr size_t kMaxSteps = 4;
constexpr size_t kMaxReadings = 32;  // real snapshots hold about ten

// A number for a set of clocks: FNV-1a, cut to 32 bits. Where two snapshots relate the same clocks
// together with different others, the smaller number decides; so it must be trace_processor's.
uint64_t set_of(const std::vector<ClockReading>& readings) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const ClockReading& reading : readings) {
    for (uint32_t shift = 0; shift < 64; shift += 8) {
      hash = (hash ^ (static_cast<uint64_t>(reading.clock) >> shift & 0xFF)) * 0x100000001B3u;
    }
  }
  return hash & 0xFFFFFFFFu;
}

}  // namespace

uint32_t Clocks::domain_of(int64_t clock) {
  const auto [index, fresh] =
      index_.insert(static_cast<uint64_t>(clock), static_cast<uint32_t>(domains_.size()));
  if (fresh) {
    domains_.emplace_back();
    domains_.back().clock = clock;
  }
  return *index;
}

const Clocks::Series* Clocks::series_of(const Domain& domain, uint64_t set) const {
  const uint32_t* at = domain.series_of_sets.find(set);
  return at == nullptr ? nullptr : &domain.series[*at];
}

bool Clocks::add_reading(const ClockReading& reading, uint64_t set) {
  const bool of_sequence = (static_cast<uint64_t>(reading.clock) >> 32) != 0;
  Domain& domain = domains_[domain_of(reading.clock)];
  if (domain.series.empty()) {
    if (reading.incremental && !of_sequence) return false;
    domain.unit_ns = reading.unit_ns;
    domain.incremental = reading.incremental;
  } else if (domain.unit_ns != reading.unit_ns || domain.incremental != reading.incremental) {
    return false;
  }
  if (reading.clock == trace_clock_ && domain.unit_ns != 1) return false;
  const int64_t ns = wrap_mul(reading.timestamp, domain.unit_ns);
  domain.last_ns = ns;
  const uint32_t* known = domain.series_of_sets.find(set);
  if (known == nullptr) {
    if (domain.series.size() >= edge_limit_) return false;
    const auto place = static_cast<uint32_t>(domain.series.size());
    known = domain.series_of_sets.insert(set, place).first;
    domain.series.emplace_back();
  }
  Series* const found = &domain.series[*known];
  if (!found->snapshots.empty() && found->snapshots.back() == snapshots_) return false;
  if (!found->times_ns.empty() && ns < found->times_ns.back()) {
    if (reading.clock == trace_clock_) return false;
    // It may still be asked for, but one of its times no longer names one moment.
    domain.monotonic = false;
    edges_ -= domain.edges.size();
    domain.edges.clear();
  }
  found->snapshots.push_back(snapshots_);
  found->times_ns.push_back(ns);
  return true;
}

void Clocks::connect(const ClockReading& from, const ClockReading& to, uint64_t set) {
  Domain& domain = domains_[domain_of(from.clock)];
  if (!domain.monotonic || edges_ >= edge_limit_) return;
  const Edge edge{to.clock, set};
  const auto at = std::lower_bound(domain.edges.begin(), domain.edges.end(), edge);
  if (at != domain.edges.end() && !(edge < *at)) return;
  domain.edges.insert(at, edge);
  ++edges_;
}

bool Clocks::add_snapshot(const std::vector<ClockReading>& readings) {
  ++snapshots_;
  cache_.fill({});
  next_cached_ = 0;
  if (readings.size() > kMaxReadings) return false;
  const uint64_t set = set_of(readings);
  for (const ClockReading& reading : readings) {
    if (!add_reading(reading, set)) return false;
  }
  for (size_t a = 0; a < readings.size(); ++a) {
    for (size_t b = a + 1; b < readings.size(); ++b) {
      connect(readings[a], readings[b], set);
      connect(readings[b], readings[a], set);
    }
  }
  if (!readings.empty()) locked_ = true;
  return true;
}

// Breadth first, so that the shortest way wins, and among those the one of the smallest ids.
bool Clocks::find_path(uint32_t source, uint32_t target, std::vector<Step>& path) {
  struct Node {
    Step step;
    int32_t previous;
    size_t length;
  };
  std::vector<Node> queue{{{source, source, 0}, -1, 0}};
  domains_[source].seen_by = ++searches_;
  for (size_t at = 0; at < queue.size(); ++at) {
    const Node node = queue[at];
    if (node.length >= kMaxSteps) continue;
    for (const Edge& edge : domains_[node.step.to].edges) {
      if (search_budget_ == 0) return false;
      --search_budget_;
      const uint32_t next = *index_.find(static_cast<uint64_t>(edge.target));
      const Step step{node.step.to, next, edge.set};
      if (next == target) {
        path.assign(node.length + 1, step);
        for (int32_t back = static_cast<int32_t>(at); queue[back].previous >= 0;
             back = queue[back].previous) {
          path[queue[back].length - 1] = queue[back].step;
        }
        return true;
      }
      if (std::exchange(domains_[next].seen_by, searches_) == searches_) continue;
      queue.push_back({step, static_cast<int32_t>(at), node.length + 1});
    }
  }
  return false;
}

bool Clocks::convert(int64_t clock, int64_t timestamp, bool known, int64_t ns, int64_t& out) {
  const uint32_t* source = index_.find(static_cast<uint64_t>(clock));
  const uint32_t* target = index_.find(static_cast<uint64_t>(trace_clock_));
  std::vector<Step> path;
  if (source == nullptr || target == nullptr || !find_path(*source, *target, path)) return false;
  if (!known) ns = to_ns(domains_[*source], timestamp);
  int64_t translation = 0, min_ns = kMin, max_ns = kMax;
  for (const Step& step : path) {
    const Series* from = series_of(domains_[step.from], step.set);
    const Series* to = series_of(domains_[step.to], step.set);
    if (from == nullptr || to == nullptr || from->times_ns.empty()) return false;
    const auto& times = from->times_ns;
    auto after = std::upper_bound(times.begin(), times.end(), ns);
    const auto at = after == times.begin() ? after : after - 1;
    after = at + 1;
    const uint32_t snapshot = from->snapshots[static_cast<size_t>(at - times.begin())];
    const auto same = std::lower_bound(to->snapshots.begin(), to->snapshots.end(), snapshot);
    if (same == to->snapshots.end() || *same != snapshot) continue;
    const int64_t there = to->times_ns[static_cast<size_t>(same - to->snapshots.begin())];
    // What holds for this step, as seen from the first clock.
    if (at != times.begin()) min_ns = std::max(min_ns, wrap_sub(*at, translation));
    if (after != times.end()) max_ns = std::min(max_ns, wrap_sub(*after, translation));
    const int64_t offset = wrap_sub(there, *at);
    ns = wrap_add(ns, offset);
    translation = wrap_add(translation, offset);
  }
  cache_[next_cached_++ % cache_.size()] = {clock, *source, min_ns, max_ns, translation};
  out = ns;
  return true;
}

}  // namespace profiler::trace
