// The strings of a file: counted, interned, and written ahead of the events that refer to them.
#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <unordered_map>

#include "encode_slices.hpp"

namespace profiler::trace::encode {
namespace {

// Fields of TracePacket, InternedData and google.protobuf's descriptors.
enum : uint32_t {
  kPacket = 1,
  kSequenceId = 10,
  kInternedData = 12,
  kExtensionDescriptor = 72,
  kEventCategories = 1,
  kEventNames = 2,
  kIid = 1,
  kIidName = 2,
  kExtensionSet = 1,
  kFile = 1,
  kFileName = 1,
  kFilePackage = 2,
  kFileEnum = 5,
  kEnumName = 1,
  kEnumValue = 2,
  kValueName = 1,
  kValueNumber = 2,
};

constexpr size_t kPacketBytes = 16384;  // where a packet of strings is closed

void check(bool fits, const char* message) {
  if (!fits) throw std::invalid_argument(message);
}

// Packets of interned strings and of the enum whose values are the texts. Each packet holds
// both, so that compression finds a layer's name and its text close to each other.
class Definitions {
 public:
  explicit Definitions(uint32_t sequence) : sequence_(sequence) {}

  void category(uint64_t iid, std::string_view name) {
    interned_.message(kEventCategories, entry(iid, name));
  }
  void name(uint64_t iid, std::string_view name) {
    interned_.message(kEventNames, entry(iid, name));
    close_if_full();
  }
  void text(uint32_t number, std::string_view text) {
    values_.message(kEnumValue, Message().bytes(kValueName, text).varint(kValueNumber, number));
    close_if_full();
  }
  std::vector<std::string> finish() {
    close();
    return std::move(packets_);
  }

 private:
  static Message entry(uint64_t iid, std::string_view name) {
    return Message().varint(kIid, iid).bytes(kIidName, name);
  }

  void close_if_full() {
    if (interned_.size() + values_.size() >= kPacketBytes) close();
  }

  void close() {
    if (interned_.empty() && values_.empty()) return;
    Message packet;
    packet.varint(kSequenceId, sequence_);
    if (!interned_.empty()) packet.message(kInternedData, interned_);
    if (!values_.empty()) packet.message(kExtensionDescriptor, extension());
    packets_.push_back(Message().message(kPacket, packet).wire());
    interned_ = values_ = Message();
  }

  Message extension() const {
    const std::string type = Message().bytes(kEnumName, "Text").wire() + values_.wire();
    const Message file = Message()
                             .bytes(kFileName, "profile_sd3_texts.proto")
                             .bytes(kFilePackage, "profile_sd3.trace")
                             .bytes(kFileEnum, type);
    return Message().bytes(kExtensionSet, Message().message(kFile, file).wire());
  }

  uint32_t sequence_;
  Message interned_;
  Message values_;
  std::vector<std::string> packets_;
};

Snippet field(uint32_t number, uint64_t value) {
  Snippet snippet;
  snippet.add_varint(tag(number, kVarint));
  snippet.add_varint(value);
  return snippet;
}

Snippet bare(uint64_t value) {
  Snippet snippet;
  snippet.add_varint(value);
  return snippet;
}

// Codes that are used, names that occur most first: they get the shortest iids.
std::vector<uint32_t> used_codes(const Usage& usage) {
  std::vector<uint32_t> codes;
  for (uint32_t code = 0; code < usage.names.size(); ++code) {
    if (usage.names[code] || usage.texts[code]) codes.push_back(code);
  }
  std::stable_sort(codes.begin(), codes.end(),
                   [&](uint32_t a, uint32_t b) { return usage.names[a] > usage.names[b]; });
  return codes;
}

}  // namespace

Usage count_usage(const Commands& commands, size_t strings, size_t tracks) {
  Usage usage{std::vector<uint32_t>(strings), std::vector<uint8_t>(strings)};
  for (size_t row = 0; row < commands.rows; ++row) {
    const auto layer = static_cast<uint32_t>(commands.layer[row]);
    check(layer < strings, "a layer is no index into the strings");
    check(static_cast<uint32_t>(commands.track[row]) < tracks, "a track is no index into tracks");
    const int64_t start_ns = commands.start_ns[row];
    check(commands.duration_ns[row] >= kUnclosed, "a duration is negative");
    check(start_ns < 0 || commands.duration_ns[row] <= INT64_MAX - start_ns,
          "a command ends beyond 64 bits");
    const auto name = static_cast<uint32_t>(commands.name_of(row));
    check(name < strings, "a name is no index into the strings");
    ++usage.names[name];
    usage.texts[layer] = 1;
  }
  for (const int32_t* column : {commands.op_type, commands.role, commands.shapes, commands.stage,
                                commands.kernel, commands.module}) {
    for (size_t row = 0; column != nullptr && row < commands.rows; ++row) {
      const auto code = static_cast<uint32_t>(column[row]);
      check(code < strings, "a text is no index into the strings");
      usage.texts[code] |= code != 0;  // no text is not written, but for a layer
    }
  }
  return usage;
}

Strings intern(uint32_t sequence, const Usage& usage, const std::vector<std::string_view>& strings,
               const std::vector<Extra>& extras, const std::vector<std::string>& categories,
               TextTable& texts) {
  constexpr uint32_t kEventCategoryIids = 3, kEventNameIid = 10;
  Strings result;
  Definitions definitions(sequence);
  std::unordered_map<std::string_view, uint64_t> category_iids;
  for (const std::string& category : categories) {
    result.categories.emplace_back();
    if (category.empty()) continue;
    const auto [at, fresh] = category_iids.try_emplace(category, category_iids.size() + 1);
    if (fresh) definitions.category(at->second, category);
    result.categories.back() = field(kEventCategoryIids, at->second);
  }
  uint64_t iid = 0;
  for (const Extra& extra : extras) {
    definitions.name(++iid, extra.name);
    result.extras.push_back(field(kEventNameIid, iid));
  }
  result.names.resize(strings.size());
  result.numbers.resize(strings.size());
  for (const uint32_t code : used_codes(usage)) {
    if (usage.names[code]) {
      definitions.name(++iid, strings[code]);
      result.names[code] = field(kEventNameIid, iid);
    }
    if (!usage.texts[code]) continue;
    const uint32_t number = texts.number(strings[code]);
    definitions.text(number, strings[code]);
    result.numbers[code] = bare(number);
  }
  result.packets = definitions.finish();
  return result;
}

}  // namespace profiler::trace::encode
