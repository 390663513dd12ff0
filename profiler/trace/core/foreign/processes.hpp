// Processes and threads by their system ids, which systems use again.
#pragma once

#include <cstdint>
#include <vector>

#include "containers.hpp"
#include "strings.hpp"

namespace profiler::trace {

constexpr int32_t kNone = -1;  // no row

inline int64_t synthetic_tid(int64_t tid, int64_t pid) {
  return static_cast<int64_t>(static_cast<uint64_t>(pid) << 32 | static_cast<uint64_t>(tid));
}
inline bool is_synthetic_tid(int64_t tid) {
  return (static_cast<uint64_t>(tid) & 0xFFFFFFFF00000000u) != 0;
}

struct Thread {
  int64_t tid = 0;
  int32_t process = kNone;
  StringId name = kNull;
  uint8_t name_priority = 0;
};

struct Process {
  int64_t pid = 0;
  StringId name = kNull;
};

// Threads and processes are numbered in the order of their first mention, from 1: 0 is the idle
// one, as in trace_processor, whose argument `legacy_event.passthrough_utid` shows the number.
class Processes {
 public:
  Processes() : threads_(1), processes_(1) {
    threads_[0].process = 0;
    by_pid_.insert(0, 0);
    by_tid_.insert(key(0, 0), 0);
  }

  // The living process of that pid and its main thread, made where they are unknown.
  int32_t process(int64_t pid);
  // The living thread; a process is made for it where it is unknown.
  int32_t thread(int64_t tid, int64_t pid);
  // The id is used again: what is met under it from now on is something new.
  int32_t restart_process(int64_t pid);
  int32_t restart_thread(int64_t tid, int64_t pid);

  // A later name of the same or higher priority replaces a thread's name.
  void name_thread(int32_t thread, StringId name, uint8_t priority);
  void name_process(int32_t process, StringId name);

  const Thread& thread_row(int32_t row) const { return threads_[static_cast<size_t>(row)]; }
  const Process& process_row(int32_t row) const { return processes_[static_cast<size_t>(row)]; }

 private:
  uint64_t key(int64_t tid, int64_t pid) const;
  int32_t new_thread(int64_t tid, int64_t pid, int32_t process);

  std::vector<Thread> threads_;
  std::vector<Process> processes_;
  IntMap<int32_t> by_pid_;
  IntMap<int32_t> by_tid_;      // key(tid, pid) → thread
  IntMap<uint32_t> tid_epoch_;  // how often all threads of a tid were forgotten
};

}  // namespace profiler::trace
