#include "dispatch/kv_sequence.h"

#include "dispatch/checks.h"

namespace tilepress {

KvSequence::KvSequence(const std::vector<const KvStore*>& models, const std::vector<const KvSequenceBlock*>& blocks) {
  require(!models.empty(), "a sequence has at least one layer");
  for (const KvSequenceBlock* block : blocks) {
    require(block->layers.size() == models.size(), "a block is another model's: it has other layers");
  }
  for (size_t i = 0; i < models.size(); ++i) {
    std::vector<KvBlock> own;
    for (const KvSequenceBlock* block : blocks) own.push_back(block->layers[i]);
    layers_.push_back(models[i]->begun_with(own));
  }
}

KvSequence::KvSequence(const std::vector<const KvStore*>& stores) {
  require(!stores.empty(), "a sequence has at least one layer");
  for (const KvStore* store : stores) layers_.push_back(store->in_blocks());
  for (size_t i = 0; i < layers_.size(); ++i) {
    require(layer(i).lengths() == layer(0).lengths(), "layers of a sequence have the same tokens");
  }
}

int64_t KvSequence::allocated() const {
  int64_t total = 0;
  for (const auto& layer : layers_) total += layer->allocated();
  return total;
}

KvSequenceBlock KvSequence::block(int64_t index) const {
  KvSequenceBlock all;
  for (const auto& layer : layers_) all.layers.push_back(layer->block(index));
  return all;
}

KvSequence KvSequence::fork() const {
  require(!is_spoiled_, "a token of this sequence could not be computed");
  KvSequence twin;
  for (const auto& layer : layers_) twin.layers_.push_back(layer->fork());
  return twin;
}

KvStore& KvSequence::layer(size_t index) const {
  require(index < layers_.size(), "there is no such layer");
  return *layers_[index];
}

void KvSequence::crop(int64_t length) {
  for (const auto& layer : layers_) layer->crop({length});
}

}  // namespace tilepress
