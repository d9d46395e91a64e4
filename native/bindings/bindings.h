// What each file of bindings adds to the module.
#pragma once

#include <nanobind/nanobind.h>

#include "dispatch/decoder.h"

namespace tilepress {

void bind_formats(nanobind::module_& m);
void bind_matrices(nanobind::module_& m);
void bind_row_limits(nanobind::module_& m);
void bind_planes(nanobind::module_& m);
void bind_decoder(nanobind::module_& m);
void bind_kv_stores(nanobind::module_& m);
void bind_step(nanobind::module_& m);
void bind_sampling(nanobind::module_& m);

// A layer from the tuple (matrix, bias or None, group, mantissa); mantissa -1: activations are not quantized. The
// result points into `parts`, which the caller must keep alive.
LinearLayer linear_layer(nanobind::handle parts);

}  // namespace tilepress
