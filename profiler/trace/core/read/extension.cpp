// Our own extension of TrackEvent: commands, calls and spans.
#include "importer.hpp"
#include "plain.hpp"

namespace profiler::trace {

namespace {

enum CommandField : uint32_t {
  kLayer = 1,
  kCommandIndex = 2,
  kOpType = 3,
  kRole = 4,
  kBytesRead = 5,
  kBytesWritten = 6,
  kFlops = 7,
  kShapes = 8,
  kStage = 9,
  kStep = 10,
  kLayerText = 11,
  kOpTypeText = 12,
  kRoleText = 13,
  kShapesText = 14,
  kStageText = 15,
  kPipeline = 16,
  kKernelText = 17,
  kModuleText = 18,
};

}  // namespace

// The text of a number, as the packet sequence of the row defines it in ExtensionDescriptor packets.
StringId Importer::numbered_text(size_t row, uint64_t number) {
  if (number == 0) return kEmpty;
  const auto sequence = static_cast<uint32_t>(output_.slices.call[row]);
  NumberedText& recent = recent_texts_[(number ^ sequence) % recent_texts_.size()];
  if (number == recent.number && sequence == recent.sequence) return recent.id;
  const StringId* id = number <= UINT32_MAX
                           ? descriptors_.text(sequence, static_cast<uint32_t>(number))
                           : nullptr;
  if (id != nullptr) {
    recent = {static_cast<uint32_t>(number), sequence, *id};
    return *id;
  }
  if (mode_ != Mode::kSorted) throw NeedsSorting();
  drop(Drop::kArgument);
  return kEmpty;
}

// A field of a command whose value is a number.
PROFILER_INLINE void Importer::command_number(size_t row, uint32_t field, uint64_t value) {
  SliceTable& slices = output_.slices;
  const auto number = [&](Column<int32_t>& column) {
    slices.put(column, row, static_cast<int32_t>(value), -1);
  };
  const auto amount = [&](Column<int64_t>& column) {
    slices.put(column, row, static_cast<int64_t>(value), int64_t{-1});
  };
  const auto text = [&](Column<int32_t>& column) {
    slices.put(column, row, numbered_text(row, value), kEmpty);
  };
  switch (field) {
    case kCommandIndex: return number(slices.command_index);
    case kBytesRead: return amount(slices.bytes_read);
    case kBytesWritten: return amount(slices.bytes_written);
    case kFlops: return amount(slices.flops);
    case kStep: return number(slices.step);
    case kPipeline: return number(slices.pipeline);
    case kLayerText: return slices.set_layer(row, numbered_text(row, value));
    case kOpTypeText: return text(slices.op_type);
    case kRoleText: return text(slices.role);
    case kShapesText: return text(slices.shapes);
    case kStageText: return text(slices.stage);
    case kKernelText: return text(slices.kernel);
    case kModuleText: return text(slices.module);
    default: return;
  }
}

// A field of a command whose value is a text of its own.
void Importer::command_text(size_t row, const Field& field) {
  SliceTable& slices = output_.slices;
  const auto put = [&](Column<int32_t>& column) {
    slices.put(column, row, text(field), kEmpty);
  };
  switch (field.number) {
    case kLayer:  // mostly the slice's name
      if (output_.strings[slices.name[row]] != field.text()) slices.set_layer(row, text(field));
      return;
    case kOpType: return put(slices.op_type);
    case kRole: return put(slices.role);
    case kShapes: return put(slices.shapes);
    case kStage: return put(slices.stage);
    default: return;
  }
}

void Importer::command_fields(size_t row, const Bytes& bytes) {
  Field field;
  for (Reader reader(bytes.data, bytes.size); reader.next(field);) {
    if (field.is(kVarint)) command_number(row, field.number, field.value);
    if (field.is(kBytes)) command_text(row, field);
  }
}

// The same, where `kLookahead` bytes behind the command may be looked at. What is not a number
// under a tag of one or two bytes is left to `command_fields`.
void Importer::command_numbers(size_t row, const Bytes& bytes) {
  const uint8_t* at = bytes.data;
  const uint8_t* const end = at + bytes.size;
  while (at < end) {
    const bool wide = *at >= 0x80;
    const uint32_t key = wide ? (*at & 0x7Fu) | static_cast<uint32_t>(at[1]) << 7 : *at;
    uint64_t value;
    const uint8_t* const next = read_varint_ahead(at + 1 + wide, end, value);
    if ((key & 7) != kVarint || key < 8 || key >= 1u << 14 || next > end) {
      return command_fields(row, {at, static_cast<size_t>(end - at)});
    }
    command_number(row, key >> 3, value);
    at = next;
  }
}

namespace {

// What a device noted, in ns; -1 for what no device can have.
int64_t noted(uint64_t value) { return value < 1ull << 60 ? static_cast<int64_t>(value) : -1; }

}  // namespace

SliceRef Importer::begin_call(Current& now, int32_t row) {
  CallRow call;
  call.start_ns = now.context->time;
  Field field, part;
  for (Reader reader(now.event->call.data, now.event->call.size); reader.next(field);) {
    switch (field.number) {
      case 1: call.index = static_cast<int32_t>(field.value); break;
      case 2: call.submodule = text(field); break;
      case 3: call.stage = text(field); break;
      case 4: call.branch = text(field); break;
      case 5: call.step = static_cast<int32_t>(field.value); break;
      case 6: call.device = text(field); break;
      case 7: call.ops_traced = field.boolean(); break;
      case 8: {
        std::pair<StringId, StringId> input{kEmpty, kEmpty};
        for (Reader parts(field); parts.next(part);) {
          if (part.number == 1) input.first = text(part);
          if (part.number == 2) input.second = text(part);
        }
        call.inputs.push_back(input);
        break;
      }
      case 9: call.pipeline = static_cast<int32_t>(field.value); break;
      case 10: call.iteration = static_cast<int32_t>(field.value); break;
      case 11: call.device_lag_ns = noted(field.value); break;
      case 12: call.device_duration_ns = noted(field.value); break;
      default: break;
    }
  }
  calls_of_sequences.emplace_back(now.context->sequence, call.index);
  output_.calls.push_back(std::move(call));
  const SliceRef ref = mark(2 * (output_.calls.size() - 1));
  slices_.begin_mark(now.context->time, row, now.category, now.name, ref);
  return ref;
}

SliceRef Importer::begin_span(Current& now, int32_t row) {
  SpanRow span;
  span.start_ns = now.context->time;
  span.name = now.name == kNull ? kEmpty : now.name;
  Field field;
  for (Reader reader(now.event->span.data, now.event->span.size); reader.next(field);) {
    if (field.number == 1) span.kind = text(field);
    if (field.number == 2) span.stage = text(field);
    if (field.number == 3) span.step = static_cast<int32_t>(field.value);
    if (field.number == 4) span.pipeline = static_cast<int32_t>(field.value);
  }
  output_.spans.push_back(span);
  const SliceRef ref = mark(2 * (output_.spans.size() - 1) + 1);
  slices_.begin_mark(now.context->time, row, now.category, now.name, ref);
  return ref;
}

// Calls are marked by even numbers, spans by odd ones.
void Importer::finish() {
  for (const auto& [ref, duration] : slices_.closed_marks) {
    const size_t number = mark_number(ref);
    if (number % 2 == 0) {
      output_.calls[number / 2].duration_ns = duration;
    } else {
      output_.spans[number / 2].duration_ns = duration;
    }
  }
}

}  // namespace profiler::trace
