// Checks of arguments, and sizes as containers take them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace tilepress {

inline void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument(message);
}

inline size_t size(int64_t count) { return static_cast<size_t>(count); }

}  // namespace tilepress
