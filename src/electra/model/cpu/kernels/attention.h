// Self-attention within each row of a batch, of which all tokens lie in one line, with dropout on its weights.

#pragma once

#include "check.h"
#include "dropout.h"
#include "numbers.h"

#include <algorithm>
#include <cmath>
#include <tuple>

// BLAS, which torch brings along, with numbers of 32 bits.
extern "C" void sgemm_(const char*, const char*, const int*, const int*, const int*, const float*, const float*,
                       const int*, const float*, const int*, const float*, float*, const int*);

namespace electra {

constexpr int64_t BLOCK = 128;  // of queries: their scores stay in the cache, however long the row

// c = factor * a b, plus what c was if `add`. All matrices are row by row; a or b may be transposed.
inline void multiply(bool a_transposed, bool b_transposed, int64_t rows, int64_t columns, int64_t inner, float factor,
                     const float* a, const float* b, float* c, bool add = false) {
  // BLAS goes column by column, to which these are c^T = b^T a^T.
  const char of_a = a_transposed ? 'T' : 'N', of_b = b_transposed ? 'T' : 'N';
  const int m = columns, n = rows, k = inner, lda = a_transposed ? rows : inner, ldb = b_transposed ? inner : columns;
  const float beta = add ? 1.f : 0.f;
  sgemm_(&of_b, &of_a, &m, &n, &k, &factor, b, &ldb, a, &lda, &beta, c, &m);
}

// A batch, row after row; the tokens of a row attend to each other. An item is a head of a row.
struct Line {
  const int64_t *starts, tokens, heads, width, size, items;
  int64_t longest = 0;
  const float temper;

  Line(const Tensor& starts_, const Tensor& product, int64_t heads_)
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
  const Line& of;
  std::vector<float> q, k, v, weights, factors;
  int64_t number = 0, start = 0, length = 0, column = 0;

