// Columns as NumPy's arrays.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdlib>

#include "containers.hpp"

namespace profiler::trace {

// The column's block, which is the array's from now on.
template <typename T>
nanobind::object array(Column<T>& column) {
  const size_t size = column.size();
  T* data = column.release();
  nanobind::capsule owner(data, [](void* block) noexcept { std::free(block); });
  return nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>>(data, {size}, owner).cast();
}

}  // namespace profiler::trace
