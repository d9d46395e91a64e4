// Compiled for: portable avx2 avx512
// Weights × the values of a page that fills. Products and their sums are exact, in any order.
#include "quantize/kv_units.h"

namespace tilepress {
namespace {

// Sixteen channels.
class OpenChannels {
 public:
  OpenChannels(const KvOpenMix& all, int64_t channel) : all_(all), halves_(all.open.halves + channel) {}

  void mix(float* out) {
    for (int64_t token = 0; token < all_.open.count; ++token) {
      const bool rises = raise(token), is_first = token == all_.first;
      if (token < all_.first) continue;
      const int64_t changed = token + all_.narrow - 1;  // got fewer bits just now
      for (int64_t i = rises || is_first ? 0 : token; i <= token; ++i) round(i, token);
      if (changed >= 0 && changed < token) round(changed, token);
      for (int64_t row = 0; row < all_.rows; ++row) {
        const int64_t at = (token - all_.first) * all_.rows + row;
        mix_row(all_.weights + at * kKvPageTokens, token + 1, out + at * all_.channels);
      }
    }
  }

 private:
  // Whether an exponent rises by the token.
  bool raise(int64_t token) {
    const Sixteen own = Sixteen::halves(halves_ + token * all_.open.stride);
    Uint32s rises = {};
#pragma GCC unroll 4
    for (int i = 0; i < kBlockVectors; ++i) {
      const Uint32s shared = max(exponents_.parts[i], fields_of(own.parts[i]));
      rises |= shared ^ exponents_.parts[i];
      exponents_.parts[i] = shared;
      units_[i] = std::bit_cast<Floats>((max(shared, splat<Uint32s>(1u)) + (127 - 22)) << 23);
    }
    return reduce_lanes(rises, bit_or<Uint32s>)[0];
  }

  void round(int64_t index, int64_t token) {
    const KvOpenValues& open = all_.open;
    const bool is_narrow = index >= open.begin && index < token + all_.narrow;
    const Cut cut(is_narrow ? open.fewer : open.bits, open.nearest);
    const Sixteen own = Sixteen::halves(halves_ + index * open.stride);
#pragma GCC unroll 4
    for (int i = 0; i < kBlockVectors; ++i) {
      const Uint32s whole = integers_of(own.parts[i], exponents_.parts[i], cut);
      values_[index][i] = int_to_floats(std::bit_cast<Int32s>(whole)) * units_[i];
    }
  }

  void mix_row(const float* weights, int64_t count, float* out) const {
    Floats sums[kBlockVectors] = {};
    for (int64_t i = 0; i < count; ++i) {
#pragma GCC unroll 4
      for (int part = 0; part < kBlockVectors; ++part) sums[part] = fma(values_[i][part], weights[i], sums[part]);
    }
    for (int part = 0; part < kBlockVectors; ++part) store(sums[part], out + part * kLanes);
  }

  const KvOpenMix& all_;
  const uint16_t* halves_;
  Sixteen exponents_ = {};
  Floats units_[kBlockVectors], values_[kKvPageTokens][kBlockVectors];
};

void mix_f32_f32_f16(const KvOpenMix& all) {
  for (int64_t channel = 0; channel < all.channels; channel += kKvLanes) {
    OpenChannels(all, channel).mix(all.out + channel);
  }
}

TILEPRESS_KERNEL(mix_f32_f32_f16);

}  // namespace
}  // namespace tilepress
