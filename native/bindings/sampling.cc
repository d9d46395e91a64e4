// Bindings of sampling.
#include "engine/sampling.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>
#include <vector>

#include "bindings/arguments.h"
#include "bindings/bindings.h"

namespace tilepress {
namespace {

using ConstMatrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// Biased tokens, biases, tokens, how many of them are a prompt, penalties for repetition, presence and frequency, mask.
using PyChanges =
    std::tuple<ConstOffsets, ConstFloats, ConstOffsets, int64_t, float, float, float, std::optional<ConstBytes>>;

// Temperature, top_k, top_p, min_p, typical_p, number, log-probabilities, changes.
using PyRow = std::tuple<double, int64_t, double, double, double, double, int64_t, std::optional<PyChanges>>;

// Token, log-probability, the highest ones.
using PyToken = std::tuple<int64_t, double, std::vector<std::pair<int64_t, double>>>;

template <class Array>
auto span_of(const Array& array) {
  return std::span(array.data(), array.size());
}

LogitChanges changes_of(const PyChanges& given) {
  const auto& [biased, biases, tokens, prompt, repetition, presence, frequency, mask] = given;
  std::optional<std::span<const uint8_t>> allowed;
  if (mask) allowed = span_of(*mask);
  return {span_of(biased), span_of(biases), span_of(tokens), prompt, repetition, presence, frequency, allowed};
}

std::vector<PyToken> py_sample(Sampler& sampler, ConstMatrix logits, const std::vector<PyRow>& given, int threads) {
  require(logits.shape(0) == given.size(), "there is a row for each row of logits");
  if (given.empty()) return {};
  std::vector<LogitChanges> changes;
  changes.reserve(given.size());  // rows point to them
  std::vector<SampleRow> rows;
  for (const auto& [temperature, top_k, top_p, min_p, typical_p, number, logprobs, changed] : given) {
    if (changed) changes.push_back(changes_of(*changed));
    rows.push_back(
        {temperature, top_k, top_p, min_p, typical_p, number, logprobs, changed ? &changes.back() : nullptr});
  }
  const int workers = check_threads(threads);
  std::vector<PyToken> tokens;
  nb::gil_scoped_release release;
  for (SampledToken& one : sampler.sample(logits.data(), static_cast<int64_t>(logits.shape(1)), rows, workers)) {
    tokens.emplace_back(one.token, one.logprob, std::move(one.top));
  }
  return tokens;
}

}  // namespace

void bind_sampling(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<Sampler>(m, "Sampler")
      .def(nb::init<>())
      .def("sample", &py_sample, no_convert("logits"), "rows"_a, "threads"_a);
}

}  // namespace tilepress
