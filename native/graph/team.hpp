// Threads that work on one graph together: they live for a call and meet at a barrier twice a sweep.
//
// A sweep takes a fraction of a millisecond, so those who wait spin for a while before they offer their processor to
// others. Unlike run_parts() the size of the team is known only once its threads have started: where the system
// gives none, the work is divided among those there are.
#pragma once
#include <atomic>
#include <thread>
#include <vector>

namespace crfield {
namespace graph {

constexpr int PATIENCE = 5000;  // turns, about a tenth of a millisecond

class Barrier {
 public:
  explicit Barrier(int size) : size_(size) {}

  void wait() {
    const int turn = turn_.load(std::memory_order_relaxed);
    if (here_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      here_.store(0, std::memory_order_relaxed);
      turn_.store(turn + 1, std::memory_order_release);
      return;
    }
    for (int spun = 0; turn_.load(std::memory_order_acquire) == turn; spun++) {
      if (spun < PATIENCE) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
      } else {
        std::this_thread::yield();
      }
    }
  }

 private:
  const int size_;
  std::atomic<int> here_{0}, turn_{0};
};

// body(member, size, barrier) for each member of a team of at most `size`, and no more than there are processors, as
// those who spin would keep the others from working. It must not throw.
template <class Body>
void run_team(int size, Body body) {
  const int processors = (int)std::thread::hardware_concurrency();
  if (processors > 0 && size > processors) size = processors;
  std::vector<std::thread> threads;
  std::atomic<int> agreed{0};
  std::atomic<Barrier*> meeting{nullptr};
  try {
    threads.reserve(size - 1);
    for (int member = 1; member < size; member++)
      threads.emplace_back([&, member] {
        Barrier* barrier = nullptr;
        while (!(barrier = meeting.load(std::memory_order_acquire))) std::this_thread::yield();
        body(member, agreed.load(std::memory_order_relaxed), *barrier);
      });
  } catch (...) {
    // no more threads to be had
  }
  Barrier barrier((int)threads.size() + 1);
  agreed.store((int)threads.size() + 1, std::memory_order_relaxed);
  meeting.store(&barrier, std::memory_order_release);
  body(0, (int)threads.size() + 1, barrier);
  for (auto& thread : threads) thread.join();
}

}  // namespace graph
}  // namespace crfield
