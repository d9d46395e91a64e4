// Any decoder, by a call for each tile, which all but the quickest have anyway: with loops of their own they would take
// megabytes. In a nameless namespace for the reason that pack_block.h gives.
#pragma once

namespace tilepress {
namespace {

template <class Operand>
class CalledDecoder {
 public:
  template <class Decoder>
  explicit CalledDecoder(Decoder& decoder)
      : decoder_(&decoder), next_([](void* of, Operand* tile) { static_cast<Decoder*>(of)->next(tile); }) {}

  void next(Operand* tile) { next_(decoder_, tile); }

 private:
  void* decoder_;
  void (*next_)(void*, Operand*);
};

}  // namespace
}  // namespace tilepress
