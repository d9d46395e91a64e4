// Every operation of simd.h, math.h and mask_shuffles.h against plain loops. tests/kernels/test_simd.py compiles this
// once per instruction set and runs it. Prints the operations tested, and what is wrong with them.
#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

#include "simd/mask_shuffles.h"
#include "simd/math.h"
#include "tilepress/convert.h"

namespace tilepress {
namespace {

int failures = 0;

// ---- Comparing to the bit; one NaN is as good as another

template <class Number>
uint64_t bits_of(Number x) {
  if constexpr (std::is_same_v<Number, float>) return x == x ? std::bit_cast<uint32_t>(x) : 0x7fc00000;
  return static_cast<uint64_t>(x);
}

void tested(const char* operation) { std::printf("tested %s\n", operation); }

template <class Number>
void expect(const char* operation, Number actual, Number expected, uint64_t input = 0) {
  if (bits_of(actual) == bits_of(expected)) return;
  if (++failures > 20) return;
  std::printf("FAILED %s: %llx instead of %llx, for %llx\n", operation,
              static_cast<unsigned long long>(bits_of(actual)), static_cast<unsigned long long>(bits_of(expected)),
              static_cast<unsigned long long>(input));
}

void expect_true(const char* operation, bool right, uint64_t input = 0) { expect(operation, int{right}, 1, input); }

// op(vector) of all numbers, a vector at a time, against scalar(number).
template <class Number, class Op, class Scalar>
void expect_lanes(const char* operation, const std::vector<Number>& numbers, const Op& op, const Scalar& scalar) {
  for (size_t at = 0; at + kLanes <= numbers.size(); at += kLanes) {
    const auto lanes = op(load<Lanes<Number>>(&numbers[at]));
    for (int i = 0; i < kLanes; ++i) {
      const Number number = numbers[at + static_cast<size_t>(i)];
      expect<decltype(scalar(number))>(operation, lanes[i], scalar(number), bits_of(number));
    }
  }
}

// ---- Numbers to try

// The same numbers each time, all bits alike.
uint32_t random_bits() {
  static uint64_t state = 1;
  state = state * 6364136223846793005 + 1442695040888963407;
  return static_cast<uint32_t>(state >> 32);
}

template <class Number>
std::vector<Number> random_numbers(int count) {
  std::vector<Number> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(static_cast<Number>(random_bits()));
  return numbers;
}

constexpr float kSpecial[] = {0,
                              0x1p-149f,
                              0x1.fp-127f,
                              0x1p-126f,
                              0x1.fffffep127f,
                              0x1.fffp127f,
                              65504,
                              65519.996f,
                              65520,
                              65536,
                              0x1p-14f,
                              0x1.ffcp-15f,
                              0x1.ffep-15f,
                              0x1p-24f,
                              0x1p-25f,
                              0x1.000002p-25f,
                              0x1.8p-24f,
                              std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN(),
                              std::bit_cast<float>(0x7fffffffu)};

// Zeros, subnormals, halves, bounds and ties of bf16 and fp16, infinity, NaN, each with both signs; and any bits.
std::vector<float> floats_below(float bound) {
  std::vector<float> numbers;
  const auto add = [&](float x) {
    for (float number : {x, -x}) {
      if (bound > std::numeric_limits<float>::max() || std::fabs(number) < bound) numbers.push_back(number);
    }
  };
  for (float x : kSpecial) add(x);
  for (int i = 0; i < 64; ++i) {
    const float whole = static_cast<float>(i);
    add(whole + 0.5f), add(whole + 0.25f), add(1 + whole * 0x1p-11f), add(1 + whole * 0x1p-8f), add(whole * 0x1p-25f);
  }
  for (int i = 0; i < 1 << 14; ++i) add(std::bit_cast<float>(random_bits()));
  for (int i = 0; i < 1 << 12; ++i) add(static_cast<float>(static_cast<int32_t>(random_bits())) * 0x1p-12f);
  while (numbers.size() % 16) numbers.push_back(0);
  return numbers;
}

const std::vector<float> kFloats = floats_below(std::numeric_limits<float>::infinity());
const std::vector<uint32_t> kWords = random_numbers<uint32_t>(256);

std::vector<uint16_t> all_codes() {
  std::vector<uint16_t> codes;
  for (int code = 0; code < 1 << 16; ++code) codes.push_back(static_cast<uint16_t>(code));
  return codes;
}

// ---- Memory

template <class Number>
void test_load_and_store() {
  using V = Lanes<Number>;
  const std::vector<Number> from = random_numbers<Number>(2 * kLanes + 1);
  for (int count = -1; count <= kLanes + 1; ++count) {
    const V whole = load<V>(&from[1]), part = load<V>(&from[1], count);
    for (int i = 0; i < kLanes; ++i) {
      const Number number = from[static_cast<size_t>(1 + i)];
      expect<Number>("load", whole[i], number);
      expect<Number>("load", part[i], i < count ? number : Number{});
    }
  }
  Number to[kLanes + 2] = {}, two[kLanes + 2] = {};
  store(load<V>(from.data()), to + 1);
  store<2>(load<V>(from.data()), two + 1);
  for (int i = 0; i < kLanes + 2; ++i) {
    const Number number = i ? from[static_cast<size_t>(i - 1)] : Number{};
    expect("store", to[i], i <= kLanes ? number : Number{});
    expect("store", two[i], i <= 2 ? number : Number{});
  }
}

template <FloatType type, class Scalar>
void test_load_floats(const Scalar& scalar) {
  std::vector<Stored<type>> from = random_numbers<Stored<type>>(3 * kLanes);
  for (int count = 0; count <= kLanes; ++count) {
    const Floats whole = load_floats<type>(&from[1]), part = load_floats<type>(from.data(), 3, count);
    for (int i = 0; i < kLanes; ++i) {
      expect<float>("load_floats", whole[i], scalar(from[static_cast<size_t>(1 + i)]));
      expect<float>("load_floats", part[i], i < count ? scalar(from[static_cast<size_t>(3 + i)]) : 0.0f);
    }
  }
}

void test_store_bytes() {
  for (int round = 0; round < 8; ++round) {
    alignas(kSimdBytes) int32_t numbers[64];
    alignas(kSimdBytes) uint32_t words[16];
    int8_t sixteen[18] = {}, all[66] = {};
    uint8_t low[18] = {};
    for (int32_t& number : numbers) number = static_cast<int8_t>(random_bits() >> 8);
    for (uint32_t& word : words) word = random_bits();
    numbers[round] = -128, numbers[63 - round] = 127;
    Int32s lanes[64 / kLanes];
    Uint32s word_lanes[16 / kLanes];
    std::memcpy(lanes, numbers, sizeof lanes);
    std::memcpy(word_lanes, words, sizeof word_lanes);
    store_int8x16(lanes, sixteen + 1);
    store_int8x64(lanes, all + 1);
    store_uint8x16(word_lanes, low + 1);
    for (int i = 0; i < 66; ++i) expect<int>("store_int8x64", all[i], i % 65 ? numbers[i - 1] : 0);
    for (int i = 0; i < 18; ++i) {
      expect<int>("store_int8x16", sixteen[i], i % 17 ? numbers[i - 1] : 0);
      expect<int>("store_uint8x16", low[i], i % 17 ? static_cast<uint8_t>(words[i - 1]) : 0);
    }
  }
}

void test_memory() {
  test_load_and_store<float>();
  test_load_and_store<int32_t>();
  test_load_and_store<uint16_t>();
  test_load_and_store<uint8_t>();
  tested("load"), tested("store");
  test_load_floats<FloatType::f32>([](float x) { return x; });
  test_load_floats<FloatType::bf16>(bf16_to_float);
  test_load_floats<FloatType::f16>(fp16_to_float);
  for (FloatType type : {FloatType::f32, FloatType::bf16, FloatType::f16}) {
    const auto work = [&]<FloatType known>() { return known; };
    expect("with_float_type", static_cast<int>(with_float_type(type, work)), static_cast<int>(type));
  }
  tested("load_floats"), tested("to_floats"), tested("with_float_type");
  test_store_bytes();
  tested("store_int8x16"), tested("store_int8x64"), tested("store_uint8x16");
}

// ---- Numbers and conversions

template <class Number>
void test_min_and_max(const std::vector<Number>& numbers) {
  for (const Number other : {numbers[0], numbers[1], numbers[7], numbers[36], numbers[37]}) {
    const auto b = splat<Lanes<Number>>(other);
    const auto either = [&](Number a, bool take_a) { return a != a || other != other ? other : take_a ? a : other; };
    expect_lanes("min", numbers, [&](auto a) { return min(a, b); }, [&](Number a) { return either(a, a < other); });
    expect_lanes("max", numbers, [&](auto a) { return max(a, b); }, [&](Number a) { return either(a, a > other); });
  }
}

void test_fma() {
  const auto scalar = [](float a, float b, float c) { return kHasFma ? std::fma(a, b, c) : a * b + c; };
  for (size_t at = 0; at + 3 * kLanes <= kFloats.size(); at += 3) {
    const auto a = load<Floats>(&kFloats[at]), b = load<Floats>(&kFloats[at + kLanes]);
    const auto c = load<Floats>(&kFloats[at + 2 * kLanes]);
    const Floats all = fma(a, b, c), one = fma(a, b[0], c);
    for (int i = 0; i < kLanes; ++i) {
      expect("fma", float{all[i]}, scalar(a[i], b[i], c[i]), at);
      expect("fma", float{one[i]}, scalar(a[i], b[0], c[i]), at);
    }
  }
  const float tie = 1 + 0x1p-12f;  // its square needs more bits than a float has
  expect("fma", fma(splat<Floats>(tie), tie, splat<Floats>(-1.0f))[0], scalar(tie, tie, -1.0f));
}

void test_numbers() {
  for (float x : {-0.0f, 0.0f, 1.5f, -std::numeric_limits<float>::infinity()}) {
    for (int i = 0; i < kLanes; ++i) expect("splat", float{splat<Floats>(x)[i]}, x);
  }
  for (int i = 0; i < kLanes; ++i) expect("splat", uint32_t{splat<Uint32s>(0xffff0001u)[i]}, 0xffff0001u);
  tested("splat");
  test_min_and_max(kFloats);
  test_min_and_max(kWords);
  test_min_and_max(std::vector<int32_t>(kWords.begin(), kWords.end()));
  tested("min"), tested("max");
  test_fma();
  tested("fma");
  const auto nearest = [](float x) { return static_cast<int32_t>(std::nearbyintf(x)); };
  expect_lanes("nearest_int", floats_below(0x1p22f), nearest_int, nearest);
  expect_lanes("truncate_int", floats_below(0x1p31f), truncate_int, [](float x) { return static_cast<int32_t>(x); });
  const std::vector<int32_t> ints(kWords.begin(), kWords.end());
  expect_lanes("int_to_floats", ints, int_to_floats, [](int32_t x) { return static_cast<float>(x); });
  const auto bits = [](float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffff; };
  expect_lanes("magnitude_bits", kFloats, magnitude_bits, bits);
  tested("nearest_int"), tested("truncate_int"), tested("int_to_floats"), tested("magnitude_bits");
}

// Any code of NaN as one.
uint16_t one_nan(uint16_t code) { return (code & 0x7fff) > 0x7c00 ? uint16_t{0x7e00} : code; }

void test_conversions() {
  const auto wide = [](auto x) { return uint32_t{x}; };
  expect_lanes("widen", random_numbers<uint8_t>(1024), [](Uint8s v) { return widen(v); }, wide);
  expect_lanes("widen", all_codes(), [](Uint16s v) { return widen(v); }, wide);
  expect_lanes("widen", kWords, [](Uint32s v) { return widen(v); }, wide);
  for (int at = 0; at < 32; ++at) {
    const auto scalar = [&](uint32_t x) { return static_cast<uint16_t>(x >> at); };
    expect_lanes("narrow", kWords, [&](Uint32s v) { return narrow(v, at); }, scalar);
  }
  tested("widen"), tested("narrow");
  expect_lanes("bf16_to_floats", all_codes(), bf16_to_floats, bf16_to_float);
  expect_lanes("fp16_to_floats", all_codes(), fp16_to_floats, fp16_to_float);
  expect_lanes("to_bf16", kFloats, to_bf16, round_to_bf16);
  const auto codes = [](Floats x) {
    Uint16s lanes = to_fp16(x);
    for (int i = 0; i < kLanes; ++i) lanes[i] = one_nan(lanes[i]);
    return lanes;
  };
  expect_lanes("to_fp16", kFloats, codes, round_to_fp16);
  tested("bf16_to_floats"), tested("fp16_to_floats"), tested("to_bf16"), tested("to_fp16");
}

// ---- Lanes

template <class Number, int first>
void test_moves(Lanes<Number> a, Lanes<Number> b) {
  const auto one = broadcast_lane<first>(a);
  for (int i = 0; i < kLanes; ++i) expect<Number>("broadcast_lane", one[i], a[first]);
  if constexpr (first <= kLanes / 2) {
    const auto both = interleave<first>(a, b);
    for (int i = 0; i < kLanes; ++i) expect<Number>("interleave", both[i], (i % 2 ? b : a)[first + i / 2]);
  }
}

template <int period, class V, class Op, class Scalar>
void test_reduce(V vector, const Op& op, const Scalar& scalar) {
  using Number = std::remove_cvref_t<decltype(vector[0])>;
  const V reduced = reduce_lanes<period>(vector, op);
  for (int i = 0; i < kLanes; ++i) {
    Number expected = vector[i % period];
    for (int j = i % period + period; j < kLanes; j += period) expected = scalar(expected, Number{vector[j]});
    expect<Number>("reduce_lanes", reduced[i], expected);
  }
}

void test_int_reductions(Uint32s a, Uint32s b) {
  uint32_t most_a = 0, most_b = 0, sum = 0;
  for (int i = 0; i < kLanes; ++i) {
    most_a = a[i] > most_a ? a[i] : most_a, most_b = b[i] > most_b ? b[i] : most_b, sum += a[i] >> 8;
    expect<uint32_t>("add", add(a, b)[i], a[i] + b[i]);
    expect<uint32_t>("bit_or", bit_or(a, b)[i], a[i] | b[i]);
  }
  for (int i = 0; i < kLanes; ++i) {
    expect<uint32_t>("max_of_lanes", max_of_lanes(a)[i], most_a);
    expect<uint32_t>("reduce_pair", reduce_pair(a, b, max<Uint32s>)[i], i % 2 ? most_b : most_a);
  }
  expect<uint32_t>("reduce_max", reduce_max(a), most_a);
  const auto either = [](uint32_t x, uint32_t y) { return x | y; };
  test_reduce<1>(a, bit_or<Uint32s>, either);
  test_reduce<2>(a, bit_or<Uint32s>, either);
  test_reduce<4>(a, bit_or<Uint32s>, either);
  test_reduce<kLanes>(a, bit_or<Uint32s>, either);
  expect("reduce_sum", static_cast<uint32_t>(reduce_sum(std::bit_cast<Int32s>(a >> 8))), sum);
}

void test_compress() {
  for (uint32_t round = 0; round < 1 << 10; ++round) {
    float from[kLanes], to[kLanes + 1];
    int32_t mask[kLanes];
    const uint32_t set = round < 2 ? 0 - round : round < 34 ? 1u << (round - 2) : random_bits();
    int64_t expected = 0;
    for (int i = 0; i < kLanes; ++i) from[i] = static_cast<float>(i + 1), mask[i] = -static_cast<int32_t>(set >> i & 1);
    to[kLanes] = -1;
    const int64_t count = compress(load<Floats>(from), load<Int32s>(mask), to);
    for (int i = 0; i < kLanes; ++i) {
      if (mask[i]) expect("compress", to[expected++], from[i], set);
    }
    expect("compress", count, expected, set);
    expect("any", any(load<Int32s>(mask)), expected > 0, set);
    expect("compress", to[kLanes], -1.0f, set);
  }
  tested("any"), tested("compress");
}

void test_lanes() {
  for (size_t at = 0; at + 2 * kLanes <= kWords.size(); at += kLanes) {
    const auto a = load<Uint32s>(&kWords[at]), b = load<Uint32s>(&kWords[at + kLanes]);
    test_moves<uint32_t, 0>(a, b);
    test_moves<uint32_t, 1>(a, b);
    test_moves<uint32_t, kLanes / 2>(a, b);
    test_moves<uint32_t, kLanes - 1>(a, b);
    test_moves<float, 1>(int_to_floats(std::bit_cast<Int32s>(a)), Floats{});
    test_int_reductions(a, b);
    const Floats floats = int_to_floats(std::bit_cast<Int32s>(a));
    float sum = 0;
    for (int i = 0; i < kLanes; i += 2) sum += floats[i] + floats[i + 1];
    expect("reduce_sum", reduce_sum(floats), sum);
  }
  for (const char* operation : {"broadcast_lane", "interleave", "reduce_lanes", "reduce_pair", "max_of_lanes",
                                "reduce_max", "reduce_sum", "add", "bit_or"}) {
    tested(operation);
  }
}

// ---- math.h and mask_shuffles.h

// Units in the last place from the exact value.
double error_of(float actual, double exact) {
  const double unit = std::ldexp(1.0, std::ilogb(exact) - 23);
  return std::fabs(static_cast<double>(actual) - exact) / unit;
}

void test_exp() {
  constexpr float kLeast = -87.3f, kMost = 88.3f;
  const auto check = [](float x) {
    const float actual = exp(splat<Floats>(x))[kLanes - 1], clamped = x < kLeast ? kLeast : x > kMost ? kMost : x;
    const bool right = x == x ? error_of(actual, std::exp(static_cast<double>(clamped))) <= 2 : actual != actual;
    expect_true("exp", right, std::bit_cast<uint32_t>(x));
  };
  for (float x : kFloats) check(x);
  for (int i = 0; i < 1 << 16; ++i) check(kLeast + (kMost - kLeast) * static_cast<float>(i) * 0x1p-16f);
  expect("exp", exp(Floats{})[0], 1.0f);
  tested("exp");
}

void test_exp_and_sum() {
  for (int count = 0; count <= 3 * kLanes; ++count) {
    float x[3 * kLanes + 1], all = 0;
    for (int i = 0; i <= count; ++i) x[i] = static_cast<float>(i) / 8;
    const float sum = exp_and_sum(x, count, 4.0f, [](Floats sums) { return reduce_sum(sums); });
    for (int i = 0; i < count; ++i) {
      expect_true("exp_and_sum", error_of(x[i], std::exp(i / 8.0 - 4.0)) <= 2, static_cast<uint64_t>(i));
      all += x[i];
    }
    expect("exp_and_sum", x[count], static_cast<float>(count) / 8);
    expect_true("exp_and_sum", std::fabs(sum - all) <= all * 0x1p-20f, static_cast<uint64_t>(count));
  }
  tested("exp_and_sum");
}

void test_softcap() {
  for (float cap : {0.5f, 30.0f, 50.0f}) {
    for (float times :
         {0.0f, -0.0f, 1e-4f, 0.1f, -0.7f, 1.0f, -2.0f, 5.0f, 9.0f, -40.0f, 1e4f, HUGE_VALF, -HUGE_VALF}) {
      const float x = times * cap, capped = softcap(splat<Floats>(x), cap)[0];
      const double exact = cap * std::tanh(static_cast<double>(x) / cap);
      expect_true("softcap", std::fabs(capped - exact) <= cap * 0x1p-21, bits_of(x));
      expect_true("softcap", std::signbit(capped) == std::signbit(x), bits_of(x));
    }
    expect_true("softcap", std::isnan(softcap(splat<Floats>(NAN), cap)[0]));
  }
  tested("softcap");
}

void test_mask_shuffles() {
  for (int mask = 0; mask < 256; ++mask) {
    int rank = 0;
    for (int place = 0; place < 8; ++place) {
      const bool set = mask >> place & 1;
      if (set) expect<int>("compact", kShuffles.compact[mask][rank], place);
      if (set) expect<int>("compact", kWordShuffles.compact[mask][2 * rank + 1], 2 * place + 1);
      expect<int>("expand", kShuffles.expand[mask][place], set ? rank : kNothing);
      expect<int>("expand", kWordShuffles.expand[mask][2 * place], set ? 2 * rank : kNothing);
      for (int other : {0, 0x5a, 0xff}) {
        const int ahead = kShuffles.count[other];
        const int low = kWideShuffles.first[mask][place] + kWideShuffles.second[other][place];
        const int high = kWideShuffles.first[other][8 + place] + kWideShuffles.second[mask][8 + place];
        expect_true("expand", set ? low == rank && high == ahead + rank : low >= 0x80 && high >= 0x80);
      }
      rank += set;
    }
    expect<int>("compact", kShuffles.count[mask], rank);
    for (int i = rank; i < 8; ++i) expect<int>("compact", kShuffles.compact[mask][i], kNothing);
  }
}

}  // namespace
}  // namespace tilepress

int main() {
  tilepress::test_memory();
  tilepress::test_numbers();
  tilepress::test_conversions();
  tilepress::test_lanes();
  tilepress::test_compress();
  tilepress::test_exp();
  tilepress::test_exp_and_sum();
  tilepress::test_softcap();
  tilepress::test_mask_shuffles();
  return tilepress::failures > 0;
}
