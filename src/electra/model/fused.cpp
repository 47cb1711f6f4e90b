// What a layer of the encoder does between its large matrix products, on a CPU: attention, dropout with the residual sum
// and LayerNorm, and GELU. Each begins with the bias of the product before it and reads and writes its tensors once.
//
// `electra/model/fused.py` says what the functions are given. All tensors are contiguous. What is a product, or becomes a
// factor of one, is float32 or bfloat16 (`T`); all else, and everything in between, is float32.
// What dropout zeroes is drawn again in the backward pass, from the same seed, and is not kept.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// BLAS, which torch brings along.
extern "C" void sgemm_(const char*, const char*, const int*, const int*, const int*, const float*, const float*,
                       const int*, const float*, const int*, const float*, float*, const int*);

namespace {

using at::Tensor;
using Vec = at::vec::Vectorized<float>;

// ------------------------------------------------------------------------------------------------------------ precision

// `body` with a value of the type of the tensor's elements.
template <typename Body>
auto by_type(const Tensor& tensor, const Body& body) {
  return tensor.scalar_type() == at::kBFloat16 ? body(at::BFloat16()) : body(float());
}

// Numbers of type T as float32: where they stand, or in a room of their own.
template <typename T>
class Numbers {
 public:
  explicit Numbers(int64_t n) : room_(in_place ? 0 : n) {}

  const float* read(const T* from, int64_t n) {
    if constexpr (in_place) return from;
    else {
      #pragma omp simd
      for (int64_t i = 0; i < n; i++) room_[i] = static_cast<float>(from[i]);
      return room_.data();
    }
  }

  // Where to write what `keep` then stores at `to`.
  float* room_for(T* to) {
    if constexpr (in_place) return to;
    else return room_.data();
  }

  void keep(T* to, int64_t n) const {
    if constexpr (!in_place) at::vec::convert(room_.data(), to, n);
  }

 private:
  static constexpr bool in_place = std::is_same_v<T, float>;
  std::vector<float> room_;
};

// -------------------------------------------------------------------------------------------------------------- dropout

constexpr int64_t LEVELS = 1 << 16;  // of a draw; `zeroed` of them drop an element
constexpr int LANES = 16;
constexpr int64_t LINE = 64;  // bytes of the cache
using Words = uint32_t __attribute__((vector_size(sizeof(uint32_t) * LANES)));

// Random bits by sfc32 (Doty-Humphrey, PractRand), one generator in each lane; 16 bits an element.
class Draws {
 public:
  Draws(int64_t seed, int64_t stream) {
    a_ = Words{} + static_cast<uint32_t>(seed);
    b_ = Words{} + static_cast<uint32_t>(seed >> 32);
    c_ = Words{} + static_cast<uint32_t>(stream * LANES);
    for (int lane = 0; lane < LANES; lane++) c_[lane] += lane;
    count_ = Words{} + 1;
    for (int round = 0; round < 12; round++) next();
  }

  // 0, or `scale`, for each of n elements. Up to 2 * LANES - 1 more are written.
  void factors(int64_t n, int64_t zeroed, float scale, float* out) {
    uint32_t bits;
    std::memcpy(&bits, &scale, sizeof bits);
    const auto least = static_cast<uint32_t>(zeroed);
    for (int64_t i = 0; i < n; i += 2 * LANES) {
      const Words drawn = next();
      const Words low = Words((drawn & 0xffff) >= least) & bits, high = Words((drawn >> 16) >= least) & bits;
      std::memcpy(out + i, &low, sizeof low);
      std::memcpy(out + i + LANES, &high, sizeof high);
    }
  }

 private:
  Words next() {
    const Words drawn = a_ + b_ + count_;
    count_ += 1;
    a_ = b_ ^ (b_ >> 9);
    b_ = c_ + (c_ << 3);
    c_ = ((c_ << 21) | (c_ >> 11)) + drawn;
    return drawn;
  }

