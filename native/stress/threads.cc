// Threads that share what may be shared: KV stores that all change, weights that all read, the thread pool, a decoder.
// For the sanitizers, which report races and bad accesses; it also fails if a result is wrong.
//
//   tilepress_stress SECONDS THREADS
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "dispatch/decoder.h"
#include "dispatch/kv_bfp_store.h"
#include "dispatch/kv_sparse_store.h"
#include "dispatch/own_threads.h"
#include "dispatch/parallel.h"

namespace tilepress {
namespace {

using Random = std::mt19937;

std::atomic<bool> failed{false};

void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "wrong: %s\n", what);
  failed = true;
}

int below(Random& random, int end) { return static_cast<int>(random() % static_cast<unsigned>(end)); }

std::vector<float> normal_floats(int64_t count, Random& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// Calls work(random) from all threads until the time is over.
template <class Work>
void repeat(const std::string& name, double seconds, int threads, const Work& work) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::atomic<int64_t> calls{0};
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&, i] {
      Random random(static_cast<unsigned>(i));
      for (; std::chrono::steady_clock::now() < until; ++calls) work(random);
    });
  }
  for (std::thread& one : all) one.join();
  std::printf("%-22s %8lld calls by %d threads\n", name.c_str(), static_cast<long long>(calls.load()), threads);
  std::fflush(stdout);
}

constexpr int64_t kHeads = 2, kChannels = 32, kQueryHeads = 4;

void attend(KvStore& store, Random& random, bool queries) {
  const int64_t count = below(random, 4) ? 1 : 1 + below(random, 40), batch = store.sizes().batch;
  const int64_t size = batch * kHeads * count * kChannels, query_size = size / kHeads * kQueryHeads;
  const std::vector<float> keys = normal_floats(size, random), values = normal_floats(size, random);
  const std::vector<float> query_values = normal_floats(query_size, random);
  std::vector<float> out(query_values.size());
  store.attend({keys.data(), values.data(), nullptr, count, queries ? query_values.data() : nullptr, kQueryHeads,
                0.125f, out.data()},
               1 + below(random, 3));
  for (float value : out) expect(is_finite(value), "attention is not finite");
}

void crop(KvStore& store, Random& random) {
  std::vector<int64_t> lengths = store.lengths();
  for (int64_t& length : lengths) length = std::max<int64_t>(length - below(random, 300), 0);
  try {
    store.crop(lengths);
  } catch (const std::invalid_argument&) {  // tokens that left the window
  }
}

void use_store(KvStore& store, Random& random) {
  switch (below(random, 8)) {
    case 0:
      return crop(store, random);
    case 1:
      return expect(store.select({1, 0, 1})->lengths().size() == 3, "sequences of a selection");
    case 2:
      return expect(total_bytes(store.save()) > 0, "a saved cache is empty");
    case 3:
      return expect(store.allocated() > 0, "a cache has no memory");
    default:
      return attend(store, random, below(random, 2));
  }
}

void share_stores(double seconds, int threads) {
  const KvSizes plain = {2, kHeads, kChannels, 0, 0, 0}, window = {2, kHeads, kChannels, 40, 0, 0};
  const KvSizes sparse = {2, kHeads, kChannels, 0, 30, 50};
  std::vector<std::pair<std::string, std::unique_ptr<KvStore>>> stores;
  stores.emplace_back("bfp4", std::make_unique<BfpKvStore>(BfpKvConfig{plain, 4, 8, 32, 64, true, 0, true}));
  stores.emplace_back("bfp4, offsets", std::make_unique<BfpKvStore>(BfpKvConfig{plain, 4, 4, 0, 0, false, 4, false}));
  stores.emplace_back("bfp8, window", std::make_unique<BfpKvStore>(BfpKvConfig{window, 8, 8, 0, 0, false, 0, false}));
  stores.emplace_back("bfp8, sparse", std::make_unique<BfpKvStore>(BfpKvConfig{sparse, 8, 8, 0, 0, false, 0, false}));
  stores.emplace_back("sparse", std::make_unique<SparseKvStore>(SparseKvConfig{sparse, FloatType::f16}));
  for (const auto& [name, store] : stores) {
    repeat("cache " + name, seconds / static_cast<double>(stores.size()), threads,
           [&](Random& random) { use_store(*store, random); });
  }
}

