#include "args.hpp"

#include <algorithm>
#include <cstring>

namespace profiler::trace {

namespace {

// Source locations that Chrome interns: where their iids stand, and what is shown in their place.
struct InternedLocation {
  const char* iid;
  const char* file;
  const char* function;
  const char* line;
};
#define LOCATION(message, field) \
  {message "." field, message ".file_name", message ".function_name", message ".line_number"}
constexpr InternedLocation kInternedLocations[] = {
    LOCATION("chrome_memory_pressure_notification", "creation_location_iid"),
    LOCATION("begin_impl_frame_args.current_args", "source_location_iid"),
    LOCATION("begin_impl_frame_args.last_args", "source_location_iid"),
    LOCATION("begin_frame_observer_state.last_begin_frame_args", "source_location_iid"),
};
#undef LOCATION
constexpr size_t kShortestIid = 40;  // of these keys: most are shorter

// TrackEvent's own fields that are shown as arguments; extensions always are.
bool is_shown(uint32_t number) {
  return (number >= 24 && number <= 29) || (number >= 32 && number <= 35) ||
         (number >= 38 && number <= 41) || number == 43 || number == 49 || number == 50;
}

std::string base64(const Bytes& bytes) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size; at += 3) {
    const size_t left = bytes.size - at;
    const uint32_t group = static_cast<uint32_t>(bytes.data[at]) << 16 |
                           (left > 1 ? static_cast<uint32_t>(bytes.data[at + 1]) << 8 : 0) |
                           (left > 2 ? static_cast<uint32_t>(bytes.data[at + 2]) : 0);
    text += digits[group >> 18 & 63];
    text += digits[group >> 12 & 63];
    text += left > 1 ? digits[group >> 6 & 63] : '=';
    text += left > 2 ? digits[group & 63] : '=';
  }
  return text;
}

}  // namespace

void Args::append(std::string_view part) {
  if (!key_.empty()) key_ += '.';
  key_ += part;
}

void Args::emit(ArgKind kind, int64_t bits) {
  const StringId key = key_.size() <= kMaxKey ? output_.strings.intern_copy(key_) : kNull;
  if (key == kNull || (kind == ArgKind::kString && bits == kNull)) {
    output_.drop(Drop::kArgument);
    return;
  }
  output_.args.add(slice_, key, kind, bits);
}

void Args::emit_text(std::string_view text) {
  emit(ArgKind::kString, output_.strings.intern(text));
}

void Args::emit_double(double value) {
  int64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  emit(ArgKind::kReal, bits);
}

// A number, and the text that it is the hash of where the trace says so.
void Args::emit_uint(uint64_t value) {
  emit(ArgKind::kUint, static_cast<int64_t>(value));
  StringId text = kNull;
  const std::string_view key = translations_.hashed(key_, value, text);
  if (!key.empty()) output_.args.add(slice_, output_.strings.intern(key), ArgKind::kString, text);
}

// The next free index of the array that the key names.
uint32_t* Args::next_index() {
  const StringId key = key_.size() <= kMaxKey ? output_.strings.intern_copy(key_) : kNull;
  const uint64_t place = static_cast<uint64_t>(slice_) << 32 | static_cast<uint32_t>(key);
  return array_sizes_.insert(place, 0).first;
}

void Args::add_int(int32_t slice, std::string_view key, int64_t value) {
  output_.args.add(slice, output_.strings.intern(key), ArgKind::kInt, value);
}

void Args::add_uint(int32_t slice, std::string_view key, uint64_t value) {
  output_.args.add(slice, output_.strings.intern(key), ArgKind::kUint, static_cast<int64_t>(value));
}

void Args::add_text(int32_t slice, std::string_view key, std::string_view text) {
  const StringId value = output_.strings.intern_copy(text);
  if (value == kNull) {
    output_.drop(Drop::kArgument);
    return;
  }
  output_.args.add(slice, output_.strings.intern(key), ArgKind::kString, value);
}

void Args::add_event(int32_t slice, const Event& event, const Generation& generation, bool typed,
                     bool on_thread) {
  slice_ = slice;
  generation_ = &generation;
  key_.clear();
  if (typed) {
    descriptors_.add_known();
    add_rare(event, on_thread);
    if (!message(event.whole, descriptors_.track_event(), true, 0)) output_.drop(Drop::kArgument);
    key_.clear();
  }
  if (event[kHasAnnotations]) {
    key_ = "debug";
    Field field;
    for (Reader reader(event.whole.data, event.whole.size); reader.next(field);) {
      if (field.number != 4 || !field.is(kBytes)) continue;
      bool added = false;
      if (plain_annotation(bytes_of(field))) continue;
      if (!annotation(bytes_of(field), 0, added)) output_.drop(Drop::kArgument);
    }
    key_.clear();
  }
}