  Words a_, b_, c_, count_;
};

// Have n numbers on their way into the cache before they are written, or it waits for what they overwrite.
template <typename T>
void expect(const T* to, int64_t n) {
  for (int64_t i = 0; i < n; i += LINE / int64_t(sizeof(T))) __builtin_prefetch(to + i, 1);
}

// What keeps the mean.
float scale_of(int64_t zeroed) { return float(LEVELS) / float(LEVELS - zeroed); }

// Room for the factors of n elements, which are 1 where none are drawn.
std::vector<float> room_for_factors(int64_t n) { return std::vector<float>(n + 2 * LANES, 1.f); }

// ------------------------------------------------------------------------------------------------------------ attention

constexpr int64_t BLOCK = 128;  // of queries: their scores stay in the cache, however long the row

// c = factor * a b, plus what c was if `add`; by this thread alone. All matrices are row by row; a or b may be transposed.
void multiply(bool a_transposed, bool b_transposed, int64_t rows, int64_t columns, int64_t inner, float factor,
              const float* a, const float* b, float* c, bool add = false) {
  // BLAS goes column by column, to which these are c^T = b^T a^T.
  const char of_a = a_transposed ? 'T' : 'N', of_b = b_transposed ? 'T' : 'N';
  const int m = columns, n = rows, k = inner, lda = a_transposed ? rows : inner, ldb = b_transposed ? inner : columns;
  const float beta = add ? 1.f : 0.f;
  sgemm_(&of_b, &of_a, &m, &n, &k, &factor, b, &ldb, a, &lda, &beta, c, &m);
}

// The rows of a batch, one after the other, whose tokens attend to each other; an item is a head of a row.
struct Rows {
  const int64_t *starts, tokens, heads, width, size, items;
  int64_t longest = 0;
  const float temper;

  Rows(const Tensor& starts_, const Tensor& product, int64_t heads_)
      : starts(starts_.const_data_ptr<int64_t>()), tokens(product.size(0)), heads(heads_), width(product.size(1) / 3),
        size(width / heads), items((starts_.numel() - 1) * heads), temper(1.f / std::sqrt(float(size))) {
    for (int64_t row = 0; row < items / heads; row++) longest = std::max(longest, starts[row + 1] - starts[row]);
  }

  int64_t block() const { return std::min(BLOCK, longest); }

  // Tokens that are of no row attend to nothing.
  void clear_rest(const Tensor& of_tokens) const { of_tokens.slice(0, starts[items / heads]).zero_(); }
};

// A head of a row: queries, keys and values with their bias, close together, and what is computed of them.
struct Head {
  const Rows& of;
  std::vector<float> q, k, v, weights, factors;
  int64_t number = 0, start = 0, length = 0, column = 0;

  explicit Head(const Rows& rows)
      : of(rows), q(rows.longest * rows.size), k(q.size()), v(q.size()), weights(rows.block() * rows.longest),
        factors(room_for_factors(rows.longest)) {}

  template <typename T>
  void read(int64_t item, const T* product, const float* bias) {
    const int64_t row = item / of.heads;
    number = item % of.heads;
    start = of.starts[row];
    length = of.starts[row + 1] - start;
    column = number * of.size;
    float* parts[] = {q.data(), k.data(), v.data()};
    for (int64_t part = 0; part < 3; part++)
      for (int64_t i = 0; i < length; i++) {
        const T* from = product + part_at(part, i);
        const float* add = bias + part * of.width + column;
        float* to = parts[part] + i * of.size;
        #pragma omp simd
        for (int64_t d = 0; d < of.size; d++) to[d] = static_cast<float>(from[d]) + add[d];
      }
  }

  const float* queries(int64_t first) const { return q.data() + first * of.size; }
  // Where a token's part stands in [tokens, 3 * width], a vector in [tokens, width], and a number in [heads, tokens].
  int64_t part_at(int64_t part, int64_t i) const { return ((start + i) * 3 + part) * of.width + column; }
  int64_t vector_at(int64_t i) const { return (start + i) * of.width + column; }
  int64_t number_at(int64_t i) const { return number * of.tokens + start + i; }

