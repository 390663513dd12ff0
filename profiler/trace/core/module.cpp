#include "core.hpp"

NB_MODULE(_core, module) {
  module.doc() = "The loops of the trace codec: bytes to columns and columns to bytes.";
  profiler::trace::register_decode(module);
  profiler::trace::register_encode(module);
}
