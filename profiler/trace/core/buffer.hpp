// The bytes of Python's objects.
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>

#include "wire.hpp"

namespace profiler::trace {

// The bytes of an object, for as long as this lives.
class Buffer {
 public:
  explicit Buffer(nanobind::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nanobind::python_error();
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  Bytes bytes() const {
    return {static_cast<const uint8_t*>(view_.buf), static_cast<size_t>(view_.len)};
  }
  std::string_view text() const {
    return {static_cast<const char*>(view_.buf), static_cast<size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

}  // namespace profiler::trace
