#pragma once

#include <nanobind/nanobind.h>

namespace tilepress {

void bind_kv_cache(nanobind::module_& m);

}  // namespace tilepress
