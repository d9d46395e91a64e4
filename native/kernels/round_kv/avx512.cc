#include "kernels/round_kv/round_token.h"

namespace tilepress {

void avx512::kv_halves(const float* values, const float* offsets, int64_t count, uint16_t* halves) {
  round_halves(values, offsets, count, halves);
}

void avx512::kv_set_key(const KvUnits& keys, int64_t channels, const KvToken& token, const uint16_t* key) {
  round_key(keys, channels, token, key);
}

void avx512::kv_cut_key(const KvUnits& keys, int64_t channels, const KvToken& token) {
  truncate_key(keys, channels, token);
}

void avx512::kv_set_value(const KvUnits& values, int64_t channels, const KvOpenValues& open) {
  round_value(values, channels, open);
}

void avx512::kv_cut_value(const KvUnits& values, int64_t channels, const KvToken& token) {
  truncate_value(values, channels, token);
}

}  // namespace tilepress
