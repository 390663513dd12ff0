#include "memory.hpp"

#include <algorithm>

// Of the sanitizer's runtime; not every compiler brings <sanitizer/allocator_interface.h>.
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, size_t),
                                              void (*)(const volatile void*));
size_t __sanitizer_get_allocated_size(const volatile void*);
}

namespace profiler::fuzz {
namespace {

bool counting = false;
ptrdiff_t held = 0, most = 0;

void allocated(const volatile void*, size_t size) {
  if (!counting) return;
  held += static_cast<ptrdiff_t>(size);
  most = std::max(most, held);
}

void freed(const volatile void* block) {
  if (counting && block != nullptr) {
    held -= static_cast<ptrdiff_t>(__sanitizer_get_allocated_size(block));
  }
}

}  // namespace

void start_counting_memory() {
  static const int hooks = __sanitizer_install_malloc_and_free_hooks(allocated, freed);
  held = most = 0;
  counting = hooks != 0;
}

size_t stop_counting_memory() {
  counting = false;
  return static_cast<size_t>(most);
}

}  // namespace profiler::fuzz