// Fields that trace_processor shows under keys of its own making.
void Args::add_rare(const Event& event, bool on_thread) {
  Field field;
  for (Reader reader(event.whole.data, event.whole.size); reader.next(field);) {
    switch (field.number) {
      case 34:
        add_location(field.value, "source.file_name", "source.function_name", "source.line_number");
        break;
      case 5: task_execution(field); break;
      case 21: log_message(field, on_thread); break;
      case 28: {  // ChromeHistogramSample: its name may be interned
        Field part;
        for (Reader sample(field); sample.next(part);) {
          if (part.number != 4 || !part.is(kVarint) || !generation_->interned) continue;
          const StringId name = generation_->interned->histogram_names.find(part.value);
          if (name != kNull)
            add_text(slice_, "chrome_histogram_sample.name", output_.strings[name]);
        }
        break;
      }
      case 52: add_text(slice_, "correlation_id", "tp:#" + std::to_string(field.value)); break;
      case 53:
        if (field.is(kBytes)) add_text(slice_, "correlation_id", field.text());
        break;
      case 54: {
        const StringId text = generation_->interned
                                  ? generation_->interned->correlation_ids.find(field.value)
                                  : kNull;
        if (text != kNull) {
          add_text(slice_, "correlation_id", output_.strings[text]);
        } else {
          output_.args.add(slice_, output_.strings.intern("correlation_id"), ArgKind::kNull, 0);
        }
        break;
      }
      default: break;
    }
  }
}

void Args::add_location(uint64_t iid, const char* file, const char* function, const char* line,
                        bool as_written) {
  const Interned* interned = generation_->interned.get();
  const int32_t at = interned ? interned->source_locations.find(iid) : kNone;
  if (iid == 0 || at == kNone) {
    output_.drop(Drop::kArgument);
    return;
  }
  const SourceLocation& location = interned->locations[static_cast<size_t>(at)];
  std::string path(output_.strings[std::max(location.file, kEmpty)]);
  if (!as_written) std::replace(path.begin(), path.end(), '\\', '/');
  add_text(slice_, file, path);
  add_text(slice_, function, output_.strings[std::max(location.function, kEmpty)]);
  add_uint(slice_, line, location.line);
}

void Args::task_execution(const Field& field) {
  Field part;
  uint64_t iid = 0;
  for (Reader reader(field); reader.next(part);) {
    if (part.number == 1) iid = part.value;
  }
  add_location(iid, "task.posted_from.file_name", "task.posted_from.function_name",
               "task.posted_from.line_number");
}

void Args::log_message(const Field& field, bool on_thread) {
  Field part;
  uint64_t location = 0, body = 0;
  int64_t priority = 0;
  bool has_location = false, has_priority = false;
  for (Reader reader(field); reader.next(part);) {
    if (part.number == 1) {
      location = part.value;
      has_location = true;
    }
    if (part.number == 2) body = part.value;
    if (part.number == 3) {
      priority = static_cast<int32_t>(part.value);
      has_priority = true;
    }
  }
  const StringId text =
      generation_->interned ? generation_->interned->log_bodies.find(body) : kNull;
  if (!on_thread || text == kNull) {
    output_.drop(Drop::kArgument);
    return;
  }
  add_text(slice_, "track_event.log_message", output_.strings[text]);
  if (has_priority) add_int(slice_, "track_event.priority", priority);
  if (has_location) {
    add_location(location, "track_event.log_message.file_name",
                 "track_event.log_message.function_name", "track_event.log_message.line_number",
                 true);
  }
}

