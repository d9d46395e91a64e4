#include "engine/pages.h"

#include <array>
#include <cstring>
#include <utility>

#include "dispatch/checks.h"
#include "dispatch/linear.h"
#include "dispatch/memory.h"
#include "dispatch/registry.h"

namespace tilepress {
namespace {

// Bytes that nobody has touched yet: the system gives memory to pages when tokens come.
class Untouched {
 public:
  explicit Untouched(size_t bytes) : bytes_(bytes), data_(static_cast<uint8_t*>(allocate_lines(bytes, kLinePair))) {}
  Untouched(Untouched&& other) noexcept : bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)) {}
  ~Untouched() {
    if (data_) free_lines(data_, bytes_, kLinePair);
  }
  uint8_t* data() const { return data_; }

 private:
  size_t bytes_;
  uint8_t* data_;
};

class FloatPages : public PagePool {
 public:
  FloatPages(FloatType type, std::span<const PageShape> layers, int64_t pages, int64_t page_tokens)
      : PagePool(layers, pages, page_tokens), type_(type) {
    for (int64_t layer = 0; layer < static_cast<int64_t>(layers.size()); ++layer) {
      memory_.emplace_back(size(pages * layer_bytes(layer)));
    }
  }

  int64_t page_bytes() const override {
    int64_t bytes = 0;
    for (size_t layer = 0; layer < layers().size(); ++layer) bytes += layer_bytes(static_cast<int64_t>(layer));
    return bytes;
  }

  void write(int64_t layer, int64_t page, int64_t place, const float* keys, const float* values) override {
    const int64_t dim = shape(layer).head_dim, number = bytes_of(type_);
    for (int64_t head = 0; head < shape(layer).kv_heads; ++head, keys += dim, values += dim) {
      uint8_t* key = keys_at(layer, page, head) + place * number;
      for (int64_t i = 0; i < dim; ++i) store_values(type_, keys + i, 1, key + i * page_tokens() * number);
      store_values(type_, values, dim, values_at(layer, page, head) + place * dim * number);
    }
  }

  void read(int64_t layer, int64_t page, float* to) const override {
    const int64_t dim = shape(layer).head_dim, count = page_tokens() * dim;
    std::vector<float> keys(size(count));
    for (int64_t head = 0; head < shape(layer).kv_heads; ++head, to += 2 * count) {
      load_row({keys_at(layer, page, head), type_, nullptr}, 0, count, keys.data());
      for (int64_t i = 0; i < count; ++i) to[i] = keys[size(i % dim * page_tokens() + i / dim)];
      load_row({values_at(layer, page, head), type_, nullptr}, 0, count, to + count);
    }
  }

  void attend(const GroupQueries& group, float* weights, float* out) const override {
    std::array<const void*, kMostPages> keys, values;
    for (size_t i = 0; i < group.pages.size(); ++i) {
      keys[i] = keys_at(group.layer, group.pages[i], group.head);
      values[i] = values_at(group.layer, group.pages[i], group.head);
    }
    choose<ops::attend_f32_f32_fp_pages>()(
        {group.queries, group.seen, group.count, keys.data(), values.data(), type_,
         static_cast<int64_t>(group.pages.size()), page_tokens(), shape(group.layer).head_dim, group.softcap},
        weights, out);
  }

  void copy(int64_t source, int64_t target) override {
    for (size_t i = 0; i < memory_.size(); ++i) {
      const int64_t bytes = layer_bytes(static_cast<int64_t>(i));
      std::memmove(memory_[i].data() + target * bytes, memory_[i].data() + source * bytes, size(bytes));
    }
  }

 private:
  const PageShape& shape(int64_t layer) const { return layers()[size(layer)]; }
  int64_t half_bytes(int64_t layer) const { return page_tokens() * shape(layer).head_dim * bytes_of(type_); }
  int64_t layer_bytes(int64_t layer) const { return shape(layer).kv_heads * 2 * half_bytes(layer); }
  uint8_t* keys_at(int64_t layer, int64_t page, int64_t head) const {
    return memory_[size(layer)].data() + page * layer_bytes(layer) + head * 2 * half_bytes(layer);
  }
  uint8_t* values_at(int64_t layer, int64_t page, int64_t head) const {
    return keys_at(layer, page, head) + half_bytes(layer);
  }

  FloatType type_;
  std::vector<Untouched> memory_;  // of each layer
};

}  // namespace

std::unique_ptr<PagePool> float_pages(FloatType type, std::span<const PageShape> layers, int64_t pages,
                                      int64_t page_tokens) {
  return std::make_unique<FloatPages>(type, layers, pages, page_tokens);
}

}  // namespace tilepress
