// How fast matrix units multiply.
#pragma once

#include <vector>

namespace tilepress {

// Limits of one measurement: its seconds, and the CPUs it takes, as many as Linux' cpu_set_t has.
inline constexpr double kLongestMeasurement = 1.0;
inline constexpr int kMostCpus = 1024;

// Products of int8 tiles, [16, 64] · [64, 16] in registers, per second on each of `cpus`, while all of them multiply:
// `seconds` of it, after a quarter of that to warm up. New threads do it, one per CPU and pinned to it, so the caller's
// own threads stay where they are. Where there is no matrix unit, its emulator multiplies. Throws std::invalid_argument
// where a thread may not run on one of the CPUs.
std::vector<double> tile_rates(const std::vector<int>& cpus, double seconds);

}  // namespace tilepress
