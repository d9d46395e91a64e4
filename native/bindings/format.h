// Weight formats made by Python.
#pragma once

#include <memory>
#include <vector>

#include "tilepress/format.h"

namespace tilepress {

// A Format and the tables it points to. All matrices of a format share one, so that it stays cached between layers.
struct OwnedFormat {
  OwnedFormat() = default;
  OwnedFormat(const OwnedFormat&) = delete;

  Format format{};
  std::vector<float> thresholds;
  std::vector<uint8_t> codes;
  std::vector<float> values;
  std::vector<uint16_t> bf16s;
  std::vector<int8_t> integers;
  std::vector<uint16_t> halves;
};

using SharedFormat = std::shared_ptr<const OwnedFormat>;

}  // namespace tilepress
