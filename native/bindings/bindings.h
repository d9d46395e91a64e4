// Python's doors, one file each.
#pragma once

#include <nanobind/nanobind.h>

#include "dispatch/decoder.h"

namespace tilepress {

void bind_formats(nanobind::module_& m);
void bind_matrices(nanobind::module_& m);
void bind_planes(nanobind::module_& m);
void bind_decoder(nanobind::module_& m);
void bind_kv_cache(nanobind::module_& m);

// Of (matrix, its bias or None, group, mantissa), with mantissa -1 for activations as they are. Whoever takes it holds
// `parts` as long as the layer.
LinearLayer linear_layer(nanobind::handle parts);

}  // namespace tilepress
