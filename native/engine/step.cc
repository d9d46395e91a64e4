#include "engine/step.h"

#include <algorithm>
#include <string>

#include "dispatch/parallel.h"
#include "dispatch/registry.h"
#include "tilepress/elementwise.h"

namespace tilepress {
namespace {

void require_norm(const FloatVector& weights, int64_t count) {
  require(weights.empty() || weights.size() == size(count),
          "a norm has " + std::to_string(weights.size()) + " weights, not " + std::to_string(count));
}

void check_attention(const DecoderBlock& block, int64_t hidden) {
  const AttentionHeads& heads = block.heads;
  constexpr int64_t kMost = int64_t{1} << 20;
  if (!block.attends()) return require(block.qkv.empty() && !heads.heads && !heads.kv_heads, "there are no heads");
  require(heads.kv_heads >= 1 && heads.heads >= 1 && heads.heads % heads.kv_heads == 0 && heads.head_dim >= 1 &&
              heads.heads <= kMost && heads.head_dim <= kMost && heads.window >= 0,
          "heads of keys must divide those of queries");
  const int64_t queries = heads.heads * heads.head_dim, keys = heads.kv_heads * heads.head_dim;
  require(block.qkv.size() == 1 || block.qkv.size() == 3, "queries, keys and values have three matrices, or one");
  if (block.qkv.size() == 1) {
    require_layer(block.qkv[0], queries + 2 * keys, hidden);
  } else {
    require_layer(block.qkv[0], queries, hidden);
    require_layer(block.qkv[1], keys, hidden);
    require_layer(block.qkv[2], keys, hidden);
  }
  require_layer(block.o, hidden, queries);
  const bool of_heads = block.q_norm.size() == size(heads.head_dim);
  require_norm(block.q_norm, of_heads ? heads.head_dim : queries);
  require_norm(block.k_norm, of_heads ? heads.head_dim : keys);
  require(block.q_norm.empty() == block.k_norm.empty(), "queries and keys are normed, or neither");
  require(block.sinks.empty() || block.sinks.size() == size(heads.heads), "every head has a sink, or none");
}

void check_block(const DecoderBlock& block, const DecoderModel& model) {
  const int64_t hidden = model.hidden();
  check_attention(block, hidden);
  check(block.feed_forward, hidden);
  for (const FloatVector* norm : {&block.attn_norm, &block.attn_post_norm, &block.ffn_norm, &block.ffn_post_norm}) {
    require_norm(*norm, hidden);
  }
  require(block.rotary < static_cast<int64_t>(model.rotaries.size()), "there is no such rotary embedding");
  if (block.rotary >= 0) {
    require(2 * model.rotaries[size(block.rotary)].pairs() <= block.heads.head_dim, "a head has fewer channels");
  }
}

void check_tokens(const DecoderModel& model) {
  const std::vector<int64_t>& tokens = model.tokens;
  const size_t ranks = model.exchange ? size(model.exchange->ranks()) : 1, rank = size(model.rank());
  require(tokens.size() == ranks + 1 && tokens.front() == 0 && std::ranges::is_sorted(tokens) &&
              model.embedding.rows() == tokens[rank + 1] - tokens[rank],
          "embeddings are of a rank's tokens");
}

// Each vector of as many numbers as there are weights; nothing where there are none.
void norm_each(float* x, int64_t count, const FloatVector& weights, float epsilon) {
  if (weights.empty()) return;
  for (float* one = x; one < x + count; one += weights.size()) rms_norm(one, weights, epsilon, one);
}

}  // namespace

Stepper::Stepper(DecoderModel model, std::unique_ptr<PagePool> pool)
    : model_(std::move(model)), pool_(std::move(pool)) {
  check_tokens(model_);
  require(!model_.blocks.empty() && (!pool_ || pool_->layers().size() == model_.blocks.size()), "a decoder has layers");
  require_layer(model_.output, model_.embedding.rows(), model_.hidden());
  require(model_.norm.size() == size(model_.hidden()), "the last norm has a weight for each channel");
  for (size_t i = 0; i < model_.blocks.size(); ++i) {
    DecoderBlock& block = model_.blocks[i];
    check_block(block, model_);
    require(block.attends() == model_.blocks.front().attends() && (block.attends() || !pool_),
            "all layers of a rank have heads, or none and no pages");
    require(!pool_ || (pool_->layers()[i].kv_heads == block.heads.kv_heads &&
                       pool_->layers()[i].head_dim == block.heads.head_dim),
            "pages are another model's");
    block.heads.sinks = block.sinks.empty() ? nullptr : block.sinks.data();
  }
}

void Stepper::run(const std::vector<StepChunk>& chunks, float* logits, int threads) {
  const Rows rows = rows_of(chunks);
  if (!rows.count()) return;
  const std::lock_guard lock(running_);
  try {
    with_standby_workers(threads, [&] { run(rows, logits, threads); });
  } catch (...) {
    if (model_.exchange) model_.exchange->fail();
    throw;
  }
}

void Stepper::run(const Rows& rows, float* logits, int threads) {
  embed(rows, threads);
  for (size_t layer = 0; layer < model_.blocks.size(); ++layer) run_block(layer, rows, threads);
  if (model_.exchange) share_spoiled(rows);
  give_logits(rows, logits, threads);
}

void Stepper::copy_page(int64_t source, int64_t target) {
  check_page(source);
  check_page(target);
  const std::lock_guard lock(running_);
  pool_->copy(source, target);
}

void Stepper::read_page(int64_t layer, int64_t page, float* to) {
  check_page(page);
  const std::lock_guard lock(running_);
  pool_->read(layer, page, to);
}

const PagePool& Stepper::pool() const {
  require(pool_ != nullptr, "this model has no pages: its sequences are packed");
  return *pool_;
}

void Stepper::check_page(int64_t page) const {
  pool();
  require(page >= 0 && page < pool_->pages(),
          "pages are 0 … " + std::to_string(pool_->pages() - 1) + ", not " + std::to_string(page));
}

void Stepper::check(const StepChunk& chunk) const {
  const auto added = static_cast<int64_t>(chunk.tokens.size());
  require(added > 0 && chunk.start >= 0, "a chunk has tokens, and starts at 0 or later");
  require(chunk.logits >= 0 && chunk.logits <= added, "logits are of some of a chunk's tokens");
  require(added <= model_.longest && chunk.start <= model_.longest - added,
          "a sequence has at most " + std::to_string(model_.longest) + " tokens");
  if (pool_) check_pages(chunk);
  if (!pool_ && model_.blocks.front().attends()) check_packed(chunk);
  for (int64_t token : chunk.tokens) {
    require(token >= 0 && token < model_.vocabulary(), "there is no token " + std::to_string(token));
  }
}

void Stepper::check_pages(const StepChunk& chunk) const {
  const auto held = static_cast<int64_t>(chunk.pages.size()), added = static_cast<int64_t>(chunk.tokens.size());
  require(chunk.start + added <= held * pool_->page_tokens(), "the tokens do not fit in the pages");
  for (int64_t page : chunk.pages) check_page(page);
}

void Stepper::check_packed(const StepChunk& chunk) const {
  require(chunk.packed && chunk.packed->layer_count() == model_.blocks.size(), "a packed sequence is another model's");
  if (chunk.packed->is_spoiled()) return;
  require(chunk.packed->length() == chunk.start, "a packed sequence has " + std::to_string(chunk.packed->length()) +
                                                     " tokens, not " + std::to_string(chunk.start));
  for (size_t i = 0; i < model_.blocks.size(); ++i) {
    const AttentionHeads& heads = model_.blocks[i].heads;
    const KvSizes& sizes = chunk.packed->layer(i).sizes();
    require(sizes.heads == heads.kv_heads && sizes.channels == heads.head_dim && sizes.window == heads.window,
            "a packed sequence is another model's");
  }
}

Stepper::Rows Stepper::rows_of(const std::vector<StepChunk>& chunks) const {
  Rows rows;
  std::vector<int64_t> taken;
  for (const StepChunk& chunk : chunks) {
    check(chunk);
    const auto count = static_cast<int64_t>(chunk.tokens.size());
    rows.sequences.push_back({rows.count(), count, chunk.start, chunk.pages});
    rows.tokens.insert(rows.tokens.end(), chunk.tokens.begin(), chunk.tokens.end());
    rows.packed.push_back(chunk.packed);
    for (int64_t position = chunk.start; position < chunk.start + count; ++position) {
      rows.positions.push_back(position);
      if (!pool_) continue;
      const int64_t page = chunk.pages[size(position / pool_->page_tokens())];
      rows.pages.push_back(page);
      rows.places.push_back(position % pool_->page_tokens());
      taken.push_back(page * pool_->page_tokens() + rows.places.back());
    }
    for (int64_t i = rows.count() - chunk.logits; i < rows.count(); ++i) rows.wanted.push_back(i);
  }
  std::ranges::sort(taken);
  require(std::ranges::adjacent_find(taken) == taken.end(), "two chunks have new tokens in the same place of a page");
  std::vector<KvSequence*> packed = rows.packed;
  std::ranges::sort(packed);
  require(packed.empty() || !packed.back() || std::ranges::adjacent_find(packed) == packed.end(),
          "two chunks are of the same packed sequence");
  return rows;
}

void Stepper::embed(const Rows& rows, int threads) {
  const int64_t hidden = model_.hidden();
  float* x = with_room(buffers_.hidden, rows.count() * hidden);
  model_.exchange ? gather_own(rows, x, threads) : gather(model_.embedding, rows.tokens, x, threads);
  buffers_.turns.resize(model_.rotaries.size());
  for (size_t i = 0; i < model_.rotaries.size(); ++i) {
    with_room(buffers_.turns[i], rows.count() * 2 * model_.rotaries[i].pairs());
  }
  with_room(buffers_.normed, rows.count() * hidden);
  with_room(buffers_.added, rows.count() * hidden);
  for_rows(rows.count(), threads, [&](int64_t row) {
    for (int64_t i = 0; i < hidden; ++i) x[row * hidden + i] *= model_.embedding_multiplier;
    for (size_t i = 0; i < model_.rotaries.size(); ++i) {
      const RotaryEmbedding& rotary = model_.rotaries[i];
      turns_of(rotary, rows.positions[size(row)], buffers_.turns[i].data() + row * 2 * rotary.pairs());
    }
    norm_next(row, &model_.blocks.front().attn_norm);
  });
}

// Rows that are this rank's, zeros for others; then the sum of all ranks'.
void Stepper::gather_own(const Rows& rows, float* x, int threads) {
  const int64_t hidden = model_.hidden(), first = model_.first_token();
  std::vector<int64_t> ids, places;
  for (int64_t row = 0; row < rows.count(); ++row) {
    const int64_t id = rows.tokens[size(row)] - first;
    if (id < 0 || id >= model_.embedding.rows()) continue;
    ids.push_back(id);
    places.push_back(row);
  }
  float* own = with_room(buffers_.added, rows.count() * hidden);
  gather(model_.embedding, ids, own, threads);
  std::fill_n(x, rows.count() * hidden, 0.0f);
  for (int64_t place : places) {
    std::copy_n(own, hidden, x + place * hidden);
    own += hidden;
  }
  add_up(x, rows.count() * hidden, threads);
}

// Over all ranks.
void Stepper::add_up(float* x, int64_t count, int threads) {
  if (model_.exchange) model_.exchange->add_up(x, count, threads);
}

// A sequence that one rank could not go on with is spoiled in all.
void Stepper::share_spoiled(const Rows& rows) {
  std::vector<float> spoiled;
  for (const KvSequence* sequence : rows.packed) spoiled.push_back(sequence && sequence->is_spoiled() ? 1.0f : 0.0f);
  add_up(spoiled.data(), static_cast<int64_t>(spoiled.size()), 1);
  for (size_t i = 0; i < spoiled.size(); ++i) {
    if (rows.packed[i] && spoiled[i] > 0) rows.packed[i]->spoil();
  }
}

void Stepper::run_block(size_t layer, const Rows& rows, int threads) {
  const DecoderBlock& block = model_.blocks[layer];
  const FloatVector* next = layer + 1 < model_.blocks.size() ? &model_.blocks[layer + 1].attn_norm : nullptr;
  float* added = buffers_.added.data();
  const int64_t values = rows.count() * model_.hidden();
  block.attends() ? attend_and_project(layer, rows, threads) : void(std::fill_n(added, values, 0.0f));
  add_up(added, values, threads);
  for_rows(rows.count(), threads,
           [&](int64_t row) { add(row, block.attn_post_norm, block.residual_multiplier, &block.ffn_norm); });
  feed_forward_.run(block.feed_forward, buffers_.normed.data(), rows.count(), added, threads);
  add_up(added, values, threads);
  for_rows(rows.count(), threads, [&](int64_t row) { add(row, block.ffn_post_norm, block.residual_multiplier, next); });
}

void Stepper::attend_and_project(size_t layer, const Rows& rows, int threads) {
  const DecoderBlock& block = model_.blocks[layer];
  project(block, rows, threads);
  for_rows(rows.count(), threads, [&](int64_t row) { place(layer, rows, row); });
  float* mixed = with_room(buffers_.mixed, rows.count() * block.o.cols());
  attend(layer, rows, mixed, threads);
  multiply({{block.o, buffers_.added.data()}}, mixed, rows.count(), threads);
}

void Stepper::attend(size_t layer, const Rows& rows, float* out, int threads) {
  const AttentionHeads& heads = model_.blocks[layer].heads;
  const HeadRows of = {buffers_.queries.data(), buffers_.keys.data(), buffers_.values.data()};
  if (pool_) {
    attention_.attend(*pool_, static_cast<int64_t>(layer), heads, rows.sequences, of.queries, out, threads);
  } else {
    packed_attention_.attend(static_cast<int64_t>(layer), heads, rows.sequences, rows.packed, of, out, threads);
  }
}

// Queries, keys and values; joined, if they come from one layer.
void Stepper::project(const DecoderBlock& block, const Rows& rows, int threads) {
  const int64_t queries = block.o.cols(), keys = block.heads.kv_heads * block.heads.head_dim, count = rows.count();
  float* q = with_room(buffers_.queries, count * queries);
  float* k = with_room(buffers_.keys, count * keys);
  float* v = with_room(buffers_.values, count * keys);
  if (block.qkv.size() == 1) {
    float* all = with_room(buffers_.joined, count * (queries + 2 * keys));
    multiply({{block.qkv[0], all}}, buffers_.normed.data(), count, threads);
  } else {
    multiply({{block.qkv[0], q}, {block.qkv[1], k}, {block.qkv[2], v}}, buffers_.normed.data(), count, threads);
  }
}

// A row's queries are normed and turned; its keys, too, and go to their place in pages with the values.
void Stepper::place(size_t layer, const Rows& rows, int64_t row) {
  const DecoderBlock& block = model_.blocks[layer];
  const int64_t dim = block.heads.head_dim, queries = block.o.cols(), keys = block.heads.kv_heads * dim;
  float *q = buffers_.queries.data() + row * queries, *k = buffers_.keys.data() + row * keys;
  float* v = buffers_.values.data() + row * keys;
  if (block.qkv.size() == 1) {
    const float* all = buffers_.joined.data() + row * (queries + 2 * keys);
    std::copy_n(all, queries, q);
    std::copy_n(all + queries, keys, k);
    std::copy_n(all + queries + keys, keys, v);
  }
  norm_each(q, queries, block.q_norm, model_.epsilon);
  norm_each(k, keys, block.k_norm, model_.epsilon);
  if (block.rotary >= 0) {
    const RotaryEmbedding& rotary = model_.rotaries[size(block.rotary)];
    const float* turns = buffers_.turns[size(block.rotary)].data() + row * 2 * rotary.pairs();
    rotate(rotary, turns, q, block.heads.heads, dim);
    rotate(rotary, turns, k, block.heads.kv_heads, dim);
  }
  if (pool_) pool_->write(static_cast<int64_t>(layer), rows.pages[size(row)], rows.places[size(row)], k, v);
}

// A row's hidden states, normed for what comes next; null: nothing does.
void Stepper::norm_next(int64_t row, const FloatVector* norm) {
  if (!norm) return;
  const float* x = buffers_.hidden.data() + row * model_.hidden();
  float* to = buffers_.normed.data() + row * model_.hidden();
  norm->empty() ? void(std::copy_n(x, model_.hidden(), to)) : rms_norm(x, *norm, model_.epsilon, to);
}

void Stepper::add(int64_t row, const FloatVector& post_norm, float multiplier, const FloatVector* next_norm) {
  const int64_t hidden = model_.hidden();
  float *x = buffers_.hidden.data() + row * hidden, *y = buffers_.added.data() + row * hidden;
  norm_each(y, hidden, post_norm, model_.epsilon);
  for (int64_t i = 0; i < hidden; ++i) x[i] += y[i] * multiplier;
  norm_next(row, next_norm);
}

void Stepper::give_logits(const Rows& rows, float* logits, int threads) {
  const int64_t hidden = model_.hidden(), count = static_cast<int64_t>(rows.wanted.size());
  if (!count) return;
  float* normed = buffers_.normed.data();
  for_rows(count, threads, [&](int64_t i) {
    const float* x = buffers_.hidden.data() + rows.wanted[size(i)] * hidden;
    rms_norm(x, model_.norm, model_.epsilon, normed + i * hidden);
  });
  if (!model_.exchange) return multiply_output(normed, count, logits, threads);
  float* own = with_room(buffers_.logits, count * model_.output.rows());
  multiply_output(normed, count, own, threads);
  model_.exchange->gather(own, count, model_.tokens, model_.rank() ? nullptr : logits);
}

void Stepper::multiply_output(float* normed, int64_t count, float* logits, int threads) {
  const int64_t tokens = model_.output.rows();
  multiply({{model_.output, logits}}, normed, count, threads);
  if (model_.logits_scaling == 1.0f && !(model_.softcap > 0)) return;
  parallel_for(count, threads, [&](int, int64_t i) {
    float* row = logits + i * tokens;
    for (int64_t j = 0; j < tokens; ++j) row[j] /= model_.logits_scaling;
    if (model_.softcap > 0) choose<ops::softcap_f32>()(row, tokens, model_.softcap);
  });
}

}  // namespace tilepress
