// What the packets of one sequence share: interned data, defaults, delta-encoded state.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "containers.hpp"
#include "strings.hpp"
#include "wire.hpp"

namespace profiler::trace {

// iid → number. Producers count from 1, so nearly all stand in a vector, which grows with their
// number, not with their size. The first entry of an iid stays: the specification forbids another
// one before the state is cleared.
class IidTable {
 public:
  int32_t find(uint64_t iid) const {
    if (iid < dense_.size() && dense_[iid] != kNull) return dense_[iid];
    if (!sparse_) return kNull;
    const int32_t* found = sparse_->find(iid);
    return found ? *found : kNull;
  }
  void insert(uint64_t iid, int32_t value) {
    if (find(iid) != kNull) return;
    ++count_;
    if (iid < dense_.size() || iid <= 2 * count_ + 16) {
      if (iid >= dense_.size()) dense_.resize(iid + 1, kNull);
      dense_[iid] = value;
      return;
    }
    if (!sparse_) sparse_ = std::make_unique<IntMap<int32_t>>();
    sparse_->insert(iid, value);
  }

 private:
  size_t count_ = 0;
  std::vector<int32_t> dense_;
  std::unique_ptr<IntMap<int32_t>> sparse_;
};

struct SourceLocation {
  StringId file = kNull;
  StringId function = kNull;
  uint32_t line = 0;
  bool has_line = false;
};

// The interned data of one sequence between two clearings. Values are string numbers, for source
// locations places in `locations`.
struct Interned {
  IidTable categories;         // InternedData 1
  IidTable names;              // 2
  IidTable annotation_names;   // 3
  IidTable source_locations;   // 4
  IidTable log_bodies;         // 20
  IidTable histogram_names;    // 25
  IidTable value_type_names;   // 27
  IidTable annotation_values;  // 29
  IidTable correlation_ids;    // 43
  std::vector<SourceLocation> locations;

  void add(const Field& entry, StringTable& strings);

 private:
  IidTable* table_of(uint32_t field);
};

// State that events refer to when they are imported, which may be long after they were read.
struct Generation {
  std::shared_ptr<Interned> interned;
  std::shared_ptr<std::vector<uint64_t>> extra_counters;
  std::shared_ptr<std::vector<uint64_t>> extra_double_counters;
  uint64_t default_track = 0;
  bool has_default_track = false;
  // The thread that a descriptor named for this sequence; it outlives clearings.
  bool has_thread = false;
  bool thread_used = false;  // an event asked for it
  int32_t pid = 0;
  int64_t tid = 0;

  StringId name(uint64_t iid) const { return interned ? interned->names.find(iid) : kNull; }
  StringId category(uint64_t iid) const {
    return interned ? interned->categories.find(iid) : kNull;
  }
};

struct Sequence {
  uint32_t id = 0;
  uint32_t generation = 0;
  uint32_t default_clock = 0;
  int32_t call = -1;   // index of the call whose file this sequence is
  bool valid = false;  // incremental state is complete
  // Reference for delta timestamps, from a thread descriptor.
  bool has_reference = false;
  int64_t time_ns = 0;
  int64_t thread_time_ns = 0;
  int64_t instructions = 0;
  std::unique_ptr<IntMap<double>> counter_values;

  void forget_deltas() {
    has_reference = false;
    time_ns = thread_time_ns = instructions = 0;
    counter_values.reset();
  }
  double add_to_counter(uint64_t track, double value) {
    if (!counter_values) counter_values = std::make_unique<IntMap<double>>();
    return *counter_values->insert(track, 0.0).first += value;
  }
};

}  // namespace profiler::trace
