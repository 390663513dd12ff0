#include "descriptors.hpp"

#include <functional>

namespace profiler::trace {

namespace {

constexpr int kMaxNesting = 32;
constexpr size_t kMaxName = 1024;  // of a type, with all that it is nested in
// What an entry costs at most, with the room that growing tables keep.
constexpr size_t kMessageBytes = 1024;
constexpr size_t kFieldBytes = 192;
constexpr size_t kValueBytes = 96;
constexpr char kTrackEvent[] = ".perfetto.protos.TrackEvent";
constexpr char kAnnotation[] = ".perfetto.protos.DebugAnnotation";
constexpr char kOurs[] = ".profile_sd3.";
constexpr char kTexts[] = ".profile_sd3.trace.Text";

}  // namespace

Descriptors::Descriptors(StringTable& strings, size_t budget)
    : strings_(strings), budget_(budget) {
  track_event_ = find_or_add(kTrackEvent);
  annotation_ = find_or_add(kAnnotation);
}

int32_t Descriptors::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? -1 : found->second;
}

int32_t Descriptors::find_or_add(const std::string& name) {
  const auto [entry, fresh] = by_name_.emplace(name, static_cast<int32_t>(messages_.size()));
  if (fresh) {
    messages_.emplace_back();
    messages_.back().name = name;
  }
  return entry->second;
}

bool Descriptors::spend(size_t bytes) {
  if (bytes > budget_) {
    spent_ = true;
    return false;
  }
  budget_ -= bytes;
  return true;
}

// The message of a trace's own description; -1 where there is no room for it.
int32_t Descriptors::describe(const std::string& name) {
  const auto known = by_name_.find(name);
  if (known != by_name_.end()) return known->second;
  if (!spend(kMessageBytes + 2 * name.size())) return -1;
  changed_ = true;
  return find_or_add(name);
}

const FieldDescriptor* Descriptors::field(int32_t message, uint32_t number) {
  FieldDescriptor* field = messages_[static_cast<size_t>(message)].fields.find(number);
  if (field == nullptr || field->message != kUnresolved || field->type_name.empty()) return field;
  const int32_t type = resolve(messages_[static_cast<size_t>(message)].name, field->type_name);
  field->message = type < 0 ? kUnknownType : type;
  return field;
}

// Looks a type name up from the innermost scope outwards, as protobuf does.
int32_t Descriptors::resolve(const std::string& scope, std::string_view name) const {
  if (name.empty() || name.size() > kMaxName) return -1;
  if (name[0] == '.') return find(name);
  for (std::string outer = scope;;) {
    const int32_t found = find(outer + "." + std::string(name));
    if (found >= 0 || outer.empty()) return found;
    outer.resize(outer.rfind('.') == std::string::npos ? 0 : outer.rfind('.'));
  }
}

bool Descriptors::add(Bytes set, uint32_t sequence) {
  const std::string_view bytes(reinterpret_cast<const char*>(set.data), set.size);
  const uint64_t hash = combine(sequence, std::hash<std::string_view>()(bytes));
  changed_ = false;
  if (!seen_.emplace(hash, true).second) return true;
  sequence_ = sequence;
  spent_ = false;
  Field file, field;
  for (Reader files(set.data, set.size); files.next(file);) {
    if (file.number != 1 || !file.is(kBytes)) continue;
    std::string scope;
    for (Reader reader(file); reader.next(field);) {
      if (field.number == 2 && field.is(kBytes)) scope = "." + std::string(field.text());
    }
    if (scope.size() > kMaxName) continue;
    for (Reader reader(file); reader.next(field);) {
      if (!field.is(kBytes)) continue;
      if (field.number == 4) add_message(field, scope, 0);
      if (field.number == 5) add_enum(field, scope);
      if (field.number == 7) add_field(field, scope, -1);
    }
  }
  return !spent_;
}

void Descriptors::add_message(const Field& message, const std::string& scope, int depth) {
  if (depth > kMaxNesting) return;
  Field field;
  std::string name;
  for (Reader reader(message); reader.next(field);) {
    if (field.number == 1 && field.is(kBytes)) name = scope + "." + std::string(field.text());
  }
  if (name.size() > kMaxName) return;
  const int32_t index = describe(name);
  if (index < 0) return;
  for (Reader reader(message); reader.next(field);) {
    if (!field.is(kBytes)) continue;
    if (field.number == 2) add_field(field, scope, index);
    if (field.number == 3) add_message(field, name, depth + 1);
    if (field.number == 4) add_enum(field, name);
    if (field.number == 6) add_field(field, name, -1);
  }
}

void Descriptors::add_enum(const Field& message, const std::string& scope) {
  Field field, part;
  std::string name;
  for (Reader reader(message); reader.next(field);) {
    if (field.number == 1 && field.is(kBytes)) name = scope + "." + std::string(field.text());
  }
  if (name.size() > kMaxName) return;
  const bool texts_of_ours = name == kTexts;
  const int32_t index = describe(name);
  if (index < 0) return;
  auto& values = messages_[static_cast<size_t>(index)].values;
  for (Reader reader(message); reader.next(field);) {
    if (field.number != 2) continue;
    std::string_view text;
    int32_t number = 0;
    for (Reader value(field); value.next(part);) {
      if (part.number == 1 && part.is(kBytes)) text = part.text();
      if (part.number == 2 && part.is(kVarint)) number = static_cast<int32_t>(part.value);
    }
    if (texts_of_ours) {
      const StringId id = strings_.intern(text);
      const auto key = static_cast<uint32_t>(number);
      *texts_.insert(key, kEmpty).first = id;
      *own_texts_.insert(uint64_t{sequence_} << 32 | key, kEmpty).first = id;
    } else if (spend(kValueBytes)) {
      changed_ |= values.insert(static_cast<uint32_t>(number), text).second;
    }
  }
}

// A field of `parent`, or an extension (parent -1) of whatever message it names.
void Descriptors::add_field(const Field& message, const std::string& scope, int32_t parent) {
  FieldDescriptor result;
  result.type = kTypeMessage;
  result.extension = parent < 0;
  uint32_t number = 0;
  std::string extendee;
  Field field, option;
  for (Reader reader(message); reader.next(field);) {
    switch (field.number) {
      case 1:
        if (field.is(kBytes)) result.name = field.text();
        break;
      case 2:
        if (field.is(kBytes)) extendee = field.text();
        break;
      case 3: number = static_cast<uint32_t>(field.value); break;
      case 4: result.repeated = field.value == 3; break;
      case 5: result.type = static_cast<uint8_t>(field.value); break;
      case 6:
        if (field.is(kBytes)) result.type_name = field.text();
        break;
      case 8:
        for (Reader options(field); options.next(option);) {
          if (option.number == 2 && option.is(kVarint)) result.packed = option.boolean();
        }
        break;
      default: break;
    }
  }
  if (parent < 0) {
    if (!extendee.empty() && extendee[0] != '.') extendee = scope + "." + extendee;
    parent = find(extendee);
    if (parent < 0) return;
  }
  auto& fields = messages_[static_cast<size_t>(parent)].fields;
  const FieldDescriptor* known = fields.find(number);
  if (number == 0 || (known != nullptr && known->type != result.type)) return;
  if (known == nullptr && !spend(kFieldBytes)) return;
  changed_ |= known == nullptr || !known->same(result);
  *fields.insert(number, result).first = result;
  if (parent == track_event_ && number >= 9900 && number <= 9902) {
    ours_[number - 9900] = result.type_name.substr(0, sizeof kOurs - 1) == kOurs;
  }
}

}  // namespace profiler::trace
