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

std::atomic<int> forced{-1};       // -1: none
std::atomic<int> default_isa{-1};  // -1: not known yet

Isa supported_isa(const std::string& request, std::string_view name) {
  const std::vector<Isa>& supported = supported_isas();
  for (Isa isa : supported) {
    if (isa_name(isa) == name) return isa;
  }
  const bool known = std::any_of(kNames.begin(), kNames.end(), [&](auto& entry) { return entry.second == name; });
  throw std::invalid_argument(request +
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
  static const std::vector<Isa> supported = [] {
    std::vector<Isa> isas = {Isa::portable};
    for (const auto& [isa, name] : kNames) {
      if (isa != Isa::portable && cpu_has(isa)) isas.push_back(isa);
    }
    return isas;
  }();
  return supported;
}

Isa active_isa() {
  if (const int isa = forced.load(std::memory_order_relaxed); isa >= 0) return static_cast<Isa>(isa);
  if (const int isa = default_isa.load(std::memory_order_relaxed); isa >= 0) return static_cast<Isa>(isa);
  const char* requested = std::getenv("TILEPRESS_ISA");
  const Isa isa = requested && *requested ? supported_isa("TILEPRESS_ISA=" + std::string(requested), requested)
                                          : supported_isas().back();
  default_isa = static_cast<int>(isa);
  return isa;
}

std::string force_isa(const std::string& name) {
  const int requested = name.empty() ? -1 : static_cast<int>(supported_isa(name, name));
  const int before = forced.exchange(requested);
  return before < 0 ? "" : std::string(isa_name(static_cast<Isa>(before)));
}

// Supported sets are of one family, so the order of the enumeration decides.
bool permitted(Isa isa, Isa active) {
  const std::vector<Isa>& supported = supported_isas();
  return isa <= active && std::find(supported.begin(), supported.end(), isa) != supported.end();
}

}  // namespace tilepress
