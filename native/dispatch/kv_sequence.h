// Packed keys and values of one sequence in all layers: a store each. Sequences share full pages.
#pragma once

#include <memory>
#include <vector>

#include "dispatch/kv_store.h"

namespace tilepress {

// A page in all layers.
struct KvSequenceBlock {
  std::vector<KvBlock> layers;
};

class KvSequence {
 public:
  // `models`: empty stores of one sequence, one per layer, which tell what kind each is. Throws std::invalid_argument
  // if they are not, or if the blocks are another model's.
  KvSequence(const std::vector<const KvStore*>& models, const std::vector<const KvSequenceBlock*>& blocks);
  // Copies of stores of one sequence each. Throws std::invalid_argument if they differ in length.
  explicit KvSequence(const std::vector<const KvStore*>& stores);
  KvSequence(KvSequence&&) = default;

  int64_t length() const { return layers_.front()->lengths().front(); }
  int64_t allocated() const;  // bytes, those of shared blocks too
  KvSequenceBlock block(int64_t index) const;
  KvSequence fork() const;
  void crop(int64_t length);

  // One with a token that could not be computed: its layers may differ in length, and it takes no more tokens.
  void spoil() { is_spoiled_ = true; }
  bool is_spoiled() const { return is_spoiled_; }

  size_t layer_count() const { return layers_.size(); }
  // Throws std::invalid_argument if there is no such layer.
  KvStore& layer(size_t index) const;

 private:
  KvSequence() = default;  // for fork

  std::vector<std::unique_ptr<KvStore>> layers_;
  bool is_spoiled_ = false;
};

}  // namespace tilepress
