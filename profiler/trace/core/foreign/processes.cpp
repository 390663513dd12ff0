#include "processes.hpp"

namespace profiler::trace {

uint64_t Processes::key(int64_t tid, int64_t pid) const {
  const uint32_t* epoch = tid_epoch_.find(static_cast<uint64_t>(tid));
  const uint64_t pair = combine(static_cast<uint64_t>(tid), static_cast<uint64_t>(pid));
  return epoch ? combine(pair, *epoch) : pair;
}

int32_t Processes::new_thread(int64_t tid, int64_t pid, int32_t process) {
  const auto row = static_cast<int32_t>(threads_.size());
  threads_.push_back({tid, process, kNull, 0});
  *by_tid_.insert(key(tid, pid), row).first = row;
  return row;
}

int32_t Processes::process(int64_t pid) {
  const auto row = static_cast<int32_t>(processes_.size());
  const auto [known, fresh] = by_pid_.insert(static_cast<uint64_t>(pid), row);
  if (!fresh) return *known;
  processes_.push_back({pid, kNull});
  thread(pid, pid);
  return row;
}

int32_t Processes::thread(int64_t tid, int64_t pid) {
  const int32_t parent = process(pid);
  const int32_t* known = by_tid_.find(key(tid, pid));
  // A thread is dead once another process has taken its process' pid.
  if (known != nullptr && threads_[static_cast<size_t>(*known)].process == parent) return *known;
  return new_thread(tid, pid, parent);
}

int32_t Processes::restart_thread(int64_t tid, int64_t pid) {
  // The row comes before that of an unknown process, as trace_processor numbers them.
  const int32_t row = new_thread(tid, pid, kNone);
  const int32_t parent = process(pid);
  threads_[static_cast<size_t>(row)].process = parent;
  *by_tid_.insert(key(tid, pid), row).first = row;
  return row;
}

int32_t Processes::restart_process(int64_t pid) {
  by_pid_.erase(static_cast<uint64_t>(pid));
  ++*tid_epoch_.insert(static_cast<uint64_t>(pid), 0).first;
  const int32_t main = new_thread(pid, pid, kNone);
  const auto row = static_cast<int32_t>(processes_.size());
  by_pid_.insert(static_cast<uint64_t>(pid), row);
  processes_.push_back({pid, kNull});
  threads_[static_cast<size_t>(main)].process = row;
  return row;
}

void Processes::name_thread(int32_t thread, StringId name, uint8_t priority) {
  Thread& row = threads_[static_cast<size_t>(thread)];
  if (name == kNull || priority < row.name_priority) return;
  row.name = name;
  row.name_priority = priority;
}

void Processes::name_process(int32_t process, StringId name) {
  Process& row = processes_[static_cast<size_t>(process)];
  if (row.name == kNull) row.name = name;
}

}  // namespace profiler::trace