  // Scores of `many` queries.
  void score(int64_t first, int64_t many) {
    multiply(false, true, many, length, of.size, of.temper, queries(first), k.data(), weights.data());
  }
};

// exp(x - from), in place.
void exponentials(float* x, int64_t n, float from) {
  at::vec::map<float>([from](Vec each) { return (each - Vec(from)).exp_u20(); }, x, x, n);
}

float sum_of(const float* x, int64_t n) {
  float sum = 0.f;
  #pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; i++) sum += x[i];
  return sum;
}

// Softmax of scores, in place, with dropout; returns the log of the sum of their exponentials.
float weigh(float* scores, int64_t n, const float* factors) {
  const auto larger = [](Vec& one, Vec& other) { return at::vec::maximum(one, other); };
  const float best = at::vec::reduce_all<float>(larger, scores, n);
  exponentials(scores, n, best);
  const float sum = sum_of(scores, n);
  #pragma omp simd
  for (int64_t j = 0; j < n; j++) scores[j] *= factors[j] / sum;
  return best + std::log(sum);
}

// From scores, and the gradient of what dropout makes of their softmax: that of the scores, and the weights again, both in
// place. Of weights P with factors F and gradient G it is P F G - P sum(P F G).
void weigh_backward(float* scores, float* gradient, int64_t n, const float* factors, float normaliser) {
  exponentials(scores, n, normaliser);
  float mean = 0.f;
  #pragma omp simd reduction(+ : mean)
  for (int64_t j = 0; j < n; j++) {
    gradient[j] *= factors[j];
    mean += scores[j] * gradient[j];
  }
  #pragma omp simd
  for (int64_t j = 0; j < n; j++) {
    gradient[j] = scores[j] * (gradient[j] - mean);
    scores[j] *= factors[j];
  }
}

std::tuple<Tensor, Tensor> attend(const Tensor& product, const Tensor& bias, const Tensor& starts, int64_t heads,
                                  int64_t zeroed, int64_t seed) {
  const Rows rows(starts, product, heads);
  Tensor out = at::empty({rows.tokens, rows.width}, product.options());
  Tensor normalisers = at::empty({heads, rows.tokens}, bias.options());
  rows.clear_rest(out);
  const float* b = bias.const_data_ptr<float>();
  float* logs = normalisers.data_ptr<float>();
  by_type(product, [&](auto type) {
    using T = decltype(type);
    const T* x = product.const_data_ptr<T>();
    T* y = out.data_ptr<T>();
    at::parallel_for(0, rows.items, 1, [&](int64_t begin, int64_t end) {
      Head head(rows);
      std::vector<float> said(rows.block() * rows.size);
      for (int64_t item = begin; item < end; item++) {
        head.read(item, x, b);
        Draws draws(seed, item);
        for (int64_t first = 0; first < head.length; first += rows.block()) {
          const int64_t many = std::min(rows.block(), head.length - first);
          head.score(first, many);
          for (int64_t i = 0; i < many; i++) {
            expect(y + head.vector_at(first + i), rows.size);
            if (zeroed) draws.factors(head.length, zeroed, scale_of(zeroed), head.factors.data());
            logs[head.number_at(first + i)] = weigh(&head.weights[i * head.length], head.length, head.factors.data());
          }
          multiply(false, false, many, rows.size, head.length, 1.f, head.weights.data(), head.v.data(), said.data());
          for (int64_t i = 0; i < many; i++)
            at::vec::convert(&said[i * rows.size], y + head.vector_at(first + i), rows.size);
        }
      }
    });
  });
  return {out, normalisers};
}

std::tuple<Tensor, Tensor> attend_backward(const Tensor& gradient, const Tensor& product, const Tensor& bias,
                                           const Tensor& starts, const Tensor& normalisers, int64_t heads,
                                           int64_t zeroed, int64_t seed) {
  const Rows rows(starts, product, heads);
  Tensor to_product = at::empty_like(product);
  Tensor to_bias = at::zeros({at::get_num_threads(), 3 * rows.width}, bias.options());
  rows.clear_rest(to_product);
  const float *b = bias.const_data_ptr<float>(), *logs = normalisers.const_data_ptr<float>();
  float* to_b = to_bias.data_ptr<float>();
  by_type(product, [&](auto type) {
    using T = decltype(type);
    const T *x = product.const_data_ptr<T>(), *slopes = gradient.const_data_ptr<T>();
    T* to_x = to_product.data_ptr<T>();
    at::parallel_for(0, rows.items, 1, [&](int64_t begin, int64_t end) {
      Head head(rows);
      std::vector<float> g(rows.block() * rows.size), to_weights(head.weights.size());
      std::vector<float> to_parts[] = {std::vector<float>(head.q.size()), head.k, head.v};
      for (int64_t item = begin; item < end; item++) {
        head.read(item, x, b);
        Draws draws(seed, item);
        for (int64_t first = 0; first < head.length; first += rows.block()) {
          const int64_t many = std::min(rows.block(), head.length - first);
          for (int64_t i = 0; i < many; i++)
            std::copy_n(slopes + head.vector_at(first + i), rows.size, &g[i * rows.size]);
          head.score(first, many);
          multiply(false, true, many, head.length, rows.size, 1.f, g.data(), head.v.data(), to_weights.data());
          for (int64_t i = 0; i < many; i++) {
            for (int64_t part = 0; part < 3; part++) expect(to_x + head.part_at(part, first + i), rows.size);
            if (zeroed) draws.factors(head.length, zeroed, scale_of(zeroed), head.factors.data());
            weigh_backward(&head.weights[i * head.length], &to_weights[i * head.length], head.length,
                           head.factors.data(), logs[head.number_at(first + i)]);
          }
          float *to_q = &to_parts[0][first * rows.size], *to_k = to_parts[1].data(), *to_v = to_parts[2].data();
          const float *p = head.weights.data(), *to_p = to_weights.data(), *q = head.queries(first);
          multiply(true, false, head.length, rows.size, many, 1.f, p, g.data(), to_v, first > 0);
          multiply(true, false, head.length, rows.size, many, rows.temper, to_p, q, to_k, first > 0);
          multiply(false, false, many, rows.size, head.length, rows.temper, to_p, head.k.data(), to_q);
        }
        for (int64_t part = 0; part < 3; part++) {
          float* sum = to_b + (at::get_thread_num() * 3 + part) * rows.width + head.column;
          for (int64_t i = 0; i < head.length; i++) {
            const float* from = &to_parts[part][i * rows.size];
            at::vec::convert(from, to_x + head.part_at(part, i), rows.size);
            #pragma omp simd
            for (int64_t d = 0; d < rows.size; d++) sum[d] += from[d];
          }
        }
      }
    });
  });
  return {to_product, to_bias.sum(0)};
}

// ------------------------------------------------------------------------- residual sum after dropout, LayerNorm of that

constexpr int64_t TOKENS = 16;  // that share a stream of draws

// `of_token(t, factors)` for every token, with what dropout makes of each of its elements.
template <typename OfToken>
void for_each_token(int64_t tokens, int64_t width, int64_t zeroed, int64_t seed, const OfToken& of_token) {
  at::parallel_for(0, (tokens + TOKENS - 1) / TOKENS, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> factors = room_for_factors(width);
    for (int64_t block = begin; block < end; block++) {
      Draws draws(seed, block);
      for (int64_t t = block * TOKENS; t < std::min(tokens, (block + 1) * TOKENS); t++) {
        if (zeroed) draws.factors(width, zeroed, scale_of(zeroed), factors.data());
        of_token(t, factors.data());
      }
    }
  });
}

