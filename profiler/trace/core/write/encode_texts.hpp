// Texts as numbers: what an enum of the trace's own extension names on the wire.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace profiler::trace::encode {

// Gives every text a number. Words of a fixed list count from 1. Other texts count from `first`
// on in the order of their appearance, which compresses well; or, where `first` is 0, their number
// is a hash of 28 bits, so that files written apart agree. Two texts of one table never share a
// number; one table serves all files of a run.
class TextTable {
 public:
  TextTable(const std::vector<std::string>& words, uint32_t first);

  // The number of `text`, never 0. Safe to call from several threads.
  uint32_t number(std::string_view text);

 private:
  uint32_t free_number(const std::string& text);

  std::mutex mutex_;
  std::unordered_map<std::string, uint32_t> numbers_;
  std::unordered_set<uint32_t> hashed_;
  uint32_t next_;
};

}  // namespace profiler::trace::encode
