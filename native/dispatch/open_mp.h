// The OpenMP runtime that torch computes with.
#pragma once

namespace tilepress {

// Entry points of GNU's OpenMP runtime. Compiled programs call them, so they never change.
struct OpenMp {
  void (*parallel)(void (*run)(void*), void* data, unsigned threads, unsigned flags) = nullptr;
  int (*thread_number)() = nullptr;
};

// Null if none is loaded, and in a forked child: the runtime's threads are gone there, and it does not know.
const OpenMp* open_mp();

}  // namespace tilepress
