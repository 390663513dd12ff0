#include "kineto_events.hpp"

namespace profiler::trace {

namespace {

constexpr uint64_t kMostNanoseconds = uint64_t{1} << 62;
constexpr int kMostDigits = 19;  // all such numbers fit 64 bits
constexpr int kDecimals = 3;     // of µs: ns

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Microseconds in decimals → ns, to the nearest, to an even one if two are; `null` is no number.
// False for exponents, and for numbers that are no time.
bool nanoseconds(JsonCursor& json, int64_t& value) {
  if (json.peek() == 'n') {
    value = kNoNumber;
    return json.word("null");
  }
  std::string_view text;
  if (!json.number(text)) return false;
  const char* at = text.data();
  const char* end = at + text.size();
  const bool negative = *at == '-';
  if (negative) ++at;
  uint64_t found = 0;
  int digits = 0;
  for (; at < end && is_digit(*at); ++at) {
    if (++digits > kMostDigits) return false;
    found = found * 10 + static_cast<uint64_t>(*at - '0');
  }
  if (found >= kMostNanoseconds / 1000) return false;
  const char* decimals = at < end && *at == '.' ? ++at : at;
  for (; at < end && is_digit(*at) && at - decimals < kDecimals; ++at) {
    found = found * 10 + static_cast<uint64_t>(*at - '0');
  }
  for (auto missing = at - decimals; missing < kDecimals; ++missing) found *= 10;
  if (at < end && is_digit(*at)) {
    const char half = *at++;
    bool more = false;
    for (; at < end && is_digit(*at); ++at) more |= *at != '0';
    found += half > '5' || (half == '5' && (more || found % 2 == 1));
  }
  if (at < end) return false;
  value = negative ? -static_cast<int64_t>(found) : static_cast<int64_t>(found);
  return true;
}

}  // namespace

// What is read of an event, and where texts with escapes are kept.
struct KinetoEvents::Event {
  std::string_view phase, name, category, process, thread;
  int64_t start, duration;
  bool has_kind, has_numbers, is_marked;
  std::string kind;
  std::vector<int64_t> numbers;
  std::string unescaped_key, unescaped_phase, unescaped_name, unescaped_category;