// A job of `count` items on a crew's workers, each done once.
void use_crew(Crew& crew, int64_t count) {
  struct Context {
    SharedCounter tickets;
    std::atomic<int64_t> sum{0};
    int64_t count;
  } context;
  context.count = count;
  const Job add = [](void* opaque, int) {
    Context& context = *static_cast<Context*>(opaque);
    for (int64_t item; (item = context.tickets.increment()) < context.count;) context.sum += item;
  };
  crew.run(4, add, &context);
  expect(context.sum == count * (count - 1) / 2, "a crew's items were not done once each");
}

// Workers that come and go while jobs are posted, one after the other or after they fell asleep.
void share_crews(double seconds, int threads) {
  repeat("crew", seconds, threads, [](Random& random) {
    Crew crew(std::chrono::microseconds(below(random, 50)));
    std::vector<std::thread> workers;
    for (int id = 1; id < 4; ++id) workers.emplace_back([&crew, id] { crew.serve(id); });
    for (int job = below(random, 40); job > 0; --job) {
      if (!below(random, 10)) std::this_thread::sleep_for(std::chrono::microseconds(100));
      use_crew(crew, below(random, 50));
    }
    crew.dismiss();
    for (std::thread& worker : workers) worker.join();
  });
}

void share_pool(double seconds, int threads) {
  repeat("pool", seconds, threads, [](Random& random) {
    const int64_t count = below(random, 200);
    std::atomic<int64_t> sum{0};
    const auto add = [&] { parallel_for(count, 1 + below(random, 6), [&](int, int64_t item) { sum += item; }); };
    const bool standby = below(random, 2);
    standby ? with_standby_workers(3, add) : add();
    if (!below(random, 50)) OwnThreads::of_process().end();
    expect(sum == count * (count - 1) / 2, "a job's items were not done once each");
  });
}

// A dense bf16 matrix of random weights.
class Matrix {
 public:
  Matrix(int64_t rows, int64_t cols, Random& random) : shape_{rows, cols, 16, 16, false, 0, 0, false} {
    format_.rounding = Rounding::bf16;
    format_.bits = 16;
    format_.scale = ScaleType::none;
    format_.group = cols;
    codes_.resize(static_cast<size_t>(shape_.blocks() * shape_.block_code_bytes()));
    streams_ = {codes_.data(), nullptr, nullptr, nullptr, nullptr};
    std::vector<float> weights = normal_floats(rows * cols, random);
    for (float& weight : weights) weight *= 0.1f;
    pack_weights(shape_, format_, {reinterpret_cast<const uint8_t*>(weights.data()), FloatType::f32, nullptr}, false,
                 streams_, 1);
  }
  Matrix(const Matrix&) = delete;

  PackedWeights weights() const { return {shape_, format_, streams_, kNoHalves}; }
  LinearLayer layer() const { return {weights(), nullptr, false, {0, 0}}; }

 private:
  MatrixShape shape_;
  Format format_{};
  std::vector<uint8_t> codes_;
  Streams streams_{};
};

std::vector<float> multiply(const Matrix& matrix, const std::vector<float>& x, int threads) {
  const PackedWeights weights = matrix.weights();
  const int64_t batch = static_cast<int64_t>(x.size()) / weights.shape.cols;
  std::vector<float> y(static_cast<size_t>(batch * weights.shape.rows));
  linear_float(weights, {reinterpret_cast<const uint8_t*>(x.data()), FloatType::f32, batch},
               float_variant(weights, batch, FloatType::f32),
               {reinterpret_cast<uint8_t*>(y.data()), FloatType::f32, nullptr}, threads);
  return y;
}

