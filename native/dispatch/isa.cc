#include "dispatch/isa.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "dispatch/features.h"

namespace tilepress {
namespace {

constexpr std::array<std::pair<Isa, std::string_view>, kIsas> kNames = {{
    {Isa::portable, "portable"},
    {Isa::neon_dotprod, "neon_dotprod"},
    {Isa::neon_i8mm, "neon_i8mm"},
    {Isa::avx2, "avx2"},
    {Isa::avx512, "avx512"},
    {Isa::avx512_vnni, "avx512_vnni"},
    {Isa::avx512_vbmi2, "avx512_vbmi2"},
    {Isa::avx512_bf16, "avx512_bf16"},
    {Isa::amx, "amx"},
}};

std::string listing(const std::vector<Isa>& isas) {
  std::string text;
  for (Isa isa : isas) text += (text.empty() ? "" : ", ") + std::string(isa_name(isa));
  return text;
}

// -1: none, and not yet known.
std::atomic<int> forced_now{-1}, without_force{-1};

Isa supported_isa(const std::string& said, std::string_view name) {
  const std::vector<Isa>& supported = supported_isas();
  for (Isa isa : supported) {
    if (isa_name(isa) == name) return isa;
  }
  const bool known = std::any_of(kNames.begin(), kNames.end(), [&](auto& entry) { return entry.second == name; });
  throw std::invalid_argument(said +
                              (known ? " is not supported by this machine" : " is not an instruction set we know") +
                              "; those that work here: " + listing(supported));
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
  const int forced = forced_now.load(std::memory_order_relaxed);
  if (forced >= 0) return static_cast<Isa>(forced);
  const int found = without_force.load(std::memory_order_relaxed);
  if (found >= 0) return static_cast<Isa>(found);
  const char* wanted = std::getenv("TILEPRESS_ISA");
  const Isa isa =
      wanted && *wanted ? supported_isa("TILEPRESS_ISA=" + std::string(wanted), wanted) : supported_isas().back();
  without_force = static_cast<int>(isa);
  return isa;
}

std::string force_isa(const std::string& name) {
  const int wanted = name.empty() ? -1 : static_cast<int>(supported_isa(name, name));
  const int before = forced_now.exchange(wanted);
  return before < 0 ? "" : std::string(isa_name(static_cast<Isa>(before)));
}

// Supported sets are all of one family, so their order in the enumeration decides.
bool permitted(Isa isa, Isa active) {
  const std::vector<Isa>& supported = supported_isas();
  return isa <= active && std::find(supported.begin(), supported.end(), isa) != supported.end();
}

}  // namespace tilepress
