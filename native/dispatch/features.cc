#include "dispatch/features.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#endif

namespace tilepress {
namespace {

// Whether the processor has all of these features.
bool has_all(std::initializer_list<std::string_view> names);

}  // namespace

#if defined(__aarch64__) && defined(__linux__)

namespace {

struct Feature {
  const char* name;
  unsigned long type;  // AT_HWCAP or AT_HWCAP2
  unsigned long bit;
};

// Bit numbers of Linux (uapi/asm/hwcap.h), which never change. Installed headers may be older than the kernel.
constexpr Feature kFeatures[] = {
    {"asimd", AT_HWCAP, 1},    {"fphp", AT_HWCAP, 9},   {"asimdhp", AT_HWCAP, 10},
    {"asimddp", AT_HWCAP, 20}, {"sve", AT_HWCAP, 22},   {"sve2", AT_HWCAP2, 1},
    {"i8mm", AT_HWCAP2, 13},   {"bf16", AT_HWCAP2, 14}, {"sme", AT_HWCAP2, 23},
};

bool has(const Feature& feature) { return getauxval(feature.type) >> feature.bit & 1; }

}  // namespace

bool cpu_has(Isa isa) {
  if (isa == Isa::neon_dotprod) return has_all({"asimddp", "asimdhp"});
  if (isa == Isa::neon_i8mm) return has_all({"asimddp", "asimdhp", "i8mm"});
  return isa == Isa::portable;
}

#elif defined(__x86_64__)

namespace {

struct Registers {
  uint32_t eax, ebx, ecx, edx;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf) {
  Registers r = {};
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

// Register states that the operating system saves (XCR0); 0 without XSAVE.
uint64_t enabled_states() {
  if (!(cpuid(1, 0).ecx >> 27 & 1)) return 0;
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

constexpr uint64_t kAvxState = 0x6, kAvx512State = 0xe6, kAmxState = 0x60000;

struct Feature {
  const char* name;
  uint32_t leaf, subleaf;
  uint32_t Registers::* word;
  int bit;
  uint64_t state;
};

constexpr Feature kFeatures[] = {
    {"fma", 1, 0, &Registers::ecx, 12, kAvxState},
    {"f16c", 1, 0, &Registers::ecx, 29, kAvxState},
    {"avx2", 7, 0, &Registers::ebx, 5, kAvxState},
    {"bmi2", 7, 0, &Registers::ebx, 8, 0},
    {"avx512f", 7, 0, &Registers::ebx, 16, kAvx512State},
    {"avx512dq", 7, 0, &Registers::ebx, 17, kAvx512State},
    {"avx512bw", 7, 0, &Registers::ebx, 30, kAvx512State},
    {"avx512vl", 7, 0, &Registers::ebx, 31, kAvx512State},
    {"avx512_vbmi", 7, 0, &Registers::ecx, 1, kAvx512State},
    {"avx512_vbmi2", 7, 0, &Registers::ecx, 6, kAvx512State},
    {"avx512_vnni", 7, 0, &Registers::ecx, 11, kAvx512State},
    {"avx512_bitalg", 7, 0, &Registers::ecx, 12, kAvx512State},
    {"avx512_vpopcntdq", 7, 0, &Registers::ecx, 14, kAvx512State},
    {"gfni", 7, 0, &Registers::ecx, 8, kAvx512State},
    {"avx512_fp16", 7, 0, &Registers::edx, 23, kAvx512State},
    {"avx_vnni", 7, 1, &Registers::eax, 4, kAvxState},
    {"avx512_bf16", 7, 1, &Registers::eax, 5, kAvx512State},
    {"amx_bf16", 7, 0, &Registers::edx, 22, kAmxState},
    {"amx_tile", 7, 0, &Registers::edx, 24, kAmxState},
    {"amx_int8", 7, 0, &Registers::edx, 25, kAmxState},
};

bool has(const Feature& feature) {
  if ((enabled_states() & feature.state) != feature.state) return false;
  return cpuid(feature.leaf, feature.subleaf).*feature.word >> feature.bit & 1;
}

// Linux lets a process use tile registers only after a request.
bool amx_granted() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool cpu_has(Isa isa) {
  const bool avx2 = has_all({"avx2", "fma", "f16c", "bmi2"});
  const bool avx512 = avx2 && has_all({"avx512f", "avx512bw", "avx512vl", "avx512dq"});
  const bool vnni = avx512 && has_all({"avx512_vnni"});
  const bool vbmi2 = vnni && has_all({"avx512_vbmi", "avx512_vbmi2", "avx512_bitalg", "avx512_vpopcntdq", "gfni"});
  const bool bf16 = vbmi2 && has_all({"avx512_bf16"});
  switch (isa) {
    case Isa::portable:
      return true;
    case Isa::avx2:
      return avx2;
    case Isa::avx512:
      return avx512;
    case Isa::avx512_vnni:
      return vnni;
    case Isa::avx512_vbmi2:
      return vbmi2;
    case Isa::avx512_bf16:
      return bf16;
    case Isa::amx:
      return bf16 && has_all({"avx512_fp16", "amx_tile", "amx_bf16", "amx_int8"}) && amx_granted();
    default:
      return false;
  }
}

#else

namespace {

struct Feature {
  const char* name;
};

constexpr std::array<Feature, 0> kFeatures = {};

bool has(const Feature&) { return false; }

}  // namespace

bool cpu_has(Isa isa) { return isa == Isa::portable; }

#endif

std::vector<std::string> cpu_features() {
  std::vector<std::string> features;
  for (const Feature& feature : kFeatures) {
    if (has(feature)) features.emplace_back(feature.name);
  }
  return features;
}

namespace {

bool has_all(std::initializer_list<std::string_view> names) {
  const std::vector<std::string> features = cpu_features();
  return std::all_of(names.begin(), names.end(), [&](std::string_view name) {
    return std::find(features.begin(), features.end(), name) != features.end();
  });
}

}  // namespace

}  // namespace tilepress