std::tuple<Tensor, Tensor, Tensor, Tensor> add_norm(const Tensor& product, const Tensor& bias, const Tensor& residual,
                                                    const Tensor& weight, const Tensor& shift, double eps,
                                                    int64_t zeroed, int64_t seed) {
  const int64_t tokens = product.size(0), width = product.size(1);
  Tensor out = at::empty_like(residual), sums = at::empty_like(residual);
  Tensor means = at::empty({tokens}, residual.options()), scales = at::empty_like(means);
  const float *b = bias.const_data_ptr<float>(), *r = residual.const_data_ptr<float>(),
              *w = weight.const_data_ptr<float>(), *s = shift.const_data_ptr<float>();
  float *y = out.data_ptr<float>(), *z = sums.data_ptr<float>();
  float *m = means.data_ptr<float>(), *c = scales.data_ptr<float>();
  by_type(product, [&](auto type) {
    using T = decltype(type);
    const T* x = product.const_data_ptr<T>();
    for_each_token(tokens, width, zeroed, seed, [&](int64_t t, const float* factors) {
      const T* xt = x + t * width;
      const float* rt = r + t * width;
      float *yt = y + t * width, *zt = z + t * width, squares = 0.f;
      #pragma omp simd
      for (int64_t h = 0; h < width; h++) zt[h] = rt[h] + (static_cast<float>(xt[h]) + b[h]) * factors[h];
      const float mean = sum_of(zt, width) / width;
      #pragma omp simd reduction(+ : squares)
      for (int64_t h = 0; h < width; h++) squares += (zt[h] - mean) * (zt[h] - mean);
      const float scale = 1.f / std::sqrt(squares / width + float(eps));
      #pragma omp simd
      for (int64_t h = 0; h < width; h++) yt[h] = (zt[h] - mean) * scale * w[h] + s[h];
      m[t] = mean;
      c[t] = scale;
    });
  });
  return {out, sums, means, scales};
}

