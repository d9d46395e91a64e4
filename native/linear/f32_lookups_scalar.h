// What f32_k_panel.h asks for beside unpacking.
#pragma once

#include "linear/f32_k_panel.h"
#include "pack/unpack_scalar.h"

namespace tilepress {
namespace {

struct Lookups : Scalar {
  using SmallTable = Table;
};

}  // namespace
}  // namespace tilepress
