#include "translations.hpp"

namespace profiler::trace {

namespace {

enum Table : uint32_t {
  kHistograms = 1,
  kUserEvents = 2,
  kPerformanceMarks = 3,
  kSliceNames = 4,
  kProcessTrackNames = 5,
};

// Where hashes stand, in which table their texts do, and where those are shown.
struct Hashed {
  uint32_t table;
  uint32_t number;  // of the map in its table
  std::string_view hash;
  std::string_view text;
};
constexpr Hashed kHashed[] = {
    {kHistograms, 1, "chrome_histogram_sample.name_hash", "chrome_histogram_sample.name"},
    {kUserEvents, 1, "chrome_user_event.action_hash", "chrome_user_event.action"},
    {kPerformanceMarks, 1, "chrome_hashed_performance_mark.site_hash",
     "chrome_hashed_performance_mark.site"},
    {kPerformanceMarks, 2, "chrome_hashed_performance_mark.mark_hash",
     "chrome_hashed_performance_mark.mark"},
};

}  // namespace

void Translations::add(const Bytes& message, StringTable& strings) {
  Field field, table;
  for (Reader reader(message); reader.next(field);) {
    // One table a message; of more, the first kind counts.
    if (!field.is(kBytes) || (table.number != 0 && field.number >= table.number)) continue;
    table = field;
  }
  empty_ = false;
  if (table.number == kSliceNames) add_names(table, slices_, strings);
  if (table.number == kProcessTrackNames) add_names(table, process_tracks_, strings);
  for (size_t at = 0; at < kHashes; ++at) {
    if (kHashed[at].table == table.number) {
      add_hashes(table, kHashed[at].number, hashes_[at], strings);
    }
  }
}

void Translations::add_names(const Field& table, IntMap<StringId>& names, StringTable& strings) {
  Field entry, part;
  for (Reader entries(table); entries.next(entry);) {
    if (entry.number != 1 || !entry.is(kBytes)) continue;
    StringId name = kEmpty, text = kEmpty;
    for (Reader parts(entry); parts.next(part);) {
      if (!part.is(kBytes)) continue;
      if (part.number == 1) name = strings.intern(part.text());
      if (part.number == 2) text = strings.intern(part.text());
    }
    *names.insert(static_cast<uint64_t>(name), text).first = text;
  }
}

void Translations::add_hashes(const Field& table, uint32_t number, IntMap<StringId>& names,
                              StringTable& strings) {
  Field entry, part;
  for (Reader entries(table); entries.next(entry);) {
    if (entry.number != number || !entry.is(kBytes)) continue;
    uint64_t hash = 0;
    StringId text = kEmpty;
    for (Reader parts(entry); parts.next(part);) {
      if (part.number == 1 && part.is(kVarint)) hash = part.value;
      if (part.number == 2 && part.is(kBytes)) text = strings.intern(part.text());
    }
    *names.insert(hash, text).first = text;
  }
}

std::string_view Translations::find_hashed(std::string_view key, uint64_t hash,
                                           StringId& text) const {
  for (size_t at = 0; at < kHashes; ++at) {
    if (kHashed[at].hash != key) continue;
    const StringId* found = hashes_[at].find(hash);
    if (found == nullptr) return {};
    text = *found;
    return kHashed[at].text;
  }
  return {};
}

}  // namespace profiler::trace