  explicit Head(const Line& line)
      : of(line), q(line.longest * line.size), k(q.size()), v(q.size()), weights(line.block() * line.longest),
        factors(buffer_for_factors(line.longest)) {}

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

// Softmax of scores, in place, with dropout; returns the log of the sum of their exponentials.
inline float weigh(float* scores, int64_t n, const float* factors) {
  const float best = largest_of(scores, n);
  exponentials(scores, n, best);
  const float sum = sum_of(scores, n);
  #pragma omp simd
  for (int64_t j = 0; j < n; j++) scores[j] *= factors[j] / sum;
  return best + std::log(sum);
}

// From scores, and the gradient of what dropout makes of their softmax: that of the scores, and the weights again, both in
// place. Of weights P with factors F and gradient G it is P F G - P sum(P F G).
inline void weigh_backward(float* scores, float* gradient, int64_t n, const float* factors, float normaliser) {
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

inline void check_attention(const Checks& checks, const Tensor& product, const Tensor& bias, const Tensor& starts,
                            int64_t heads, int64_t zeroed) {
  checks.tensor("product", product, PRODUCT, {ANY, ANY});
  checks.at_least_1("the width of product", product.size(1));
  checks.at_least_1("heads", heads);
  checks.multiple("the width of product", product.size(1), 3);
  checks.multiple("a third of the width of product", product.size(1) / 3, heads);
  checks.tensor("bias", bias, FLOAT, {product.size(1)});
  checks.starts(starts, product.size(0));
  checks.in_range("zeroed", zeroed, 0, LEVELS - 1);
}

inline std::tuple<Tensor, Tensor> attend(const Tensor& product, const Tensor& bias, const Tensor& starts, int64_t heads,
                                         int64_t zeroed, int64_t seed) {
  check_attention(Checks("electra::attend"), product, bias, starts, heads, zeroed);
  const Line line(starts, product, heads);
  Tensor out = at::empty({line.tokens, line.width}, product.options());
  Tensor normalisers = at::empty({heads, line.tokens}, bias.options());
  line.clear_rest(out);
  const float* b = bias.const_data_ptr<float>();
  float* logs = normalisers.data_ptr<float>();
  by_type(product, [&](auto type) {
    using T = decltype(type);
    const T* x = product.const_data_ptr<T>();
    T* y = out.data_ptr<T>();
    for_each_share(line.items, [&](int64_t begin, int64_t end, int64_t) {
      Head head(line);
      std::vector<float> said(line.block() * line.size);
      for (int64_t item = begin; item < end; item++) {
        head.read(item, x, b);
        Draws draws(seed, item);
        for (int64_t first = 0; first < head.length; first += line.block()) {
          const int64_t many = std::min(line.block(), head.length - first);
          head.score(first, many);
          for (int64_t i = 0; i < many; i++) {
            expect(y + head.vector_at(first + i), line.size);
            if (zeroed) draws.factors(head.length, zeroed, scale_of(zeroed), head.factors.data());
            logs[head.number_at(first + i)] = weigh(&head.weights[i * head.length], head.length, head.factors.data());
          }
          multiply(false, false, many, line.size, head.length, 1.f, head.weights.data(), head.v.data(), said.data());
          for (int64_t i = 0; i < many; i++)
            at::vec::convert(&said[i * line.size], y + head.vector_at(first + i), line.size);
        }
      }
    });
  });
  return {out, normalisers};
}

inline std::tuple<Tensor, Tensor> attend_backward(const Tensor& gradient, const Tensor& product, const Tensor& bias,
                                                  const Tensor& starts, const Tensor& normalisers, int64_t heads,
                                                  int64_t zeroed, int64_t seed) {
  const Checks checks("electra::attend_backward");
  check_attention(checks, product, bias, starts, heads, zeroed);
  checks.tensor("gradient", gradient, {product.scalar_type()}, {product.size(0), product.size(1) / 3});
  checks.tensor("normalisers", normalisers, FLOAT, {heads, product.size(0)});
  const Line line(starts, product, heads);
  Tensor to_product = at::empty_like(product);
  Tensor to_bias = sums_of_shares(3 * line.width, bias);
  line.clear_rest(to_product);
  const float *b = bias.const_data_ptr<float>(), *logs = normalisers.const_data_ptr<float>();
  float* to_b = to_bias.data_ptr<float>();
  by_type(product, [&](auto type) {
    using T = decltype(type);
    const T *x = product.const_data_ptr<T>(), *slopes = gradient.const_data_ptr<T>();
    T* to_x = to_product.data_ptr<T>();
    for_each_share(line.items, [&](int64_t begin, int64_t end, int64_t share) {
      Head head(line);
      std::vector<float> g(line.block() * line.size), to_weights(head.weights.size());
      std::vector<float> sum(line.size);
      std::vector<float> to_parts[] = {std::vector<float>(head.q.size()), head.k, head.v};
      for (int64_t item = begin; item < end; item++) {
        head.read(item, x, b);
        Draws draws(seed, item);
        for (int64_t first = 0; first < head.length; first += line.block()) {
          const int64_t many = std::min(line.block(), head.length - first);
          for (int64_t i = 0; i < many; i++)
            std::copy_n(slopes + head.vector_at(first + i), line.size, &g[i * line.size]);
          head.score(first, many);
          multiply(false, true, many, head.length, line.size, 1.f, g.data(), head.v.data(), to_weights.data());
          for (int64_t i = 0; i < many; i++) {
            for (int64_t part = 0; part < 3; part++) expect(to_x + head.part_at(part, first + i), line.size);
            if (zeroed) draws.factors(head.length, zeroed, scale_of(zeroed), head.factors.data());
            weigh_backward(&head.weights[i * head.length], &to_weights[i * head.length], head.length,
                           head.factors.data(), logs[head.number_at(first + i)]);
          }
          float *to_q = &to_parts[0][first * line.size], *to_k = to_parts[1].data(), *to_v = to_parts[2].data();
          const float *p = head.weights.data(), *to_p = to_weights.data(), *q = head.queries(first);
          multiply(true, false, head.length, line.size, many, 1.f, p, g.data(), to_v, first > 0);
          multiply(true, false, head.length, line.size, many, line.temper, to_p, q, to_k, first > 0);
          multiply(false, false, many, line.size, head.length, line.temper, to_p, head.k.data(), to_q);
        }
        for (int64_t part = 0; part < 3; part++) {
          for (int64_t i = 0; i < head.length; i++) {
            const float* from = &to_parts[part][i * line.size];
            at::vec::convert(from, to_x + head.part_at(part, i), line.size);
            add_to(sum.data(), from, line.size);
          }
          collect(sum, to_b + (share * 3 + part) * line.width + head.column);
        }
      }
    });
  });
  return {to_product, to_bias.sum(0)};
}

}  // namespace electra
