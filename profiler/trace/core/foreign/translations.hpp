// Names that a trace translates: of slices, of processes' tracks, and what Chrome writes as hashes.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "containers.hpp"
#include "strings.hpp"
#include "wire.hpp"

namespace profiler::trace {

class Translations {
 public:
  bool empty() const { return empty_; }
  // Reads a TranslationTable.
  void add(const Bytes& table, StringTable& strings);

  StringId slice(StringId name) const { return empty_ ? name : translated(slices_, name); }
  StringId process_track(StringId name) const {
    return empty_ ? name : translated(process_tracks_, name);
  }
  // The argument that `hash` under `key` says in words: its key, "" where it says none.
  std::string_view hashed(std::string_view key, uint64_t hash, StringId& text) const {
    return empty_ ? std::string_view() : find_hashed(key, hash, text);
  }

 private:
  static constexpr size_t kHashes = 4;

  static StringId translated(const IntMap<StringId>& names, StringId name) {
    const StringId* found = names.find(static_cast<uint64_t>(name));
    return found == nullptr ? name : *found;
  }
  std::string_view find_hashed(std::string_view key, uint64_t hash, StringId& text) const;
  void add_names(const Field& table, IntMap<StringId>& names, StringTable& strings);
  void add_hashes(const Field& table, uint32_t number, IntMap<StringId>& names,
                  StringTable& strings);

  bool empty_ = true;
  IntMap<StringId> slices_;
  IntMap<StringId> process_tracks_;
  std::array<IntMap<StringId>, kHashes> hashes_;
};

}  // namespace profiler::trace
