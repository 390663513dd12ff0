#include "profile_nodes.hpp"

#include <stdexcept>

namespace profiler::trace {

namespace {

constexpr std::string_view kSuffix = "_kernel_time";
constexpr int64_t kMostMicroseconds = int64_t{1} << 50;  // 35 years: ns fit int64
constexpr int64_t kMostThread = int64_t{1} << 62;
constexpr size_t kDigits = 18;  // of a number of bytes

// What is read of an event's arguments: texts, then values of any kind.
enum Argument : size_t {
  kArgOpName,
  kArgProvider,
  kArgParameterSize,
  kArgActivationSize,
  kArgOutputSize,
  kArgInUse,
  kArgParent,
  kArgInputs,
  kArgOutputs,
  kArguments
};

// By length first, which tells all but two apart.
Argument argument(std::string_view name) {
  const auto one = [name](std::string_view wanted, Argument found) {
    return name == wanted ? found : kArguments;
  };
  switch (name.size()) {
    case 7: return one("op_name", kArgOpName);
    case 8: return one("provider", kArgProvider);
    case 11: return name[0] == 'p' ? one("parent_name", kArgParent)
                                   : one("output_size", kArgOutputSize);
    case 14: return one("parameter_size", kArgParameterSize);
    case 15: return one("activation_size", kArgActivationSize);
    case 16: return name[0] == 'm' ? one("mem_bytes_in_use", kArgInUse)
                                   : one("input_type_shape", kArgInputs);
    case 17: return one("output_type_shape", kArgOutputs);
    default: return kArguments;
  }
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// A number of bytes; -1 for any other text.
int64_t bytes_of(std::string_view text) {
  if (text.empty() || text.size() > kDigits) return -1;
  int64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return -1;
    value = value * 10 + (c - '0');
  }
  return value;
}

// The parts with their lengths ahead, as one text.
void join(const Kind& kind, std::string& key) {
  size_t size = sizeof(uint32_t) * kKindParts;
  for (const std::string_view part : kind) size += part.size();
  key.resize(size);
  char* at = key.data();
  for (const std::string_view part : kind) {
    const auto length = static_cast<uint32_t>(part.size());
    std::memcpy(at, &length, sizeof length);
    at += sizeof length;
    if (length) std::memcpy(at, part.data(), length);
    at += length;
  }
}

}  // namespace

// What is read of an event, and where texts with escapes are kept.
struct ProfileNodes::Event {
  std::string_view name, category;
  int64_t start = 0, duration = 0, thread = 0;
  bool has_name = false, has_start = false, has_duration = false, has_arguments = false;
  std::array<std::string_view, kArguments> arguments;
  std::string unescaped_name, unescaped_category, unescaped_key;
  std::array<std::string, kArguments> unescaped;

