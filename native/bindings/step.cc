// Bindings of a model's step over a ragged batch.
#include "engine/step.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "bindings/tensors.h"

namespace tilepress {
namespace {

using ConstMatrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using OutputMatrix = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Pages = nb::ndarray<float, nb::ndim<4>, nb::c_contig, nb::device::cpu>;

FloatVector copy_of(const ConstFloats& values) { return {values.data(), values.data() + values.size()}; }

void init_plain(PlainMatrix* self, ConstMatrix weights) {
  require(weights.shape(0) >= 1 && weights.shape(1) >= 1, "sides must be positive");
  new (self)
      PlainMatrix(weights.data(), static_cast<int64_t>(weights.shape(0)), static_cast<int64_t>(weights.shape(1)));
}

// A layer from the tuple (plain matrix, bias or None), or as linear_layer takes it. Points into it.
Projection projection(nb::handle handle) {
  const auto parts = nb::cast<nb::tuple>(handle);
  require(parts.size() >= 2, "a linear layer has a matrix and a bias");
  if (!nb::isinstance<PlainMatrix>(parts[0])) {
    const LinearLayer layer = linear_layer(handle);
    return {layer, nullptr, layer.bias};
  }
  const auto& plain = nb::cast<const PlainMatrix&>(parts[0]);
  Tensor floats{};
  const nb::handle bias = parts[1];
  require(bias.is_none() || view_values(bias, FloatType::f32, plain.rows(), floats),
          "a bias is a plain float32 tensor of " + std::to_string(plain.rows()) + " values");
  return {std::nullopt, &plain, static_cast<const float*>(floats.data)};
}

std::vector<Projection> projections(const nb::tuple& layers) {
  std::vector<Projection> all;
  for (nb::handle layer : layers) all.push_back(projection(layer));
  return all;
}

// A network as (gate and up, down), the first a list of layers; with a tuple in place of the list, which may change.
nb::tuple copy_of_network(nb::handle network) {
  constexpr const char* kParts = "a feed-forward network is (list of gate and up, down)";
  require(nb::isinstance<nb::tuple>(network) && nb::len(network) == 2, kParts);
  const auto parts = nb::cast<nb::tuple>(network);
  require(nb::isinstance<nb::list>(parts[0]), kParts);
  return nb::make_tuple(nb::tuple(nb::cast<nb::list>(parts[0])), parts[1]);
}

nb::tuple copy_of_networks(const nb::list& networks) {
  nb::list copies;
  for (nb::handle network : networks) copies.append(copy_of_network(network));
  return nb::tuple(copies);
}

// Points into the copies and the router.
FeedForward feed_forward(const nb::tuple& networks, nb::handle router, int64_t chosen, bool renormalised,
                         bool interleaved, const Gating& gating) {
  FeedForward layer{{}, std::nullopt, interleaved, gating};
  for (nb::handle network : networks) {
    layer.networks.push_back({projections(nb::cast<nb::tuple>(network[0])), projection(network[1])});
  }
  if (!router.is_none()) layer.router.emplace(Router{projection(router), chosen, renormalised});
  return layer;
}

// A rank's end of what ranks tell each other, and the memory for it.
class PyExchange {
 public:
  PyExchange(Bytes memory, int64_t rank, std::vector<int> peers, double patience)
      : memory_(memory), exchange_({memory.data(), memory.size()}, rank, std::move(peers), patience) {}
  PyExchange(const PyExchange&) = delete;

  void add_up(Floats values, int threads) {
    const int workers = check_threads(threads);
    nb::gil_scoped_release release;
    exchange_.add_up(values.data(), static_cast<int64_t>(values.size()), workers);
  }
  void fail() { exchange_.fail(); }
  Exchange* exchange() { return &exchange_; }

