// The protobuf wire format: tags, varints and a reader that never leaves its bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace profiler::trace {

enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

constexpr uint32_t tag(uint32_t field, Wire wire) { return field << 3 | wire; }

constexpr int64_t zigzag_decode(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

// Reads one varint from [at, end); returns the position behind it, nullptr where it is cut or
// longer than ten bytes.
inline const uint8_t* read_varint(const uint8_t* at, const uint8_t* end, uint64_t& value) {
  if (at < end && *at < 0x80) {
    value = *at;
    return at + 1;
  }
  uint64_t result = 0;
  for (uint32_t shift = 0; shift < 70; shift += 7) {
    if (at == end) return nullptr;
    const uint8_t byte = *at++;
    result |= static_cast<uint64_t>(byte & 0x7F) << (shift & 63);
    if (byte < 0x80) {
      value = result;
      return at;
    }
  }
  return nullptr;
}

struct Bytes {
  const uint8_t* data = nullptr;
  size_t size = 0;
};

// One field of a message. `value` holds varints and fixed integers; `data` and `size` bytes.
struct Field {
  uint32_t number = 0;
  uint32_t wire = 0;
  uint64_t value = 0;
  const uint8_t* data = nullptr;
  size_t size = 0;

  bool is(uint32_t wanted) const { return wire == wanted; }
  bool boolean() const { return value != 0; }
  int64_t sint() const { return static_cast<int64_t>(value); }
  double real() const {
    double result;
    std::memcpy(&result, &value, sizeof result);
    return result;
  }
  std::string_view text() const { return {reinterpret_cast<const char*>(data), size}; }
};

// The content of a field, nothing where it is a number.
inline Bytes bytes_of(const Field& field) {
  return field.is(kBytes) ? Bytes{field.data, field.size} : Bytes{};
}

// Walks the fields of one message:
//
//   for (Reader reader(data, size); reader.next(field);) …
//   if (reader.bad()) …
//
// A field that is cut, over-long, of an unknown wire type (groups included) or numbered 0 ends
// the walk and sets `bad`.
class Reader {
 public:
  Reader(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}
  explicit Reader(const Bytes& bytes) : Reader(bytes.data, bytes.size) {}
  explicit Reader(const Field& field) : Reader(field.data, field.is(kBytes) ? field.size : 0) {}

  bool next(Field& field) {
    if (at_ == end_) return false;
    uint64_t key;
    const uint8_t* at = read_varint(at_, end_, key);
    if (at == nullptr || key > 0xFFFFFFFFu || key < 8) return fail();
    field.number = static_cast<uint32_t>(key >> 3);
    field.wire = static_cast<uint32_t>(key & 7);
    switch (field.wire) {
      case kVarint:
        at = read_varint(at, end_, field.value);
        if (at == nullptr) return fail();
        break;
      case kFixed64:
        if (end_ - at < 8) return fail();
        std::memcpy(&field.value, at, 8);  // little-endian, as is every platform we build for
        at += 8;
        break;
      case kBytes: {
        uint64_t size;
        at = read_varint(at, end_, size);
        if (at == nullptr || size > static_cast<uint64_t>(end_ - at)) return fail();
        field.data = at;
        field.size = static_cast<size_t>(size);
        at += size;
        break;
      }
      case kFixed32: {
        if (end_ - at < 4) return fail();
        uint32_t value;
        std::memcpy(&value, at, 4);
        field.value = value;
        at += 4;
        break;
      }
      default: return fail();
    }
    at_ = at;
    return true;
  }

  bool bad() const { return bad_; }
  const uint8_t* position() const { return at_; }

 private:
  bool fail() {
    bad_ = true;
    return false;
  }

  const uint8_t* at_;
  const uint8_t* end_;
  bool bad_ = false;
};

}  // namespace profiler::trace
