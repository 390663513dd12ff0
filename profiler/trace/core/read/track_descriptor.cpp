#include "track_descriptor.hpp"

#include <string>

namespace profiler::trace {

namespace {

enum CounterType : uint8_t { kThreadTime = 1, kInstructionCount = 2 };
enum CounterUnit : uint64_t { kNanoseconds = 1, kCount = 2, kBytesUnit = 3 };

Merge merge_of(uint64_t behavior) {
  switch (behavior) {
    case 2: return Merge::kNever;
    case 3: return Merge::kByKey;
    default: return Merge::kByName;
  }
}

}  // namespace

bool DescriptorParser::parse(const Bytes& message) {
  Field field;
  Reader reader(message);
  while (reader.next(field)) {
    if (field.is(kBytes)) take(field);
    if (!field.is(kVarint)) continue;
    switch (field.number) {
      case 1:
        descriptor.uuid = field.value;
        has_uuid_ = true;
        break;
      case 5: descriptor.parent = field.value; break;
      case 9: descriptor.separate = field.boolean(); break;
      case 15: descriptor.merge = merge_of(field.value); break;
      case 17:
        merge_number_ = field.value;
        has_merge_number_ = true;
        break;
      default: break;
    }
  }
  return !reader.bad() && has_uuid_ && finish();
}

// A field that holds text or a message.
void DescriptorParser::take(const Field& field) {
  const Bytes bytes{field.data, field.size};
  switch (field.number) {
    case 2: names_[0] = strings_.intern(field.text()); break;   // name
    case 10: names_[1] = strings_.intern(field.text()); break;  // static_name
    case 13: names_[2] = strings_.intern(field.text()); break;  // atrace_name
    case 16: merge_text_ = strings_.intern(field.text()); break;
    case 3: process_ = bytes; break;
    case 4: thread = bytes; break;
    case 7: take_chrome_thread(field); break;
    case 8: counter_ = bytes; break;
    default: break;
  }
}

void DescriptorParser::take_chrome_thread(const Field& field) {
  Field part;
  for (Reader reader(field); reader.next(part);) {
    if (part.number == 3) descriptor.synthetic = part.boolean();
  }
}

// A track is a thread's, a process', a counter's or its own, in this order.
bool DescriptorParser::finish() {
  for (const StringId name : names_) {
    if (descriptor.name == kNull) descriptor.name = name;
  }
  if (descriptor.merge == Merge::kByKey) take_merge_key();
  if (thread.data != nullptr) return take_ids(thread, true);
  descriptor.separate = descriptor.synthetic = false;
  if (process_.data != nullptr) return take_ids(process_, false);
  if (counter_.data != nullptr) take_counter(counter_);
  return true;
}

void DescriptorParser::take_merge_key() {
  descriptor.merge_key = merge_text_;
  if (merge_text_ != kNull || !has_merge_number_) return;
  descriptor.merge_key =
      strings_.intern_copy("sibling_merge_key_int:" + std::to_string(merge_number_));
}

bool DescriptorParser::take_ids(const Bytes& message, bool of_thread) {
  Field field;
  bool has_pid = false, has_tid = false;
  for (Reader reader(message); reader.next(field);) {
    if (!field.is(kVarint)) continue;
    if (field.number == 1) {
      descriptor.pid = of_thread ? static_cast<int32_t>(field.value)
                                 : static_cast<int64_t>(static_cast<uint32_t>(field.value));
      has_pid = true;
    }
    if (field.number == 2 && of_thread) {
      descriptor.tid = static_cast<int32_t>(field.value);
      has_tid = true;
    }
  }
  descriptor.has_pid = true;
  descriptor.has_tid = of_thread;
  return has_pid && (has_tid || !of_thread);
}

void DescriptorParser::take_counter(const Bytes& message) {
  Field field;
  std::string categories;
  uint64_t unit = 0;
  std::string_view unit_name;
  descriptor.counter = true;
  for (Reader reader(message); reader.next(field);) {
    switch (field.number) {
      case 1: descriptor.counter_type = static_cast<uint8_t>(field.value); break;
      case 2:
        if (!field.is(kBytes)) break;
        if (!categories.empty()) categories += ',';
        categories += field.text();
        break;
      case 3: unit = field.value; break;
      case 4: descriptor.unit_multiplier = field.sint(); break;
      case 5: descriptor.incremental = field.boolean(); break;
      case 6:
        if (field.is(kBytes)) unit_name = field.text();
        break;
      default: break;
    }
  }
  if (!categories.empty()) descriptor.counter_category = strings_.intern_copy(categories);
  if (descriptor.counter_type == kThreadTime) unit = kNanoseconds;
  if (descriptor.counter_type == kInstructionCount) unit = kCount;
  static constexpr const char* kUnits[] = {"", "ns", "count", "bytes"};
  const bool known = unit >= kNanoseconds && unit <= kBytesUnit;
  descriptor.unit = strings_.intern(known ? kUnits[unit] : unit_name);
  if (descriptor.name == kNull) name_counter();
}

void DescriptorParser::name_counter() {
  if (descriptor.counter_type == kThreadTime) descriptor.name = strings_.intern("thread_time");
  if (descriptor.counter_type == kInstructionCount) {
    descriptor.name = strings_.intern("thread_instruction_count");
  }
}

}  // namespace profiler::trace
