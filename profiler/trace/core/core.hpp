// What module.cpp registers: one function per half of the codec, one for ONNX Runtime's profiles.
#pragma once

#include <nanobind/nanobind.h>

namespace profiler::trace {

void register_decode(nanobind::module_& module);
void register_encode(nanobind::module_& module);
void register_profiles(nanobind::module_& module);

}  // namespace profiler::trace
