// Our own extension of TrackEvent: commands, calls and spans.
#include "importer.hpp"

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
};

}  // namespace

// The text of a number; numbers are defined in ExtensionDescriptor packets.
StringId Importer::numbered_text(const Field& field) {
  NumberedText& recent = recent_texts_[field.number & 15];
  if (field.value == recent.number) return recent.id;
  const StringId* id = descriptors_.texts.find(field.value);
  if (id != nullptr) {
    recent = {field.value, *id};
    return *id;
  }
  if (mode_ != Mode::kSorted) throw NeedsSorting();
  drop(Drop::kArgument);
  return kEmpty;
}

void Importer::command_fields(size_t row, const Bytes& bytes) {
  SliceTable& slices = output_.slices;
  Field field;
  for (Reader reader(bytes.data, bytes.size); reader.next(field);) {
    if (field.is(kVarint)) {
      switch (field.number) {
        case kCommandIndex:
          slices.command_index.put(row, static_cast<int32_t>(field.value), -1);
          break;
        case kBytesRead: slices.bytes_read.put(row, field.sint(), -1); break;
        case kBytesWritten: slices.bytes_written.put(row, field.sint(), -1); break;
        case kFlops: slices.flops.put(row, field.sint(), -1); break;
        case kStep: slices.step.put(row, static_cast<int32_t>(field.value), -1); break;
        case kLayerText: slices.layer[row] = numbered_text(field); break;
        case kOpTypeText: slices.op_type.put(row, numbered_text(field), kEmpty); break;
        case kRoleText: slices.role.put(row, numbered_text(field), kEmpty); break;
        case kShapesText: slices.shapes.put(row, numbered_text(field), kEmpty); break;
        case kStageText: slices.stage.put(row, numbered_text(field), kEmpty); break;
        default: break;
      }
    } else if (field.is(kBytes)) {
      switch (field.number) {
        case kLayer:  // mostly the slice's name
          if (output_.strings[slices.name[row]] != field.text()) slices.layer[row] = text(field);
          break;
        case kOpType: slices.op_type.put(row, text(field), kEmpty); break;
        case kRole: slices.role.put(row, text(field), kEmpty); break;
        case kShapes: slices.shapes.put(row, text(field), kEmpty); break;
        case kStage: slices.stage.put(row, text(field), kEmpty); break;
        default: break;
      }
    }
  }
}

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
