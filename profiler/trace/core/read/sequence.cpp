#include "sequence.hpp"

namespace profiler::trace {

IidTable* Interned::table_of(uint32_t field) {
  switch (field) {
    case 1: return &categories;
    case 2: return &names;
    case 3: return &annotation_names;
    case 4: return &source_locations;
    case 20: return &log_bodies;
    case 25: return &histogram_names;
    case 27: return &value_type_names;
    case 29: return &annotation_values;
    case 43: return &correlation_ids;
    default: return nullptr;
  }
}

// Every kind of entry has its iid in field 1 and its text in field 2; source locations add a
// function name (3) and a line number (4).
void Interned::add(const Field& entry, StringTable& strings) {
  IidTable* table = table_of(entry.number);
  if (table == nullptr || !entry.is(kBytes)) return;
  uint64_t iid = 0;
  bool has_iid = false;
  std::string_view text;
  SourceLocation location;
  Field field;
  for (Reader reader(entry); reader.next(field);) {
    if (field.number == 1 && field.is(kVarint)) {
      iid = field.value;
      has_iid = true;
    } else if (field.number == 2 && field.is(kBytes)) {
      text = field.text();
    } else if (field.number == 3 && field.is(kBytes)) {
      location.function = strings.intern(field.text());
    } else if (field.number == 4 && field.is(kVarint)) {
      location.line = static_cast<uint32_t>(field.value);
      location.has_line = true;
    }
  }
  if (!has_iid) return;
  if (table != &source_locations) {
    table->insert(iid, strings.intern(text));
    return;
  }
  location.file = strings.intern(text);
  table->insert(iid, static_cast<int32_t>(locations.size()));
  locations.push_back(location);
}

}  // namespace profiler::trace
