// Which instruction sets there are, which this machine has, and which one is in force.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tilepress/kernel.h"

namespace tilepress {

std::string_view isa_name(Isa isa);

// Instruction sets that this machine and this build can run, ascending.
const std::vector<Isa>& supported_isas();

// CPU features found, by the names that Linux gives them, whether or not a kernel uses them.
std::vector<std::string> cpu_features();

// The instruction set in force: the one that was forced last; else TILEPRESS_ISA, as it was when first asked for; else
// the highest supported one. Throws std::invalid_argument, with the list of those that work here, when that one is
// unknown or unsupported.
Isa active_isa();

// Forces the set of that name, or none if it has none, and returns the one that was forced before. Throws as above.
std::string force_isa(const std::string& name);

// Whether code for `isa` may run while `active` is in force.
bool permitted(Isa isa, Isa active);

}  // namespace tilepress
