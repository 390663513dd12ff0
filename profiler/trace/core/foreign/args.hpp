// Arguments of events, flattened under trace_processor's keys: `debug.a.b[0].c`.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "descriptors.hpp"
#include "event.hpp"
#include "output.hpp"
#include "sequence.hpp"
#include "translations.hpp"

namespace profiler::trace {

class Args {
 public:
  Args(Output& output, Descriptors& descriptors, const Translations& translations)
      : output_(output), descriptors_(descriptors), translations_(translations) {}

  // All arguments that an event has by its own fields. `typed`: not only annotations; `on_thread`:
  // it lies on a thread's track.
  void add_event(int32_t slice, const Event& event, const Generation& generation, bool typed,
                 bool on_thread);
  void add_int(int32_t slice, std::string_view key, int64_t value);
  void add_uint(int32_t slice, std::string_view key, uint64_t value);
  void add_text(int32_t slice, std::string_view key, std::string_view text);

 private:
  // Below here the slice, its generation and the key so far are members: they are the context of
  // everything that is flattened.
  static constexpr int kMaxNesting = 64;
  static constexpr size_t kMaxKey = 4096;

  // Restores `key_` when it goes out of scope.
  class Key {
   public:
    explicit Key(Args& args) : args_(args), size_(args.key_.size()) {}
    Key(const Key&) = delete;
    Key& operator=(const Key&) = delete;
    ~Key() { args_.key_.resize(size_); }

   private:
    Args& args_;
    size_t size_;
  };

  // The key of an annotation at the top, which most events of a producer have in common.
  struct TopKey {
    std::string name;
    StringId key = kNull;
  };
  static constexpr size_t kTopKeys = 64;

  bool plain_annotation(const Bytes& bytes);
  StringId top_key(std::string_view name);
  bool annotation_name(const Bytes& annotation, std::string& name);
  bool annotation(const Bytes& bytes, int depth, bool& added);
  bool annotation_value(const Bytes& bytes, int depth, bool& added);
  std::optional<bool> annotation_leaf(const Bytes& bytes, bool& added);
  bool annotation_message(const Bytes& bytes, int depth, bool& added);
  bool annotation_dictionary(const Bytes& bytes, int depth, bool& added);
  bool annotation_array(const Bytes& bytes, int depth);
  bool nested_value(const Bytes& bytes, int depth, bool& added);
  bool nested_dictionary(const Bytes& bytes, int depth, bool& added);
  bool nested_leaf(const Bytes& bytes, bool& added);
  bool message(const Bytes& bytes, int32_t type, bool top, int depth);
  bool message_field(const Field& field, const FieldDescriptor& type, int depth);
  bool packed_field(const Field& field, const FieldDescriptor& type, uint32_t& index);
  bool simple_field(const Field& field, const FieldDescriptor& type);
  bool json(std::string_view text);

  void add_rare(const Event& event, bool on_thread);
  void add_location(uint64_t iid, const char* file, const char* function, const char* line,
                    bool as_written = false);
  bool add_interned_location(uint64_t iid);
  void task_execution(const Field& field);
  void log_message(const Field& field, bool on_thread);

  void emit(ArgKind kind, int64_t bits);
  void emit_text(std::string_view text);
  void emit_double(double value);
  void emit_uint(uint64_t value);
  void append(std::string_view part);
  uint32_t* next_index();

  Output& output_;
  Descriptors& descriptors_;
  const Translations& translations_;
  const Generation* generation_ = nullptr;
  int32_t slice_ = kNone;
  std::string key_;
  std::array<TopKey, kTopKeys> top_keys_;
  IntMap<uint32_t> array_sizes_;  // of arrays, by slice and key: begin and end may both add
};

}  // namespace profiler::trace