 private:
  Bytes memory_;
  Exchange exchange_;
};

// A block's description, and references to what its layers point into.
struct PyBlock {
  nb::tuple held;
  DecoderBlock block;
};

// qkv: three layers, or one; none and no o where there are no heads. networks: one of (gate and up, two layers or one;
// down), or one for each expert. router: a layer, or None. Norms' weights are empty where there is no norm.
void init_block(PyBlock* self, const nb::list& qkv, const nb::object& o, const nb::list& networks,
                const nb::object& router, int64_t chosen, bool renormalised, ConstFloats attn_norm,
                ConstFloats attn_post_norm, ConstFloats ffn_norm, ConstFloats ffn_post_norm, ConstFloats q_norm,
                ConstFloats k_norm, ConstFloats sinks, int64_t heads, int64_t kv_heads, int64_t head_dim, float scaling,
                int64_t window, float softcap, int64_t rotary, bool interleaved, const std::string& activation,
                float alpha, float limit, float residual_multiplier) {
  const auto kind = pick<Activation>(activation, {{"silu", Activation::silu},
                                                  {"gelu_tanh", Activation::gelu_tanh},
                                                  {"clamped_swiglu", Activation::clamped_swiglu}});
  const nb::tuple qkv_layers(qkv), held = copy_of_networks(networks);  // copies: lists may change
  new (self) PyBlock{nb::make_tuple(qkv_layers, o, held, router),
                     {projections(qkv_layers),
                      o.is_none() ? Projection{std::nullopt, nullptr, nullptr} : projection(o),
                      feed_forward(held, router, chosen, renormalised, interleaved, {kind, alpha, limit}),
                      copy_of(attn_norm),
                      copy_of(attn_post_norm),
                      copy_of(ffn_norm),
                      copy_of(ffn_post_norm),
                      copy_of(q_norm),
                      copy_of(k_norm),
                      copy_of(sinks),
                      {heads, kv_heads, head_dim, scaling, window, softcap, nullptr},
                      rotary,
                      residual_multiplier}};
}

// Radians per token of each pair of channels, the factor of cosine and sine, whether neighbours are pairs.
using PyRotary = std::tuple<std::vector<float>, float, bool>;

class PyStepper {
 public:
  PyStepper(const nb::object& embedding, const nb::list& blocks, ConstFloats norm, const nb::object& output,
            std::vector<PyRotary> rotaries, int64_t longest, float epsilon, float embedding_multiplier,
            float logits_scaling, float softcap, const std::string& kv, int64_t pages, int64_t page_tokens,
            std::vector<int64_t> tokens, const nb::object& exchange)
      : held_(nb::make_tuple(embedding, nb::tuple(blocks), output, exchange)), rotaries_(std::move(rotaries)) {
    constexpr int64_t kMost = int64_t{1} << 40;
    require(longest >= 1 && longest <= kMost, "a sequence has tokens");
    Exchange* ranks = exchange.is_none() ? nullptr : nb::cast<PyExchange&>(exchange).exchange();
    DecoderModel model{projection(embedding),
                       projection(output),
                       copy_of(norm),
                       {},
                       {},
                       longest,
                       epsilon,
                       embedding_multiplier,
                       logits_scaling,
                       softcap,
                       std::move(tokens),
                       ranks};
    for (nb::handle one : nb::cast<nb::tuple>(held_[1])) model.blocks.push_back(nb::cast<const PyBlock&>(one).block);
    for (const auto& [frequencies, factor, interleaved] : rotaries_) {
      model.rotaries.push_back({frequencies, factor, interleaved});
    }
    std::unique_ptr<PagePool> pool = make_pool(model, kv, pages, page_tokens);
    stepper_.emplace(std::move(model), std::move(pool));
  }
  PyStepper(const PyStepper&) = delete;

  // Each chunk: tokens, start, pages or a KvSequence, of how many of its last tokens logits are wanted. Ranks other
  // than the first have no logits.
  void run(const std::vector<std::tuple<std::vector<int64_t>, int64_t, nb::object, int64_t>>& given,
           OutputMatrix logits, int threads) {
    std::vector<StepChunk> chunks;
    int64_t wanted = 0;
    for (const auto& [tokens, start, place, last] : given) {
      KvSequence* packed = nullptr;
      if (nb::try_cast(place, packed) && packed) {
        chunks.push_back({tokens, start, {}, last, packed});
      } else {
        chunks.push_back({tokens, start, nb::cast<std::vector<int64_t>>(place), last});
      }
      wanted += std::clamp<int64_t>(last, 0, kMostTokens);  // those of a chunk are checked with it
    }
    const DecoderModel& model = stepper_->model();
    require(logits.shape(0) == size(wanted) && logits.shape(1) == (model.rank() ? 0 : size(model.vocabulary())),
            "logits are a row for each token whose are wanted, and a column for each one that there is");
    const int workers = check_threads(threads);
    nb::gil_scoped_release release;
    stepper_->run(chunks, logits.data(), workers);
  }

  void copy_page(int64_t source, int64_t target) {
    nb::gil_scoped_release release;
    stepper_->copy_page(source, target);
  }

