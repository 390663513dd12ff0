// Debug annotations → arguments.
#include <algorithm>
#include <optional>
#include <string>

#include "args.hpp"
#include "json.hpp"

namespace profiler::trace {

namespace {

std::string sanitized(std::string_view name, size_t limit) {
  std::string result(name.substr(0, limit));
  for (char& c : result) {
    if (c == '.' || c == '[' || c == ']') c = '_';
  }
  return result;
}

}  // namespace

// An annotation of a name and one number or text, as most are, in one pass. False where it is not
// plain; then nothing has happened.
bool Args::plain_annotation(const Bytes& bytes) {
  Field field, value;
  uint64_t iid = 0;
  std::string_view name;
  bool named = false, valued = false;
  Reader reader(bytes.data, bytes.size);
  while (reader.next(field)) {
    switch (tag(field.number, static_cast<Wire>(field.wire))) {
      case tag(1, kVarint):
        if (named || field.value == 0) return false;
        iid = field.value;
        named = true;
        break;
      case tag(10, kBytes):
        if (named) return false;
        name = field.text();
        named = true;
        break;
      case tag(2, kVarint):
      case tag(3, kVarint):
      case tag(4, kVarint):
      case tag(5, kFixed64):
      case tag(6, kBytes):
      case tag(7, kVarint):
      case tag(17, kVarint):
        if (valued) return false;
        value = field;
        valued = true;
        break;
      default: return false;
    }
  }
  if (reader.bad() || !named || !valued) return false;
  const Interned* const interned = generation_->interned.get();
  if (iid != 0) {
    const StringId id = interned != nullptr ? interned->annotation_names.find(iid) : kNull;
    if (id == kNull) return false;
    name = output_.strings[id];
  }
  if (name.size() > kMaxKey - key_.size() - 1) return false;
  ArgKind kind = ArgKind::kString;
  int64_t bits = value.sint();
  switch (value.number) {
    case 2: kind = ArgKind::kBool; bits = value.boolean(); break;
    case 3: kind = ArgKind::kUint; break;
    case 4: kind = ArgKind::kInt; break;
    case 5: kind = ArgKind::kReal; break;
    case 7: kind = ArgKind::kPointer; break;
    case 17:
      bits = interned != nullptr ? interned->annotation_values.find(value.value) : kNull;
      if (bits == kNull) return false;
      break;
    default:
      bits = output_.strings.intern(value.text());
      if (bits == kNull) return false;
  }
  const StringId key = top_key(name);
  if (key == kNull) return false;
  output_.args.add(slice_, key, kind, bits);
  return true;
}

StringId Args::top_key(std::string_view name) {
  const size_t ends = name.empty() ? 0 : static_cast<uint8_t>(name.front()) * 7u +
                                             static_cast<uint8_t>(name.back());
  TopKey& known = top_keys_[(name.size() * 31 + ends) % kTopKeys];
  if (known.key == kNull || known.name != name) {
    const Key restore(*this);
    append(sanitized(name, kMaxKey + 1));
    known.key = output_.strings.intern_copy(key_);
    known.name = name;
  }
  return known.key;
}

bool Args::annotation_name(const Bytes& annotation, std::string& name) {
  Field field;
  uint64_t iid = 0;
  bool named = false;
  std::string_view inline_name;
  for (Reader reader(annotation.data, annotation.size); reader.next(field);) {
    if (field.number == 1 && field.is(kVarint)) iid = field.value;
    if (field.number == 10 && field.is(kBytes)) {
      inline_name = field.text();
      named = true;
    }
  }
  if (iid != 0) {
    const StringId id =
        generation_->interned ? generation_->interned->annotation_names.find(iid) : kNull;
    if (id == kNull) return false;
    inline_name = output_.strings[id];
  } else if (!named) {
    return false;
  }
  name = sanitized(inline_name, kMaxKey + 1);
  return true;
}

bool Args::annotation(const Bytes& bytes, int depth, bool& added) {
  std::string name;
  if (depth > kMaxNesting || !annotation_name(bytes, name)) return false;
  const Key restore(*this);
  append(name);
  if (key_.size() > kMaxKey) return false;
  return annotation_value(bytes, depth, added);
}

bool Args::annotation_value(const Bytes& bytes, int depth, bool& added) {
  if (depth > kMaxNesting) return false;
  bool dictionary = false, array = false;
  Field field;
  Reader reader(bytes.data, bytes.size);
  while (reader.next(field)) {
    dictionary |= field.number == 11;
    array |= field.number == 12;
  }
  if (reader.bad()) return false;
  if (dictionary) return annotation_dictionary(bytes, depth, added);
  if (!array) {
    const std::optional<bool> leaf = annotation_leaf(bytes, added);
    return leaf ? *leaf : annotation_message(bytes, depth, added);
  }
  const uint32_t before = *next_index();
  if (!annotation_array(bytes, depth)) return false;
  added |= *next_index() != before;
  return true;
}

bool Args::annotation_dictionary(const Bytes& bytes, int depth, bool& added) {
  Field field;
  for (Reader reader(bytes.data, bytes.size); reader.next(field);) {
    bool inner = false;
    if (field.number == 11 && !annotation(bytes_of(field), depth + 1, inner)) return false;
  }
  added = true;
  return true;
}

bool Args::annotation_array(const Bytes& bytes, int depth) {
  Field field;
  for (Reader reader(bytes.data, bytes.size); reader.next(field);) {
    if (field.number != 12) continue;
    bool added = false;
    {
      const Key restore(*this);
      key_ += '[' + std::to_string(*next_index()) + ']';
      if (!annotation_value(bytes_of(field), depth + 1, added)) return false;
    }
    if (added) ++*next_index();
  }
  return true;
}

// A value that is neither dictionary nor array: whether it could be read, nothing where there is
// none. Where several are set, the first of this order counts.
std::optional<bool> Args::annotation_leaf(const Bytes& bytes, bool& added) {
  static constexpr uint8_t kOrder[] = {2, 3, 4, 5, 6, 17, 7, 9};
  constexpr size_t kValues = sizeof kOrder;
  Field field, value;
  size_t best = kValues;
  for (Reader reader(bytes.data, bytes.size); reader.next(field);) {
    const auto* place = std::find(kOrder, kOrder + kValues, field.number);
    const auto rank = static_cast<size_t>(place - kOrder);
    if (rank == kValues || rank > best) continue;
    best = rank;
    value = field;
  }
  if (best == kValues) return std::nullopt;
  added = true;
  const bool wants_bytes = value.number == 6 || value.number == 9;
  if (value.is(kBytes) != wants_bytes) return false;
  switch (value.number) {
    case 2: emit(ArgKind::kBool, value.boolean()); break;
    case 3: emit(ArgKind::kUint, value.sint()); break;
    case 4: emit(ArgKind::kInt, value.sint()); break;
    case 5: emit_double(value.real()); break;
    case 6: emit_text(value.text()); break;
    case 7: emit(ArgKind::kPointer, value.sint()); break;
    case 9: json(value.text()); break;
    default: {
      const StringId text = generation_->interned
                                ? generation_->interned->annotation_values.find(value.value)
                                : kNull;
      if (text == kNull) return false;
      emit(ArgKind::kString, text);
    }
  }
  return true;
}

// proto_value with the name of its type, or the legacy nested_value.
bool Args::annotation_message(const Bytes& bytes, int depth, bool& added) {
  Field field;
  Bytes proto, nested;
  std::string_view type;
  bool has_proto = false, has_nested = false, has_type = false;
  uint64_t type_iid = 0;
  for (Reader reader(bytes.data, bytes.size); reader.next(field);) {
    if (field.number == 14) {
      proto = bytes_of(field);
      has_proto = true;
    } else if (field.number == 8) {
      nested = bytes_of(field);
      has_nested = true;
    } else if (field.number == 16 && field.is(kBytes)) {
      type = field.text();
      has_type = true;
    } else if (field.number == 13 && field.is(kVarint)) {
      type_iid = field.value;
    }
  }
  if (has_proto) {
    added = true;
    if (!has_type) {
      const StringId id =
          generation_->interned ? generation_->interned->value_type_names.find(type_iid) : kNull;
      if (id == kNull) return false;
      type = output_.strings[id];
    }
    descriptors_.add_known();
    const int32_t message_type = descriptors_.find(type);
    return message_type >= 0 && message(proto, message_type, false, depth + 1);
  }
  return !has_nested || nested_value(nested, depth + 1, added);
}

bool Args::nested_value(const Bytes& bytes, int depth, bool& added) {
  if (depth > kMaxNesting) return false;
  Field field;
  uint64_t type = 0;
  Reader reader(bytes.data, bytes.size);
  while (reader.next(field)) {
    if (field.number == 1 && field.is(kVarint)) type = field.value;
  }
  if (reader.bad()) return false;
  if (type == 1) return nested_dictionary(bytes, depth, added);
  if (type != 2) return nested_leaf(bytes, added);
  for (Reader values(bytes.data, bytes.size); values.next(field);) {
    if (field.number != 4) continue;
    bool inner = false;
    {
      const Key restore(*this);
      key_ += '[' + std::to_string(*next_index()) + ']';
      if (!nested_value(bytes_of(field), depth + 1, inner)) return false;
    }
    if (inner) ++*next_index();
    added |= inner;
  }
  return true;
}

bool Args::nested_dictionary(const Bytes& bytes, int depth, bool& added) {
  Field key, value;
  Reader keys(bytes.data, bytes.size), values(bytes.data, bytes.size);
  while (keys.next(key)) {
    if (key.number != 2 || !key.is(kBytes)) continue;
    do {
      if (!values.next(value)) return false;  // a key without value
    } while (value.number != 3);
    const Key restore(*this);
    append(sanitized(key.text(), kMaxKey + 1));
    bool inner = false;
    if (key_.size() > kMaxKey || !nested_value(bytes_of(value), depth + 1, inner)) return false;
  }
  added = true;
  return true;
}

bool Args::nested_leaf(const Bytes& bytes, bool& added) {
  Field field, value;
  uint32_t best = UINT32_MAX;
  for (Reader reader(bytes.data, bytes.size); reader.next(field);) {
    // Booleans (7) come first, then integers (5), reals (6), texts (8).
    const uint32_t rank = field.number == 7 ? 4 : field.number;
    if (field.number < 5 || field.number > 8 || rank > best) continue;
    best = rank;
    value = field;
  }
  if (best == UINT32_MAX) return true;
  added = true;
  if (value.is(kBytes) != (value.number == 8)) return false;
  switch (value.number) {
    case 5: emit(ArgKind::kInt, value.sint()); break;
    case 6: emit_double(value.real()); break;
    case 7: emit(ArgKind::kBool, value.boolean()); break;
    default: emit_text(value.text());
  }
  return true;
}

bool Args::json(std::string_view text) {
  struct Sink : JsonSink {
    Args& args;
    std::vector<size_t> sizes;  // of the key, outside of each value
    explicit Sink(Args& owner) : args(owner) {}

    void enter_member(std::string_view name) override {
      sizes.push_back(args.key_.size());
      args.key_ += '.';
      args.key_ += name.substr(0, kMaxKey);
    }
    void enter_element() override {
      const uint32_t index = (*args.next_index())++;
      sizes.push_back(args.key_.size());
      args.key_ += '[' + std::to_string(index) + ']';
    }
    void leave() override {
      args.key_.resize(sizes.back());
      sizes.pop_back();
    }
    void boolean(bool value) override { args.emit(ArgKind::kBool, value); }
    void integer(int64_t value) override { args.emit(ArgKind::kInt, value); }
    void real(double value) override { args.emit_double(value); }
    void string(std::string_view value) override {
      args.emit(ArgKind::kString, args.output_.strings.intern_copy(value));
    }
  };
  const size_t size = key_.size();
  Sink sink(*this);
  const bool whole = parse_json(text, sink);
  key_.resize(size);
  if (!whole) output_.drop(Drop::kArgument);
  return whole;
}

}  // namespace profiler::trace