  void clear() {
    name = category = {};
    start = duration = thread = 0;
    has_name = has_start = has_duration = has_arguments = false;
  }
  void clear_arguments() {
    arguments.fill({});
    arguments[kArgInputs] = arguments[kArgOutputs] = "[]";
  }
  bool is_node() const {
    return has_arguments && category == "Node" && ends_with(name, kSuffix);
  }
  bool matters() const {
    return category == "Kernel" || name == "model_run" || name == "profile_truncated";
  }
};

bool ProfileNodes::scan(std::string_view text) {
  others_.clear();
  scanned_ = 0;
  if (text.size() > UINT32_MAX) return false;  // lengths are kept as 32 bits
  const size_t rows = size();
  JsonCursor json(text);
  if (events(json, text.data())) return true;
  set_size(rows);
  others_.clear();
  return false;
}

bool ProfileNodes::events(JsonCursor& json, const char* from) {
  Event found;
  json.take('[');
  while (json.peek() == '{') {
    const char* begin = json.at();
    if (!event(json, found)) return false;
    ++scanned_;
    if (found.is_node()) {
      const auto& arguments = found.arguments;
      add({found.name, arguments[kArgOpName], arguments[kArgProvider],
           arguments[kArgParameterSize], arguments[kArgActivationSize], arguments[kArgOutputSize],
           arguments[kArgInputs], arguments[kArgOutputs]},
          found.thread, found.start, found.duration, arguments[kArgInUse]);
    } else if (found.matters()) {
      others_.push_back({size(), static_cast<size_t>(begin - from),
                         static_cast<size_t>(json.at() - from)});
    }
    if (!json.take(',')) break;
  }
  json.take(']');
  return json.at_end();
}

bool ProfileNodes::event(JsonCursor& json, Event& event) {
  event.clear();
  json.take('{');
  if (json.peek() == '}') return false;  // without a name
  std::string_view name;
  do {
    if (!json.string(name, event.unescaped_key) || !json.take(':')) return false;
    if (!member(json, name, event)) return false;
  } while (json.take(','));
  if (!json.take('}') || !event.has_name || !event.has_start || !event.has_duration) return false;
  return event.duration >= 0 || event.category == "Kernel";
}

bool ProfileNodes::member(JsonCursor& json, std::string_view name, Event& event) {
  const auto within = [](int64_t value) {
    return value > 1 - kMostMicroseconds && value < kMostMicroseconds;  // the least says: none
  };
  if (name == "name") {
    event.has_name = true;
    return json.string(event.name, event.unescaped_name);
  }
  if (name == "cat") return json.string(event.category, event.unescaped_category);
  if (name == "args") return arguments(json, event);
  int64_t* number = name == "ts"    ? &event.start
                    : name == "dur" ? &event.duration
                    : name == "tid" ? &event.thread
                                    : nullptr;
  if (number == nullptr) return json.skip();
  event.has_start |= number == &event.start;
  event.has_duration |= number == &event.duration;
  if (!json.integer(*number)) return false;
  if (number != &event.thread) return within(*number);
  return *number >= -kMostThread && *number < kMostThread;
}

bool ProfileNodes::arguments(JsonCursor& json, Event& event) {
  event.clear_arguments();
  event.has_arguments = json.peek() != 'n';
  if (!event.has_arguments) return json.word("null");
  if (!json.take('{')) return false;
  if (json.take('}')) return true;
  std::string_view name;
  do {
    if (!json.string(name, event.unescaped_key) || !json.take(':')) return false;
    const Argument which = argument(name);
    if (which < kArgInputs) {
      if (!json.string(event.arguments[which], event.unescaped[which])) return false;
      continue;
    }
    json.peek();
    const char* begin = json.at();
    if (!json.skip()) return false;
    if (which != kArguments) {
      event.arguments[which] = {begin, static_cast<size_t>(json.at() - begin)};
    }
  } while (json.take(','));
  return json.take('}');
}

void ProfileNodes::add(const Kind& parts, int64_t node_thread, int64_t node_start,
                       int64_t node_duration, std::string_view in_use) {
  for (const std::string_view part : parts) {
    if (part.size() > UINT32_MAX) throw std::invalid_argument("a text of a node is too long");
  }
  join(parts, key_);
  kind.push(kinds_.intern_copy(key_) - 1);
  thread.push(node_thread);
  start.push(node_start);
  duration.push(node_duration);
  arena.push(bytes_of(in_use));
}

Kind ProfileNodes::kind_at(size_t number) const {
  const std::string_view key = kinds_[static_cast<StringId>(number + 1)];
  Kind kind;
  const char* at = key.data();
  for (std::string_view& part : kind) {
    uint32_t length;
    std::memcpy(&length, at, sizeof length);
    part = {at + sizeof length, length};
    at += sizeof length + length;
  }
  return kind;
}

void ProfileNodes::set_size(size_t rows) {
  kind.set_size(rows);
  for (Column<int64_t>* column : {&thread, &start, &duration, &arena}) column->set_size(rows);
}

}  // namespace profiler::trace
