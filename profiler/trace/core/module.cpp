#include "core.hpp"

NB_MODULE(_core, module) {
  // Threads that the interpreter leaves behind at exit hold objects, and stderr is the script's.
  nanobind::set_leak_warnings(false);
  module.doc() = "The loops of the trace codec, and of reading profiles: bytes to columns and back.";
  profiler::trace::register_decode(module);
  profiler::trace::register_encode(module);
  profiler::trace::register_profiles(module);
  profiler::trace::register_kineto(module);
  profiler::trace::register_csv(module);
  profiler::trace::register_sqlite(module);
  profiler::trace::register_ranges(module);
}