// The gradients of the product, of the type of `like`, of the residual, and together of bias, weight and shift.
std::tuple<Tensor, Tensor, Tensor> add_norm_backward(const Tensor& gradient, const Tensor& sums, const Tensor& means,
                                                     const Tensor& scales, const Tensor& weight, const Tensor& like,
                                                     int64_t zeroed, int64_t seed) {
  const int64_t tokens = sums.size(0), width = sums.size(1);
  Tensor to_product = at::empty(sums.sizes(), like.options()), to_residual = at::empty_like(sums);
  Tensor to_vectors = at::zeros({at::get_num_threads(), 3, width}, sums.options());
  const float *g = gradient.const_data_ptr<float>(), *z = sums.const_data_ptr<float>(),
              *m = means.const_data_ptr<float>(), *c = scales.const_data_ptr<float>(),
              *w = weight.const_data_ptr<float>();
  float *to_r = to_residual.data_ptr<float>(), *to_all = to_vectors.data_ptr<float>();
  by_type(like, [&](auto type) {
    using T = decltype(type);
    T* to_x = to_product.data_ptr<T>();
    for_each_token(tokens, width, zeroed, seed, [&](int64_t t, const float* factors) {
      float *to_b = to_all + at::get_thread_num() * 3 * width, *to_w = to_b + width, *to_s = to_w + width;
      const float *gt = g + t * width, *zt = z + t * width, mean = m[t], scale = c[t];
      float *to_rt = to_r + t * width, by_mean = 0.f, by_scale = 0.f;
      T* to_xt = to_x + t * width;
      #pragma omp simd reduction(+ : by_mean, by_scale)
      for (int64_t h = 0; h < width; h++) {
        const float normal = (zt[h] - mean) * scale, slope = gt[h] * w[h];
        by_mean += slope;
        by_scale += slope * normal;
        to_w[h] += gt[h] * normal;
        to_s[h] += gt[h];
      }
      by_mean /= width;
      by_scale /= width;
      #pragma omp simd
      for (int64_t h = 0; h < width; h++) {
        const float normal = (zt[h] - mean) * scale;
        to_rt[h] = scale * (gt[h] * w[h] - by_mean - normal * by_scale);
        to_b[h] += to_rt[h] * factors[h];
      }
      Numbers<T> numbers(width);
      float* kept = numbers.room_for(to_xt);
      #pragma omp simd
      for (int64_t h = 0; h < width; h++) kept[h] = to_rt[h] * factors[h];
      numbers.keep(to_xt, width);
    });
  });
  return {to_product, to_residual, to_vectors.sum(0)};
}

