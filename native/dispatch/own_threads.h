// Threads of our own, beside those of torch.
#pragma once

#include <atomic>
#include <memory>

#include "dispatch/crew.h"

namespace tilepress {

// A crew of its own threads, which sleep between jobs. It serves one caller at a time.
//
// Where torch has an OpenMP runtime, they are a second team of it. So it counts them, and with more threads than there
// are cores its idle ones spin for microseconds only, not for milliseconds in our way.
class OwnThreads {
 public:
  // Those of this process: a fork copies no threads.
  static OwnThreads& of_process();

  // As Crew::run; alone, while another caller is served.
  void run(int workers, Job job, void* context);

  // Lets the threads go, if nobody is served; the next job starts others.
  void end();

 private:
  void start(int workers);

  std::atomic_flag busy_;
  std::shared_ptr<Crew> crew_;
  int workers_ = 0;
};

}  // namespace tilepress
