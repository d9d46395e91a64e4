// Instruction sets: those that this machine supports, and the active one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tilepress/kernel.h"

namespace tilepress {

std::string_view isa_name(Isa isa);

// Instruction sets that this machine and this build can run, ascending.
const std::vector<Isa>& supported_isas();

// CPU features, by their Linux names, whether or not a kernel uses them.
std::vector<std::string> cpu_features();

// The active instruction set: the one forced last, else the environment variable TILEPRESS_ISA (read once), else the
// highest that is supported. Throws std::invalid_argument, with a list of the supported ones, for one that is not.
Isa active_isa();

// Forces the instruction set of that name; an empty name ends that. Returns the name that was forced before. Throws as
// active_isa does.
std::string force_isa(const std::string& name);

// Whether kernels for `isa` may run while `active` is the active set.
bool permitted(Isa isa, Isa active);

}  // namespace tilepress
