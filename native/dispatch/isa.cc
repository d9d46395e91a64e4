#include "dispatch/isa.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "dispatch/features.h"

namespace tilepress {
namespace {

constexpr std::array<std::pair<Isa, std::string_view>, 6> kNames = {{
    {Isa::portable, "portable"},
    {Isa::neon_dotprod, "neon_dotprod"},
    {Isa::neon_i8mm, "neon_i8mm"},
    {Isa::avx2, "avx2"},
    {Isa::avx512, "avx512"},
    {Isa::amx, "amx"},
}};

std::string listing(const std::vector<Isa>& isas) {
  std::string text;
  for (Isa isa : isas) text += (text.empty() ? "" : ", ") + std::string(isa_name(isa));
  return text;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  for (const auto& [known, name] : kNames) {
    if (known == isa) return name;
  }
  return "";
}

const std::vector<Isa>& supported_isas() {
  static const std::vector<Isa> found = [] {
    std::vector<Isa> isas = {Isa::portable};
    for (const auto& [isa, name] : kNames) {
      if (isa != Isa::portable && cpu_has(isa)) isas.push_back(isa);
    }
    return isas;
  }();
  return found;
}

Isa active_isa() {
  const std::vector<Isa>& supported = supported_isas();
  const char* forced = std::getenv("TILEPRESS_ISA");
  if (!forced || !*forced) return supported.back();
  for (Isa isa : supported) {
    if (isa_name(isa) == forced) return isa;
  }
  const bool known = std::any_of(kNames.begin(), kNames.end(), [&](auto& entry) { return entry.second == forced; });
  throw std::invalid_argument("TILEPRESS_ISA=" + std::string(forced) +
                              (known ? " is not supported by this machine" : " is not an instruction set we know") +
                              "; those that work here: " + listing(supported));
}

// Supported sets are all of one family, so their order in the enumeration decides.
bool permitted(Isa isa, Isa active) {
  const std::vector<Isa>& supported = supported_isas();
  return isa <= active && std::find(supported.begin(), supported.end(), isa) != supported.end();
}

}  // namespace tilepress
