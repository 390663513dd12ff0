// What a TrackDescriptor says.
#pragma once

#include <array>

#include "strings.hpp"
#include "tracks.hpp"
#include "wire.hpp"

namespace profiler::trace {

class DescriptorParser {
 public:
  explicit DescriptorParser(StringTable& strings) : strings_(strings) {}

  Descriptor descriptor;
  Bytes thread;  // its ThreadDescriptor, if it has one

  // False where the message is damaged or lacks what names the track.
  bool parse(const Bytes& message);

 private:
  void take(const Field& field);
  void take_chrome_thread(const Field& field);
  bool finish();
  void take_merge_key();
  bool take_ids(const Bytes& message, bool of_thread);
  void take_counter(const Bytes& message);
  void name_counter();

  StringTable& strings_;
  Bytes process_, counter_;
  std::array<StringId, 3> names_{kNull, kNull, kNull};  // the first that is there counts
  StringId merge_text_ = kNull;
  uint64_t merge_number_ = 0;
  bool has_merge_number_ = false;
  bool has_uuid_ = false;
};

}  // namespace profiler::trace
