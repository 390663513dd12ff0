// Message types that a trace describes itself, for typed arguments of its events.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "containers.hpp"
#include "event.hpp"
#include "strings.hpp"
#include "wire.hpp"

namespace profiler::trace {

// google.protobuf.FieldDescriptorProto.Type
enum FieldType : uint8_t {
  kTypeDouble = 1,
  kTypeFloat = 2,
  kTypeInt64 = 3,
  kTypeUint64 = 4,
  kTypeInt32 = 5,
  kTypeFixed64 = 6,
  kTypeFixed32 = 7,
  kTypeBool = 8,
  kTypeString = 9,
  kTypeMessage = 11,
  kTypeBytes = 12,
  kTypeUint32 = 13,
  kTypeEnum = 14,
  kTypeSfixed32 = 15,
  kTypeSfixed64 = 16,
  kTypeSint32 = 17,
  kTypeSint64 = 18,
};

constexpr int32_t kUnresolved = -1;
constexpr int32_t kUnknownType = -2;

struct FieldDescriptor {
  std::string_view name;
  std::string_view type_name;
  int32_t message = kUnresolved;  // of `type_name`
  uint8_t type = 0;
  bool repeated = false;
  bool packed = false;
  bool extension = false;

  // Whether both mean the same; `message` is only looked up.
  bool same(const FieldDescriptor& other) const {
    return name == other.name && type_name == other.type_name && type == other.type &&
           repeated == other.repeated && packed == other.packed && extension == other.extension;
  }
};

struct MessageDescriptor {
  std::string name;  // ".package.Outer.Inner"
  IntMap<FieldDescriptor> fields;
  IntMap<std::string_view> values;  // of an enum
};

class Descriptors {
 public:
  // `budget`: how many bytes may be spent on types that a trace describes.
  Descriptors(StringTable& strings, size_t budget);
  void allow(size_t more) { budget_ += more; }

  // Reads a FileDescriptorSet of a packet sequence, whose bytes must stay. Types known already are
  // added to. False where the budget is spent: the rest stays unknown.
  bool add(Bytes file_descriptor_set, uint32_t sequence);
  // Whether the last set said of any type what was not known before; numbered texts are not meant.
  bool changed() const { return changed_; }

  // Makes the types known that Perfetto's TrackEvent itself has.
  void add_known();

  // The message of that name, -1 where it is unknown.
  int32_t find(std::string_view name) const;
  const MessageDescriptor& operator[](int32_t index) const {
    return messages_[static_cast<size_t>(index)];
  }
  // The field of a message, its type looked up; nullptr where it is unknown.
  const FieldDescriptor* field(int32_t message, uint32_t number);

  int32_t track_event() const { return track_event_; }
  int32_t annotation() const { return annotation_; }
  // Whether TrackEvent's fields 9900 to 9902 are our own extension: the trace says so.
  bool ours(uint32_t number) const { return ours_[number - 9900]; }

  // A numbered text of our extension: the values of its enum `Text`. What the sequence itself
  // defines counts, else what any other does; nullptr where none does.
  const StringId* text(uint32_t sequence, uint32_t number) const {
    const StringId* own = own_texts_.find(uint64_t{sequence} << 32 | number);
    return own != nullptr ? own : texts_.find(number);
  }

 private:
  void add_known_enum(std::string_view text);
  void add_known_message(std::string_view text);
  void add_message(const Field& message, const std::string& scope, int depth);
  void add_enum(const Field& message, const std::string& scope);
  void add_field(const Field& message, const std::string& scope, int32_t parent);
  int32_t find_or_add(const std::string& name);
  int32_t describe(const std::string& name);
  bool spend(size_t bytes);
  int32_t resolve(const std::string& scope, std::string_view name) const;

  StringTable& strings_;
  IntMap<StringId> texts_, own_texts_;  // by number; by sequence and number
  uint32_t sequence_ = 0;               // whose set is being read
  std::vector<MessageDescriptor> messages_;
  std::unordered_map<std::string, int32_t> by_name_;
  std::unordered_map<uint64_t, bool> seen_;  // sets that were read already
  int32_t track_event_ = 0;
  int32_t annotation_ = 0;
  bool ours_[3] = {};
  bool knows_all_ = false;
  size_t budget_;
  bool spent_ = false;  // something did not fit
  bool changed_ = false;
};

}  // namespace profiler::trace
