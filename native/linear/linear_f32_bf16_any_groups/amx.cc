// Each tile is decoded into a small ring buffer while the matrix unit multiplies those before it.
#include "linear/bf16_tiles_avx512.h"
#include "matrix_unit/groups.h"

namespace tilepress {
namespace {

template <class Decoder>
class StreamedTiles {
 public:
  StreamedTiles(Decoder& decoder, int64_t count) : decoder_(decoder), count_(count) {}

  [[gnu::always_inline]] void prepare(int64_t tile) {
    if (tile < count_) decoder_.next(buffers_[tile & (kBuffers - 1)]);
  }
  const uint16_t* at(int64_t tile) const { return buffers_[tile & (kBuffers - 1)]; }

 private:
  static constexpr int kBuffers = 4;
  Decoder& decoder_;
  int64_t count_;
  alignas(64) uint16_t buffers_[kBuffers][kMaxTileBytes / 2];
};

// The K-panel's scales as float32, kAtOnce groups at a time, while the next kAtOnce are prefetched: they are far from
// the codes, and loading all of a block's scales first cost up to 7 % of its time.
class StreamedScales {
 public:
  explicit StreamedScales(const KPanel& weights) : weights_(weights), groups_(weights) { on_break(0); }

  [[gnu::always_inline]] const float* next(int64_t index) {
    --left_;
    return scales_ + (index - first_) * kBlockNeurons;
  }
  int64_t until_break() const { return left_; }

  [[gnu::noinline]] void on_break(int64_t index) {
    first_ = index;
    left_ = kAtOnce;
    const int64_t count = least(left_, groups_.count - index), from = groups_.first + index;
    with_scale_type(*weights_.format, [&]<ScaleType type>() {
      for (int64_t i = 0; i < count; ++i) {
        _mm512_store_ps(scales_ + i * kBlockNeurons, scales_of<type>(weights_.scales, from + i));
        prefetch_scales<type>(from + i + kAtOnce);
      }
    });
  }

 private:
  static constexpr int64_t kAtOnce = 32;

  template <ScaleType type>
  [[gnu::always_inline]] void prefetch_scales(int64_t group) const {
    constexpr int kBytes = type == ScaleType::fp32 ? 4 : type == ScaleType::e8m0 ? 1 : 2;
    _mm_prefetch(static_cast<const char*>(weights_.scales) + group * kBlockNeurons * kBytes, _MM_HINT_T0);
  }

  const KPanel& weights_;
  KPanelGroups groups_;
  int64_t first_ = 0, left_ = 0;
  alignas(64) float scales_[kAtOnce * kBlockNeurons];
};

// Supports codes of at most six bits. With wider ones, scales are too small a part for this to pay.
bool linear_f32_bf16_any_groups(const GroupProduct& product, int64_t* consumed, uint8_t* scratch) {
  const KPanel& weights = *product.weights;
  unpack_dense_bytes(weights, scratch);
  return with_small_source(weights, [&]<class Source, class Values>() {
    using Decoder = TileDecoder<Source, Values, ScaleType::none>;
    Decoder decoder(weights, scratch);
    StreamedTiles<Decoder> tiles(decoder, product.count);
    StreamedScales scales(weights);
    multiply_groups(product, tiles, scales);
    *consumed = decoder.consumed();
  });
}

TILEPRESS_KERNEL(linear_f32_bf16_any_groups);

}  // namespace
}  // namespace tilepress
