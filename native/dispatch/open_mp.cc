#include "dispatch/open_mp.h"

#include <dlfcn.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace tilepress {
namespace {

// The library that is loaded into this process already and whose path contains `name`; null if there is none.
void* loaded_library(const char* name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find('/');
    if (path == std::string::npos || line.find(name, path) == std::string::npos) continue;
    if (void* library = dlopen(line.c_str() + path, RTLD_LAZY | RTLD_NOLOAD)) return library;
  }
  return nullptr;
}

// The runtime that torch uses: a process may have several, one for each package that brings its own, and threads of
// another would compete with torch's for cores. dlsym also searches the libraries that libtorch_cpu was linked with.
// Without torch, any libgomp.
OpenMp find_open_mp() {
  for (const char* name : {"/libtorch_cpu.so", "/libgomp"}) {
    void* library = loaded_library(name);
    if (!library) continue;
    OpenMp runtime;
    runtime.parallel = reinterpret_cast<decltype(runtime.parallel)>(dlsym(library, "GOMP_parallel"));
    runtime.thread_number = reinterpret_cast<decltype(runtime.thread_number)>(dlsym(library, "omp_get_thread_num"));
    if (runtime.parallel && runtime.thread_number) return runtime;
  }
  return {};
}

}  // namespace

const OpenMp* open_mp() {
  static const OpenMp runtime = find_open_mp();
  static const pid_t owner = getpid();
  return runtime.parallel && owner == getpid() ? &runtime : nullptr;
}

}  // namespace tilepress