  void clear() {
    phase = name = category = {};
    process = thread = "null";
    start = duration = kNoNumber;
    has_kind = has_numbers = is_marked = false;
    kind.clear();
  }
  bool is_other() const {
    // Counters, instants, begins, ends and metadata.
    return phase.size() == 1 && std::string_view("CiBEM").find(phase[0]) != std::string_view::npos;
  }
};

KinetoEvents::KinetoEvents(const ArgumentNames& of)
    : numbers(of.numbers.size()),
      names(SIZE_MAX),
      categories(SIZE_MAX),
      threads(SIZE_MAX),
      kinds(SIZE_MAX) {
  const auto add = [this](const std::string& name, Reads reads, size_t column) {
    arguments_.at(name.size()).push_back({name, reads, column});  // throws if it is too long
  };
  for (size_t column = 0; column < of.numbers.size(); ++column) {
    add(of.numbers[column], Reads::kNumber, column);
  }
  for (const std::string& name : of.scalars) {
    add(name, name == of.marked ? Reads::kMarked : Reads::kScalar, 0);
  }
  for (const std::string& name : of.values) add(name, Reads::kValue, 0);
}

const KinetoEvents::Argument* KinetoEvents::argument(std::string_view name) const {
  if (name.size() >= arguments_.size()) return nullptr;
  for (const Argument& one : arguments_[name.size()]) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

void KinetoEvents::clear() {
  for (Column<int32_t>* column : {&name, &category, &thread, &arguments, &kind}) column->clear();
  start.clear();
  duration.clear();
  for (Column<int64_t>& column : numbers) column.clear();
  dropped = 0;
  list = {0, 0};
  others.clear();
  marked.clear();
  marked_rows.clear();
}

bool KinetoEvents::scan(std::string_view text) {
  clear();
  JsonCursor json(text);
  return document(json, text.data()) && json.at_end();
}

bool KinetoEvents::document(JsonCursor& json, const char* from) {
  if (!json.take('{') || json.peek() == '}') return false;
  std::string_view key;
  std::string unescaped;
  do {
    if (!json.string(key, unescaped) || !json.take(':')) return false;
    if (key != "traceEvents") {
      if (!json.skip()) return false;
      continue;
    }
    if (list.end != 0 || json.peek() != '[') return false;
    list.begin = static_cast<size_t>(json.at() - from);
    if (!events(json, from)) return false;
    list.end = static_cast<size_t>(json.at() - from);
  } while (json.take(','));
  return list.end != 0 && json.take('}');
}

bool KinetoEvents::events(JsonCursor& json, const char* from) {
  Event found;
  found.numbers.resize(numbers.size());
  json.take('[');
  if (json.take(']')) return true;
  do {
    if (json.peek() != '{') return false;
    const auto begin = static_cast<size_t>(json.at() - from);
    if (!event(json, found)) return false;
    const Span span{begin, static_cast<size_t>(json.at() - from)};
    if (found.phase == "X") {
      add(found, span);
    } else if (found.is_other()) {
      others.push_back(span);
    }
  } while (json.take(','));
  return json.take(']');
}

void KinetoEvents::add(const Event& event, Span span) {
  if (event.start == kNoNumber) {
    ++dropped;
    return;
  }
  if (event.is_marked) {
    marked.push_back(span);
    marked_rows.push_back(name.size());
  }
  name.push(names.intern_copy(event.name));
  category.push(categories.intern_copy(event.category));
  key_.assign(event.process).append(1, ',').append(event.thread);
  thread.push(threads.intern_copy(key_));
  start.push(event.start);
  duration.push(event.duration);
  if (!event.has_kind && !event.has_numbers) {
    arguments.push(-1);
    return;
  }
  arguments.push(static_cast<int32_t>(kind.size()));
  kind.push(kinds.intern_copy(event.kind));
  for (size_t column = 0; column < numbers.size(); ++column) {
    numbers[column].push(event.numbers[column]);
  }
}

bool KinetoEvents::event(JsonCursor& json, Event& event) {
  event.clear();
  json.take('{');
  if (json.take('}')) return true;
  std::string_view key;
  do {
    if (!json.string(key, event.unescaped_key) || !json.take(':')) return false;
    if (!member(json, key, event)) return false;
  } while (json.take(','));
  return json.take('}');
}

bool KinetoEvents::member(JsonCursor& json, std::string_view key, Event& event) {
  switch (key.size()) {
    case 2:
      if (key == "ph") return json.string(event.phase, event.unescaped_phase);
      if (key == "ts") return nanoseconds(json, event.start);
      break;
    case 3:
      if (key == "cat") return json.string(event.category, event.unescaped_category);
      if (key == "pid") return json.scalar(event.process);
      if (key == "tid") return json.scalar(event.thread);
      if (key == "dur") return nanoseconds(json, event.duration);
      break;
    case 4:
      if (key == "name") return json.string(event.name, event.unescaped_name);
      if (key == "args") return args(json, event);
      break;
    default: break;
  }
  return json.skip();
}

bool KinetoEvents::args(JsonCursor& json, Event& event) {
  event.has_kind = event.has_numbers = event.is_marked = false;
  event.kind.clear();
  if (json.peek() == 'n') return json.word("null");
  if (!json.take('{')) return false;
  if (json.take('}')) return true;
  std::string_view key;
  do {
    if (!json.string(key, event.unescaped_key) || !json.take(':')) return false;
    const Argument* found = argument(key);
    if (found != nullptr ? !arg(json, *found, event) : !json.skip()) return false;
  } while (json.take(','));
  return json.take('}');
}

bool KinetoEvents::arg(JsonCursor& json, const Argument& argument, Event& event) {
  std::string_view text;
  if (argument.reads == Reads::kValue ? !json.value(text) : !json.scalar(text)) return false;
  if (!event.has_numbers && !event.has_kind) {
    if (argument.reads != Reads::kValue && text == "null") return true;
    event.numbers.assign(event.numbers.size(), kNoNumber);
  }
  if (argument.reads == Reads::kNumber) {
    int64_t& number = event.numbers[argument.column];
    JsonCursor digits(text);
    if (digits.integer(number) && digits.at_end()) {
      event.has_numbers = true;
      return true;
    }
    number = kNoNumber;
  }
  event.has_kind = true;
  event.is_marked |= argument.reads == Reads::kMarked;
  if (!event.kind.empty()) event.kind += ',';
  event.kind.append(1, '"').append(argument.name).append("\":").append(text);
  return true;
}

}  // namespace profiler::trace
