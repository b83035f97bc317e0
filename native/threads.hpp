// Threads that live for one call. Nothing survives the call, so a forked child never inherits a dead pool,
// and the split of work depends only on the number of threads, so results are reproducible bit for bit.
#pragma once
#include <exception>
#include <thread>
#include <vector>

namespace crfield {

// body(part) for part = 0 … parts-1, the first on the calling thread. The first exception thrown is rethrown.
template <class Body>
void run_parts(int parts, Body body) {
  if (parts <= 1) {
    body(0);
    return;
  }
  std::vector<std::exception_ptr> failed(parts);
  auto guarded = [&](int part) {
    try {
      body(part);
    } catch (...) {
      failed[part] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(parts - 1);
  for (int part = 1; part < parts; part++) {
    try {
      threads.emplace_back(guarded, part);
    } catch (...) {
      guarded(part);  // no thread to be had: do the part here
    }
  }
  guarded(0);
  for (auto& thread : threads) thread.join();
  for (auto& error : failed)
    if (error) std::rethrow_exception(error);
}

}  // namespace crfield