void share_weights(double seconds, int threads) {
  Random random(0);
  const Matrix matrix(200, 100, random);
  for (int64_t batch : {1, 40}) {
    const std::vector<float> x = normal_floats(batch * 100, random), expected = multiply(matrix, x, 1);
    repeat("linear, batch " + std::to_string(batch), seconds / 2, threads, [&](Random& mine) {
      expect(multiply(matrix, x, 1 + below(mine, 4)) == expected, "a product differs by threads");
    });
  }
}

// Two layers, each with a store: all threads append tokens, and now and then one crops both.
class SharedDecoder {
 public:
  void use(Random& random) {
    if (!below(random, 20)) return shorten(random);
    const std::vector<float> hidden = normal_floats(kHidden, random), turn(kChannels, 0.5f);
    std::vector<float> out(hidden.size());
    const auto bytes = [](const std::vector<float>& floats) { return reinterpret_cast<const uint8_t*>(floats.data()); };
    try {
      decode_token_packed({&layers_[0], &layers_[1]}, {bytes(hidden), bytes(turn), bytes(turn)}, both(),
                          stores_[0].lengths()[0], reinterpret_cast<uint8_t*>(out.data()), 1 + below(random, 3));
    } catch (const std::runtime_error&) {  // another thread added a token first
    }
  }

  void check() const { expect(stores_[0].lengths() == stores_[1].lengths(), "layers have different tokens"); }

 private:
  static constexpr int64_t kHidden = kHeads * kChannels, kInner = 96;

  std::vector<KvStore*> both() { return {&stores_[0], &stores_[1]}; }

  void shorten(Random& random) {
    const auto locks = lock_all(both());
    const int64_t left = std::max<int64_t>(stores_[0].length(0) - below(random, 60), 0);
    for (KvStore* store : both()) store->crop({left});
  }

  DecoderLayer layer() const {
    const LinearLayer square = square_.layer(), up = up_.layer(), down = down_.layer();
    const auto* ones = reinterpret_cast<const uint8_t*>(ones_.data());
    return {FloatType::f32, kHeads, kHeads, kChannels, 1e-5f, 0.2f, ones, ones,
            square,         square, square, square,    up,    up,   down};
  }

  Random random_{0};
  Matrix square_{kHidden, kHidden, random_}, up_{kInner, kHidden, random_}, down_{kHidden, kInner, random_};
  std::vector<float> ones_ = std::vector<float>(kHidden, 1.0f);
  DecoderLayer layers_[2] = {layer(), layer()};
  BfpKvStore stores_[2] = {BfpKvStore(BfpKvConfig{{1, kHeads, kChannels, 0, 0, 0}, 4, 8, 32, 64, false, 0, false}),
                           BfpKvStore(BfpKvConfig{{1, kHeads, kChannels, 0, 0, 0}, 8, 8, 0, 0, false, 0, false})};
};

void share_decoder(double seconds, int threads) {
  SharedDecoder decoder;
  repeat("decoder", seconds, threads, [&](Random& random) { decoder.use(random); });
  decoder.check();
}

}  // namespace
}  // namespace tilepress

int main(int count, char** arguments) {
  if (count != 3) return std::fprintf(stderr, "usage: %s SECONDS THREADS\n", arguments[0]), 2;
  const double seconds = std::atof(arguments[1]);
  const int threads = std::atoi(arguments[2]);
  tilepress::share_stores(seconds * 0.6, threads);
  tilepress::share_crews(seconds * 0.1, threads);
  tilepress::share_pool(seconds * 0.1, threads);
  tilepress::share_weights(seconds * 0.1, threads);
  tilepress::share_decoder(seconds * 0.1, threads);
  return tilepress::failed ? 1 : 0;
}