// ----------------------------------------------------------------------------------------------------------------- GELU

// The share of a normal distribution below v, and its density at v. One exponential serves both: erf is Abramowitz and
// Stegun's 7.1.26, whose error, 1.5e-7, is about float32's own.
std::pair<Vec, Vec> normal_at(Vec v) {
  const Vec bell = (v * v * Vec(-0.5f)).exp_u20();
  const Vec t = Vec(1.f) / (Vec(1.f) + v.abs() * Vec(0.3275911f * 0.70710678f));
  Vec above = at::vec::fmadd(t, Vec(1.061405429f), Vec(-1.453152027f));
  above = at::vec::fmadd(t, above, Vec(1.421413741f));
  above = at::vec::fmadd(t, above, Vec(-0.284496736f));
  above = at::vec::fmadd(t, above, Vec(0.254829592f)) * t * bell * Vec(0.5f);
  return {Vec::blendv(Vec(1.f) - above, above, v < Vec(0.f)), bell * Vec(0.39894228f)};
}

Tensor gelu(const Tensor& product, const Tensor& bias) {
  const int64_t tokens = product.size(0), width = product.size(1);
  Tensor out = at::empty_like(product);
  const float* b = bias.const_data_ptr<float>();
  const auto of = [](Vec each, Vec add) { return (each + add) * normal_at(each + add).first; };
  by_type(product, [&](auto type) {
    using T = decltype(type);
    const T* x = product.const_data_ptr<T>();
    T* y = out.data_ptr<T>();
    at::parallel_for(0, tokens, TOKENS, [&](int64_t begin, int64_t end) {
      Numbers<T> given(width), found(width);
      for (int64_t t = begin; t < end; t++) {
        T* row = y + t * width;
        at::vec::map2<float>(of, found.room_for(row), given.read(x + t * width, width), b, width);
        found.keep(row, width);
      }
    });
  });
  return out;
}

std::tuple<Tensor, Tensor> gelu_backward(const Tensor& gradient, const Tensor& product, const Tensor& bias) {
  const int64_t tokens = product.size(0), width = product.size(1);
  Tensor to_product = at::empty_like(product), to_bias = at::zeros({at::get_num_threads(), width}, bias.options());
  const float* b = bias.const_data_ptr<float>();
  float* to_b = to_bias.data_ptr<float>();
  const auto of = [](Vec each, Vec add, Vec slope) {
    const auto [share, density] = normal_at(each + add);
    return slope * at::vec::fmadd(each + add, density, share);
  };
  by_type(product, [&](auto type) {
    using T = decltype(type);
    const T *x = product.const_data_ptr<T>(), *g = gradient.const_data_ptr<T>();
    T* to_x = to_product.data_ptr<T>();
    at::parallel_for(0, tokens, TOKENS, [&](int64_t begin, int64_t end) {
      Numbers<T> given(width), slopes(width), found(width);
      float* sum = to_b + at::get_thread_num() * width;
      for (int64_t t = begin; t < end; t++) {
        T* row = to_x + t * width;
        float* numbers = found.room_for(row);
        const float *xt = given.read(x + t * width, width), *gt = slopes.read(g + t * width, width);
        at::vec::map3<float>(of, numbers, xt, b, gt, width);
        #pragma omp simd
        for (int64_t h = 0; h < width; h++) sum[h] += numbers[h];
        found.keep(row, width);
      }
    });
  });
  return {to_product, to_bias.sum(0)};
}

}  // namespace

TORCH_LIBRARY(electra, library) {
  library.def("attend", &attend);
  library.def("attend_backward", &attend_backward);
  library.def("add_norm", &add_norm);
  library.def("add_norm_backward", &add_norm_backward);
  library.def("gelu", &gelu);
  library.def("gelu_backward", &gelu_backward);
}
