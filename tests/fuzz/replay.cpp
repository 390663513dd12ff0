// Runs a fuzz target over files, once each: for compilers without libFuzzer.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void replay(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> read{std::istreambuf_iterator<char>(file), {}};
  // Exactly as large as the file, so that the sanitizer sees where it ends.
  const std::vector<uint8_t> data(read.begin(), read.end());
  std::fprintf(stderr, "%s\n", path.c_str());
  const auto start = std::chrono::steady_clock::now();
  LLVMFuzzerTestOneInput(data.data(), data.size());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (took.count() > 1) std::fprintf(stderr, "  %.1f s\n", took.count());
}

}  // namespace

int main(int count, char** names) {
  size_t files = 0;
  for (int at = 1; at < count; ++at) {
    if (!std::filesystem::is_directory(names[at])) {
      replay(names[at]), ++files;
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(names[at])) {
      if (entry.is_regular_file()) replay(entry.path()), ++files;
    }
  }
  std::printf("%zu inputs hold\n", files);
  return files == 0;
}
