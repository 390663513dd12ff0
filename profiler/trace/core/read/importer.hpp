// Events and descriptors in order of time → rows.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "args.hpp"
#include "descriptors.hpp"
#include "event.hpp"
#include "output.hpp"
#include "sequence.hpp"
#include "slices.hpp"
#include "tracks.hpp"
#include "translations.hpp"

namespace profiler::trace {

// When events reach the importer.
enum class Mode {
  kDirect,    // as they are read
  kWindowed,  // a while later, so that what is only locally out of order can be put in order
  kSorted,    // after the whole trace has been read
};

// Thrown where a trace turns out to need another mode: an event is older than one that has been
// imported, or refers to what comes after it in the file (which only `kSorted` can know).
struct NeedsSorting {
  Mode mode = Mode::kSorted;
};

// What the first look at an event has found out, which cannot be found out again.
struct EventContext {
  int64_t time = 0;
  uint32_t sequence = 0;  // place in the reader's sequences
  double counter_value = 0;
  const double* extra_values = nullptr;  // absolute values of extra counters
  uint32_t extra_count = 0;
  int64_t thread_time = 0;
  int64_t instructions = 0;
  bool has_thread_time = false;
  bool has_instructions = false;
};

class Importer {
 public:
  Importer(Output& output, Tracks& tracks, Descriptors& descriptors,
           const Translations& translations, Mode mode)
      : output_(output),
        tracks_(tracks),
        descriptors_(descriptors),
        slices_(output),
        flows_(output),
        args_(output, descriptors, translations),
        translations_(translations),
        mode_(mode) {}

  void event(const Event& event, const EventContext& context, Generation& generation);
  // An event of a plain packet, whose bytes are followed by `kLookahead` more. False where it is
  // out of the ordinary after all: then nothing has happened, and `event` imports it.
  bool plain(const PlainEvent& event, const Bytes& bytes, int64_t time, uint32_t sequence,
             Generation& generation);
  // A TrackDescriptor, ThreadDescriptor or ProcessDescriptor at its place in time.
  void track_descriptor(const Bytes& descriptor);
  int32_t thread_descriptor(const Bytes& descriptor, bool synthetic);
  int32_t process_descriptor(const Bytes& descriptor);
  // Whether an event had fields whose meaning a later descriptor may tell.
  bool met_typed_fields() const { return met_typed_; }
  void forget_texts() { recent_texts_.fill({}); }
  // After the last event.
  void finish();

  // Sequences and the calls that were begun on them: pairs of (sequence, index of the call).
  std::vector<std::pair<uint32_t, int32_t>> calls_of_sequences;

 private:
  // The event at hand, resolved.
  struct Current {
    const Event* event = nullptr;
    const EventContext* context = nullptr;
    Generation* generation = nullptr;
    StringId name = kNull;
    StringId category = kNull;
    uint64_t uuid = 0;
    int32_t track = kNone;  // descriptor track
    int32_t thread = kNone;
    int32_t process = kNone;
    int32_t passthrough = kNone;
    int64_t source_id = 0;
    bool has_source_id = false;
    bool typed = false;      // it has typed fields
    bool by_thread = false;  // no track at all: that of the sequence's thread
  };

  StringId category_of(const Event& event, const Generation& generation);
  StringId joined_categories(const Event& event, const Generation& generation);
  StringId name_of(const Event& event, const Generation& generation);
  bool has_typed_fields(const Event& event) const;
  bool associate(Current& now);
  bool associate_with_track(Current& now);
  bool associate_with_thread(Current& now);
  bool associate_legacy(Current& now);
  int32_t row_of(Current& now, Use use);
  StringId slice_name(const Current& now) const { return translations_.slice(now.name); }
  int32_t async_row_of(Current& now);
  char phase_of(const Current& now) const;
  int32_t thread_of_sequence(const Generation& generation);

  void add_extra_counters(Current& now);
  void add_thread_counters(Current& now);
  void import_phase(Current& now, char phase);
  void begin(Current& now, char phase);
  void end(Current& now);
  void complete(Current& now);
  void instant(Current& now, char phase);
  void legacy_flow(Current& now, char phase);
  void metadata(Current& now);
  void counter(Current& now);

  SliceRef begin_call(Current& now, int32_t row);
  SliceRef begin_span(Current& now, int32_t row);
  void command_fields(size_t row, const Bytes& bytes);
  void command_numbers(size_t row, const Bytes& bytes);
  void command_number(size_t row, uint32_t field, uint64_t value);
  void command_text(size_t row, const Field& field);
  StringId numbered_text(size_t row, uint64_t number);
  void add_args(Current& now, int32_t slice, char phase);
  void add_flows(Current& now, SliceRef slice);
  void add_plain_args(const PlainEvent& plain, const Bytes& bytes, SliceRef slice,
                      const Generation& generation);
  void add_plain_flows(const PlainEvent& plain, const Bytes& bytes, SliceRef slice);
  int64_t start_of(SliceRef slice) const;
  StringId text(const Field& field) {
    return field.is(kBytes) ? output_.strings.intern(field.text()) : kEmpty;
  }
  StringId known_name(const char* name) { return name ? output_.strings.intern(name) : kNull; }
  void drop(Drop why) { output_.drop(why); }

  Output& output_;
  Tracks& tracks_;
  Descriptors& descriptors_;
  Slices slices_;
  Flows flows_;
  Args args_;
  const Translations& translations_;
  Mode mode_;
  bool met_typed_ = false;
  struct NumberedText {
    uint32_t number = 0, sequence = 0;
    StringId id = kEmpty;
  };
  std::array<NumberedText, 1024> recent_texts_{};  // by the lower bits of the number
  uint64_t last_uuid_ = 0;
  int32_t last_track_ = kNone;
};

}  // namespace profiler::trace
