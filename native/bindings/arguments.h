// Argument types and checks that all bindings share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>

#include "dispatch/checks.h"
#include "dispatch/parallel.h"
#include "tilepress/format.h"

namespace nb = nanobind;

namespace tilepress {

using Bytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ConstBytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ConstFloats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Offsets = nb::ndarray<int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ConstOffsets = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class Array>
void require_size(const Array& array, int64_t size, const char* name) {
  require(static_cast<int64_t>(array.size()) == size,
          std::string(name) + " has " + std::to_string(array.size()) + " entries, not " + std::to_string(size));
}

template <class Choice>
Choice pick(const std::string& name, std::initializer_list<std::pair<const char*, Choice>> choices) {
  for (const auto& [text, choice] : choices) {
    if (name == text) return choice;
  }
  throw std::invalid_argument("unknown choice " + name);
}

inline FloatType float_type_of(const std::string& type) {
  return pick<FloatType>(type, {{"fp32", FloatType::f32}, {"bf16", FloatType::bf16}, {"fp16", FloatType::f16}});
}

// An argument that nanobind must not convert: it would fill a converted copy of an output, and drop it.
inline auto no_convert(const char* name) { return nb::arg(name).noconvert(); }

// The number of threads asked for, limited to most_threads().
inline int check_threads(int threads) {
  require(threads >= 1, "at least one thread is needed");
  return std::min(threads, most_threads());
}

}  // namespace tilepress
