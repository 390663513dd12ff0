// The compiled half of the trace codec, and of readers of other files.
//
//   write/        columns -> packets
//   read/         packets -> columns: all that traces of our own need; begin with read_trace.cpp
//   foreign/      what only traces of other producers need: debug annotations and typed arguments,
//                 the messages that describe them, JSON values and names that Chrome writes,
//                 translated names, ids of processes that the system used twice
//   onnxruntime/  nodes of a profile's JSON -> columns
//   kineto/       complete events of torch.profiler's JSON -> columns
//   csv.cpp       columns of CSV
//   sqlite.cpp    columns of a table of SQLite
//   ranges.cpp    what lies in what on a thread
//
// module.cpp registers one function for each.
#pragma once

#include <nanobind/nanobind.h>

namespace profiler::trace {

void register_decode(nanobind::module_& module);
void register_encode(nanobind::module_& module);
void register_profiles(nanobind::module_& module);
void register_kineto(nanobind::module_& module);
void register_csv(nanobind::module_& module);
void register_sqlite(nanobind::module_& module);
void register_ranges(nanobind::module_& module);

}  // namespace profiler::trace
