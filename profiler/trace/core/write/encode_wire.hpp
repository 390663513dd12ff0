// Writing the protobuf wire format: a growing block for the hot loop, and messages as strings for
// the few packets that are not hot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "containers.hpp"
#include "wire.hpp"

namespace profiler::trace::encode {

constexpr size_t kMaxVarint = 10;

inline uint8_t* put_varint(uint8_t* at, uint64_t value) {
  while (value >= 0x80) {
    *at++ = static_cast<uint8_t>(value) | 0x80;
    value >>= 7;
  }
  *at++ = static_cast<uint8_t>(value);
  return at;
}

inline uint8_t* put_fixed64(uint8_t* at, uint64_t value) {
  std::memcpy(at, &value, sizeof value);  // little-endian, as is every platform we build for
  return at + sizeof value;
}

inline size_t varint_size(uint64_t value) {
  size_t size = 1;
  for (; value >= 0x80; value >>= 7) ++size;
  return size;
}

// A few bytes of wire format, made once and written often. `put` writes eight bytes and moves on
// by `size` of them, so the target needs that much room.
struct Snippet {
  uint64_t bytes = 0;
  uint32_t size = 0;

  void add_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) add_byte(static_cast<uint8_t>(value) | 0x80);
    add_byte(static_cast<uint8_t>(value));
  }
  uint8_t* put(uint8_t* at) const {
    std::memcpy(at, &bytes, sizeof bytes);  // little-endian, as is every platform we build for
    return at + size;
  }

 private:
  void add_byte(uint8_t byte) { bytes |= static_cast<uint64_t>(byte) << (8 * size++); }
};

// Bytes that grow at their end: `room` promises space, `commit` says how much of it was used.
class ByteBuffer {
 public:
  uint8_t* room(size_t size) {
    const size_t needed = bytes_.size() + size;
    if (needed > capacity_) {
      capacity_ = needed < 2 * capacity_ ? 2 * capacity_ : needed;
      bytes_.reserve(capacity_);
    }
    return bytes_.end();
  }
  void commit(const uint8_t* end) { bytes_.set_size(static_cast<size_t>(end - bytes_.begin())); }
  void append(std::string_view bytes) {
    if (bytes.empty()) return;
    uint8_t* at = room(bytes.size());
    std::memcpy(at, bytes.data(), bytes.size());
    commit(at + bytes.size());
  }
  void clear() { bytes_.clear(); }
  uint8_t* data() { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }

 private:
  Column<uint8_t> bytes_;
  size_t capacity_ = 0;
};

// A message as a string, field after field.
class Message {
 public:
  Message& varint(uint32_t field, uint64_t value) {
    raw_varint(tag(field, kVarint));
    raw_varint(value);
    return *this;
  }
  Message& bytes(uint32_t field, std::string_view value) {
    raw_varint(tag(field, kBytes));
    raw_varint(value.size());
    wire_.append(value);
    return *this;
  }
  Message& message(uint32_t field, const Message& value) { return bytes(field, value.wire_); }
  const std::string& wire() const { return wire_; }
  size_t size() const { return wire_.size(); }
  bool empty() const { return wire_.empty(); }

 private:
  void raw_varint(uint64_t value) {
    uint8_t encoded[kMaxVarint];
    const uint8_t* end = put_varint(encoded, value);
    wire_.append(reinterpret_cast<const char*>(encoded), static_cast<size_t>(end - encoded));
  }

  std::string wire_;
};

}  // namespace profiler::trace::encode