bool Args::message(const Bytes& bytes, int32_t type, bool top, int depth) {
  if (depth > kMaxNesting) return false;
  if (type == descriptors_.annotation()) {
    bool added = false;
    return annotation(bytes, depth, added);
  }
  IntMap<uint32_t> indices;
  bool empty = true;
  Field field;
  for (Reader reader(bytes.data, bytes.size); reader.next(field);) {
    empty = false;
    if (top && field.number >= 9900 && field.number <= 9902 && descriptors_.ours(field.number)) {
      continue;  // stands in columns
    }
    const FieldDescriptor* described = descriptors_.field(type, field.number);
    if (described == nullptr) continue;
    if (top && !described->extension && !is_shown(field.number)) continue;
    if (described->packed) {
      if (!packed_field(field, *described, *indices.insert(field.number, 0).first)) return false;
      continue;
    }
    const Key restore(*this);
    const bool inlined =
        described->type == kTypeMessage && described->message == descriptors_.annotation();
    if (!inlined) append(described->name);
    if (described->repeated && !inlined) {
      key_ += '[' + std::to_string((*indices.insert(field.number, 0).first)++) + ']';
    }
    if (key_.size() > kMaxKey || !message_field(field, *described, depth)) return false;
  }
  if (empty) emit(ArgKind::kNull, 0);
  return true;
}

bool Args::message_field(const Field& field, const FieldDescriptor& type, int depth) {
  if (field.is(kVarint) && add_interned_location(field.value)) return true;
  if (type.type != kTypeMessage) return simple_field(field, type);
  return type.message >= 0 && field.is(kBytes) &&
         message(bytes_of(field), type.message, false, depth + 1);
}

// A location that Chrome interns in a message: shown in place of its number.
bool Args::add_interned_location(uint64_t iid) {
  const Interned* interned = generation_->interned.get();
  if (key_.size() < kShortestIid || interned == nullptr) return false;
  for (const InternedLocation& known : kInternedLocations) {
    if (key_ != known.iid || interned->source_locations.find(iid) == kNone) continue;
    add_location(iid, known.file, known.function, known.line);
    return true;
  }
  return false;
}

bool Args::packed_field(const Field& field, const FieldDescriptor& type, uint32_t& index) {
  if (!field.is(kBytes)) return false;
  const uint8_t* at = field.data;
  const uint8_t* end = field.data + field.size;
  while (at < end) {
    Field one;
    one.number = field.number;
    switch (type.type) {
      case kTypeFixed32:
      case kTypeSfixed32:
      case kTypeFloat: {
        if (end - at < 4) return false;
        uint32_t value;
        std::memcpy(&value, at, 4);
        one.value = value;
        at += 4;
        break;
      }
      case kTypeFixed64:
      case kTypeSfixed64:
      case kTypeDouble:
        if (end - at < 8) return false;
        std::memcpy(&one.value, at, 8);
        at += 8;
        break;
      default:
        at = read_varint(at, end, one.value);
        if (at == nullptr) return false;
    }
    const Key restore(*this);
    append(type.name);
    key_ += '[' + std::to_string(index++) + ']';
    if (!simple_field(one, type)) return false;
  }
  return true;
}

bool Args::simple_field(const Field& field, const FieldDescriptor& type) {
  const bool wants_bytes = type.type == kTypeString || type.type == kTypeBytes;
  if (field.is(kBytes) != wants_bytes) return false;
  switch (type.type) {
    case kTypeInt32:
    case kTypeSfixed32: emit(ArgKind::kInt, static_cast<int32_t>(field.value)); break;
    case kTypeSint32: emit(ArgKind::kInt, zigzag_decode(static_cast<uint32_t>(field.value))); break;
    case kTypeInt64:
    case kTypeSfixed64: emit(ArgKind::kInt, field.sint()); break;
    case kTypeSint64: emit(ArgKind::kInt, zigzag_decode(field.value)); break;
    case kTypeUint32:
    case kTypeFixed32: emit_uint(static_cast<uint32_t>(field.value)); break;
    case kTypeUint64:
    case kTypeFixed64: emit_uint(field.value); break;
    case kTypeBool: emit(ArgKind::kBool, field.boolean()); break;
    case kTypeDouble: emit_double(field.real()); break;
    case kTypeFloat: {
      const auto bits = static_cast<uint32_t>(field.value);
      float value;
      std::memcpy(&value, &bits, sizeof value);
      emit_double(static_cast<double>(value));
      break;
    }
    case kTypeString: emit_text(field.text()); break;
    case kTypeBytes:
      emit(ArgKind::kString, output_.strings.intern_copy(base64({field.data, field.size})));
      break;
    case kTypeEnum: {
      const auto number = static_cast<int32_t>(field.value);
      std::string text = std::to_string(number);
      if (type.message >= 0) {
        const auto& values = descriptors_[type.message].values;
        const std::string_view* named = values.find(static_cast<uint32_t>(number));
        if (named != nullptr) text = *named;
      }
      emit(ArgKind::kString, output_.strings.intern_copy(text));
      break;
    }
    default: return false;
  }
  return true;
}

}  // namespace profiler::trace
