// Clock domains and the snapshots that relate them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "containers.hpp"

namespace profiler::trace {

constexpr int64_t kClockMonotonic = 3;
constexpr int64_t kClockBoottime = 6;

// Ids 64 to 127 belong to one packet sequence and are made unique with its id.
inline bool is_sequence_clock(int64_t clock) { return clock >= 64 && clock < 128; }
inline int64_t sequence_clock(uint32_t sequence, int64_t clock) {
  return static_cast<int64_t>(static_cast<uint64_t>(sequence) << 32 | static_cast<uint64_t>(clock));
}

struct ClockReading {
  int64_t clock = 0;
  int64_t timestamp = 0;
  int64_t unit_ns = 1;
  bool incremental = false;
};

class Clocks {
 public:
  // Bounds what hostile snapshots cost: the graph of related clocks, and how many of its edges all
  // searches together may follow.
  Clocks(size_t edge_limit, uint64_t search_budget)
      : edge_limit_(edge_limit), search_budget_(search_budget) {}

  // What the trace's own time is; fixed by the first snapshot or conversion.
  void set_trace_clock(int64_t clock) {
    if (!locked_) trace_clock_ = clock;
  }

  // Relates the clocks of one snapshot. False where it contradicts earlier ones.
  bool add_snapshot(const std::vector<ClockReading>& readings);

  // Converts to trace time; false where no snapshot relates the clock. Advances incremental
  // clocks.
  bool to_trace_time(int64_t clock, int64_t timestamp, int64_t& out) {
    locked_ = true;
    if (clock == trace_clock_) {
      out = timestamp;
      return true;
    }
    bool known = false;
    int64_t ns = 0;
    for (const Cached& entry : cache_) {
      if (entry.clock != clock) continue;
      if (!known) ns = to_ns(domains_[entry.domain], timestamp);
      known = true;
      if (ns >= entry.min_ns && ns < entry.max_ns) {
        out = wrap_add(ns, entry.translation_ns);
        return true;
      }
    }
    return convert(clock, timestamp, known, ns, out);
  }

 private:
  // Readings of one clock in all snapshots of the same set of clocks.
  struct Series {
    std::vector<uint32_t> snapshots;
    std::vector<int64_t> times_ns;
  };
  struct Edge {
    int64_t target = 0;
    uint64_t set = 0;
    bool operator<(const Edge& other) const {
      return target != other.target ? target < other.target : set < other.set;
    }
  };
  struct Domain {
    int64_t clock = 0;
    int64_t unit_ns = 1;
    int64_t last_ns = 0;
    bool incremental = false;
    bool monotonic = true;
    std::vector<Series> series;
    IntMap<uint32_t> series_of_sets;
    std::vector<Edge> edges;  // sorted
    uint64_t seen_by = 0;     // the last search that came here
  };
  struct Cached {
    int64_t clock = -1;
    uint32_t domain = 0;
    int64_t min_ns = 0;
    int64_t max_ns = 0;
    int64_t translation_ns = 0;
  };
  struct Step {
    uint32_t from = 0;
    uint32_t to = 0;
    uint64_t set = 0;
  };

  static int64_t to_ns(Domain& domain, int64_t timestamp) {
    const int64_t ns = wrap_mul(timestamp, domain.unit_ns);
    if (!domain.incremental) return ns;
    domain.last_ns = wrap_add(domain.last_ns, ns);
    return domain.last_ns;
  }

  uint32_t domain_of(int64_t clock);
  bool add_reading(const ClockReading& reading, uint64_t set);
  void connect(const ClockReading& from, const ClockReading& to, uint64_t set);
  bool find_path(uint32_t source, uint32_t target, std::vector<Step>& path);
  bool convert(int64_t clock, int64_t timestamp, bool known, int64_t ns, int64_t& out);
  const Series* series_of(const Domain& domain, uint64_t set) const;

  std::vector<Domain> domains_;
  IntMap<uint32_t> index_;
  std::array<Cached, 8> cache_;
  size_t next_cached_ = 0;
  uint32_t snapshots_ = 0;
  int64_t trace_clock_ = kClockBoottime;
  bool locked_ = false;
  size_t edges_ = 0;
  size_t edge_limit_;
  uint64_t searches_ = 0;
  uint64_t search_budget_;
};

}  // namespace profiler::trace
