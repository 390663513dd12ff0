// The messages of Perfetto's own TrackEvent, which traces do not describe.
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include "descriptors.hpp"

namespace profiler::trace {

namespace {

// A message or enum each: see schemas/perfetto_messages.py.
constexpr std::string_view kMessages[] = {
#include "perfetto_messages.inc"
};

constexpr std::string_view kPackage = ".perfetto.protos.";
constexpr uint32_t kFirstExtension = 1000;  // of TrackEvent

// Takes off `text` what stands before `mark`.
std::string_view cut(std::string_view& text, char mark) {
  const size_t at = text.find(mark);
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return part;
}

template <typename T>
T cut_number(std::string_view& text) {
  T number = 0;
  const char* end = std::from_chars(text.data(), text.data() + text.size(), number).ptr;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

std::string full_name(std::string_view name) {
  std::string full(kPackage);
  full += name;
  return full;
}

}  // namespace

void Descriptors::add_known_enum(std::string_view text) {
  auto& values = messages_[static_cast<size_t>(find_or_add(full_name(cut(text, '|'))))].values;
  while (!text.empty()) {
    std::string_view value = cut(text, '|');
    const auto number = static_cast<uint32_t>(cut_number<int32_t>(value));
    values.insert(number, value.substr(1));
  }
}

void Descriptors::add_known_message(std::string_view text) {
  const auto message = static_cast<size_t>(find_or_add(full_name(cut(text, '|'))));
  while (!text.empty()) {
    std::string_view part = cut(text, '|');
    const auto number = cut_number<uint32_t>(part);
    FieldDescriptor field;
    const char kind = part[0];
    field.repeated = kind < 'a';
    field.type = static_cast<uint8_t>(kind - (field.repeated ? 'A' : 'a'));
    field.packed = part[1] == '!';
    field.extension = number >= kFirstExtension;
    part.remove_prefix(field.packed ? 2 : 1);
    field.name = cut(part, ':');
    if (!part.empty()) field.message = find_or_add(full_name(part));
    messages_[message].fields.insert(number, field);
  }
}

// Done when the first event needs them: most traces have none.
void Descriptors::add_known() {
  if (std::exchange(knows_all_, true)) return;
  for (const std::string_view text : kMessages) {
    if (text[0] == '=') {
      add_known_enum(text.substr(1));
    } else {
      add_known_message(text);
    }
  }
}

}  // namespace profiler::trace