  // To [kv_heads, 2, page_tokens, head_dim].
  void read_page(int64_t layer, int64_t page, Pages to) {
    const std::vector<PageShape>& layers = stepper_->pool().layers();
    require(layer >= 0 && size(layer) < layers.size(), "there is no layer " + std::to_string(layer));
    const PageShape& shape = layers[size(layer)];
    require(to.shape(0) == size(shape.kv_heads) && to.shape(1) == 2 &&
                to.shape(2) == size(stepper_->pool().page_tokens()) && to.shape(3) == size(shape.head_dim),
            "a page is [kv_heads, 2, page_tokens, head_dim]");
    nb::gil_scoped_release release;
    stepper_->read_page(layer, page, to.data());
  }

  int64_t page_bytes() const { return stepper_->pool().page_bytes(); }

 private:
  static std::unique_ptr<PagePool> make_pool(const DecoderModel& model, const std::string& kv, int64_t pages,
                                             int64_t page_tokens) {
    constexpr int64_t kMost = int64_t{1} << 40;
    if (kv == "packed" || kv == "none") return nullptr;
    const auto type = pick<FloatType>(kv, {{"float32", FloatType::f32}, {"bf16", FloatType::bf16}});
    require(page_tokens >= kPageStep && page_tokens <= kGroupTokens && kGroupTokens % page_tokens == 0,
            "a page has 16, 32, 64 or 128 tokens, not " + std::to_string(page_tokens));
    std::vector<PageShape> shapes;
    for (const DecoderBlock& block : model.blocks) {
      const AttentionHeads& heads = block.heads;
      require(heads.kv_heads >= 1 && heads.head_dim >= 1 && heads.head_dim <= kMost / heads.kv_heads, "no such heads");
      require(pages >= 1 && pages <= kMost / (page_tokens * heads.kv_heads * heads.head_dim),
              "too many pages, or none");
      shapes.push_back({heads.kv_heads, heads.head_dim});
    }
    return float_pages(type, shapes, pages, page_tokens);
  }

  nb::tuple held_;
  std::vector<PyRotary> rotaries_;
  std::optional<Stepper> stepper_;
};

}  // namespace

void bind_step(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<PlainMatrix>(m, "PlainMatrix").def("__init__", &init_plain, no_convert("weights"));
  nb::class_<PyBlock>(m, "StepBlock")
      .def("__init__", &init_block, nb::kw_only(), "qkv"_a, "o"_a.none(), "networks"_a, "router"_a.none(), "chosen"_a,
           "renormalised"_a, no_convert("attn_norm"), no_convert("attn_post_norm"), no_convert("ffn_norm"),
           no_convert("ffn_post_norm"), no_convert("q_norm"), no_convert("k_norm"), no_convert("sinks"), "heads"_a,
           "kv_heads"_a, "head_dim"_a, "scaling"_a, "window"_a, "softcap"_a, "rotary"_a, "interleaved"_a,
           "activation"_a, "alpha"_a, "limit"_a, "residual_multiplier"_a);
  nb::class_<PyExchange>(m, "Exchange")
      .def(nb::init<Bytes, int64_t, std::vector<int>, double>(), no_convert("memory"), "rank"_a, "peers"_a,
           "patience"_a)
      .def_static("bytes", &Exchange::bytes, "ranks"_a)
      .def("add_up", &PyExchange::add_up, no_convert("values"), "threads"_a)
      .def("fail", &PyExchange::fail);
  nb::class_<PyStepper>(m, "Stepper")
      .def(nb::init<const nb::object&, const nb::list&, ConstFloats, const nb::object&, std::vector<PyRotary>, int64_t,
                    float, float, float, float, const std::string&, int64_t, int64_t, std::vector<int64_t>,
                    const nb::object&>(),
           nb::kw_only(), "embedding"_a, "blocks"_a, no_convert("norm"), "output"_a, "rotaries"_a, "longest"_a,
           "epsilon"_a, "embedding_multiplier"_a, "logits_scaling"_a, "softcap"_a, "kv"_a, "pages"_a, "page_tokens"_a,
           "tokens"_a, "exchange"_a.none())
      .def("run", &PyStepper::run, "chunks"_a, no_convert("logits"), "threads"_a)
      .def("copy_page", &PyStepper::copy_page, "source"_a, "target"_a)
      .def("read_page", &PyStepper::read_page, "layer"_a, "page"_a, no_convert("to"))
      .def_prop_ro("page_bytes", &PyStepper::page_bytes);
}

}  // namespace tilepress
