// Self-attention within each sequence of a packed batch, with dropout on the probabilities; forward and backward.
//
// Memory: qkv is [tokens, 3 * width]: the queries, keys and values of a token, each with `heads` heads of `size` numbers. An
// item of work is a head of a sequence. Each thread takes a range of items and copies the q, k and v of an item to its
// buffers, as contiguous float32, because the stride of a head in qkv is long. Queries are processed in blocks of up to BLOCK,
// so that the scores of a block [BLOCK, length] fit in the cache for sequences of any length.
//
// The forward pass stores the log-sum-exp of each query, [heads, tokens]. From it the backward pass recomputes the
// probabilities, and it draws dropout again from the same seed: neither scores nor dropout masks are stored.
// All sums are float32. Tested in tests/model/test_cpu_attention.py; arguments in tests/model/test_kernel_arguments.py.

#pragma once

#include "check.h"
#include "dropout.h"
#include "numbers.h"

#include <algorithm>
#include <cmath>
#include <tuple>

// BLAS with 32-bit integers, which torch links.
extern "C" void sgemm_(const char*, const char*, const int*, const int*, const int*, const float*, const float*,
                       const int*, const float*, const int*, const float*, float*, const int*);

namespace electra {

constexpr int64_t BLOCK = 128;

// c = factor * a b, plus c if `add`. All matrices are row-major; a or b may be transposed.
inline void multiply(bool a_transposed, bool b_transposed, int64_t rows, int64_t columns, int64_t inner, float factor,
                     const float* a, const float* b, float* c, bool add = false) {
  // BLAS is column-major, so this computes c^T = b^T a^T.
  const char of_a = a_transposed ? 'T' : 'N', of_b = b_transposed ? 'T' : 'N';
  const int m = columns, n = rows, k = inner, lda = a_transposed ? rows : inner, ldb = b_transposed ? inner : columns;
  const float beta = add ? 1.f : 0.f;
  sgemm_(&of_b, &of_a, &m, &n, &k, &factor, b, &ldb, a, &lda, &beta, c, &m);
}

// Sizes of a packed batch.
struct PackedBatch {
  const int64_t *cu_seqlens, tokens, heads, width, size, items;
  int64_t longest = 0;
  const float scale;

  PackedBatch(const Tensor& cu_seqlens_, const Tensor& qkv, int64_t heads_)
      : cu_seqlens(cu_seqlens_.const_data_ptr<int64_t>()), tokens(qkv.size(0)), heads(heads_), width(qkv.size(1) / 3),
        size(width / heads), items((cu_seqlens_.numel() - 1) * heads), scale(1.f / std::sqrt(float(size))) {
    for (int64_t row = 0; row < items / heads; row++)
      longest = std::max(longest, cu_seqlens[row + 1] - cu_seqlens[row]);
  }

  int64_t block() const { return std::min(BLOCK, longest); }

  // Set the tokens after the last sequence to zero.
  void clear_rest(const Tensor& of_tokens) const { of_tokens.slice(0, cu_seqlens[items / heads]).zero_(); }
};

// A thread's buffers for one item.
struct Head {
  const PackedBatch& batch;
  std::vector<float> q, k, v, scores, factors;
  int64_t number = 0, start = 0, length = 0, column = 0;

  explicit Head(const PackedBatch& batch_)
      : batch(batch_), q(batch.longest * batch.size), k(q.size()), v(q.size()), scores(batch.block() * batch.longest),
        factors(buffer_for_factors(batch.longest)) {}

  template <typename T>
  void read(int64_t item, const T* qkv) {
    const int64_t row = item / batch.heads;
    number = item % batch.heads;
    start = batch.cu_seqlens[row];
    length = batch.cu_seqlens[row + 1] - start;
    column = number * batch.size;
    float* parts[] = {q.data(), k.data(), v.data()};
    for (int64_t part = 0; part < 3; part++)
      for (int64_t i = 0; i < length; i++) {
        const T* from = qkv + qkv_offset(part, i);
        float* to = parts[part] + i * batch.size;
        #pragma omp simd
        for (int64_t d = 0; d < batch.size; d++) to[d] = static_cast<float>(from[d]);
      }
  }

  const float* queries(int64_t first) const { return q.data() + first * batch.size; }

  // Offsets of token i of this head in [tokens, 3 * width], [tokens, width] and [heads, tokens].
  int64_t qkv_offset(int64_t part, int64_t i) const { return ((start + i) * 3 + part) * batch.width + column; }
  int64_t output_offset(int64_t i) const { return (start + i) * batch.width + column; }
  int64_t log_offset(int64_t i) const { return number * batch.tokens + start + i; }

  // Scores of `many` queries from `first` on.
  void score(int64_t first, int64_t many) {
    multiply(false, true, many, length, batch.size, batch.scale, queries(first), k.data(), scores.data());
  }
};

// Softmax in place, multiplied by dropout factors; returns the log-sum-exp.
inline float softmax_dropout(float* scores, int64_t n, const float* factors) {
  const float largest = largest_of(scores, n);
  exponentials(scores, n, largest);
  const float sum = sum_of(scores, n);
  #pragma omp simd
  for (int64_t j = 0; j < n; j++) scores[j] *= factors[j] / sum;
  return largest + std::log(sum);
}

// With probabilities P = softmax(scores), dropout factors F and the gradient G of P F, overwrites `gradient` by the gradient
// of the scores, P F G - P sum(P F G), and `scores` by P F, which the gradient of the values needs.
inline void softmax_dropout_backward(float* scores, float* gradient, int64_t n, const float* factors,
                                     float log_sum_exp) {
  exponentials(scores, n, log_sum_exp);
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

inline void check_attention(const Checks& checks, const Tensor& qkv, const Tensor& cu_seqlens, int64_t heads,
                            int64_t dropped) {
  checks.tensor("qkv", qkv, FLOAT_OR_BFLOAT16, {ANY, ANY});
  checks.at_least_1("the width of qkv", qkv.size(1));
  checks.at_least_1("heads", heads);
  checks.multiple("the width of qkv", qkv.size(1), 3);
  checks.multiple("a third of the width of qkv", qkv.size(1) / 3, heads);
  checks.cu_seqlens(cu_seqlens, qkv.size(0));
  checks.in_range("dropped", dropped, 0, LEVELS - 1);
}

inline std::tuple<Tensor, Tensor> attend(const Tensor& qkv, const Tensor& cu_seqlens, int64_t heads, int64_t dropped,
                                         int64_t seed) {
  check_attention(Checks("electra::attend"), qkv, cu_seqlens, heads, dropped);
  const PackedBatch batch(cu_seqlens, qkv, heads);
  Tensor out = at::empty({batch.tokens, batch.width}, qkv.options());
  Tensor log_sum_exp = at::empty({heads, batch.tokens}, qkv.options().dtype(at::kFloat));
  batch.clear_rest(out);
  float* logs = log_sum_exp.data_ptr<float>();
  by_type(qkv, [&](auto type) {
    using T = decltype(type);
    const T* x = qkv.const_data_ptr<T>();
    T* y = out.data_ptr<T>();
    for_each_share(batch.items, [&](int64_t begin, int64_t end) {
      Head head(batch);
      std::vector<float> block(batch.block() * batch.size);
      for (int64_t item = begin; item < end; item++) {
        head.read(item, x);
        Draws draws(seed, item);
        for (int64_t first = 0; first < head.length; first += batch.block()) {
          const int64_t many = std::min(batch.block(), head.length - first);
          head.score(first, many);
          for (int64_t i = 0; i < many; i++) {
            prefetch(y + head.output_offset(first + i), batch.size);
            if (dropped) draws.factors(head.length, dropped, dropout_scale(dropped), head.factors.data());
            logs[head.log_offset(first + i)] =
                softmax_dropout(&head.scores[i * head.length], head.length, head.factors.data());
          }
          multiply(false, false, many, batch.size, head.length, 1.f, head.scores.data(), head.v.data(), block.data());
          for (int64_t i = 0; i < many; i++)
            at::vec::convert(&block[i * batch.size], y + head.output_offset(first + i), batch.size);
        }
      }
    });
  });
  return {out, log_sum_exp};
}

inline Tensor attend_backward(const Tensor& gradient, const Tensor& qkv, const Tensor& cu_seqlens,
                              const Tensor& log_sum_exp, int64_t heads, int64_t dropped, int64_t seed) {
  const Checks checks("electra::attend_backward");
  check_attention(checks, qkv, cu_seqlens, heads, dropped);
  checks.tensor("gradient", gradient, {qkv.scalar_type()}, {qkv.size(0), qkv.size(1) / 3});
  checks.tensor("log_sum_exp", log_sum_exp, FLOAT, {heads, qkv.size(0)});
  const PackedBatch batch(cu_seqlens, qkv, heads);
  Tensor d_qkv = at::empty_like(qkv);
  batch.clear_rest(d_qkv);
  const float* logs = log_sum_exp.const_data_ptr<float>();
  by_type(qkv, [&](auto type) {
    using T = decltype(type);
    const T *x = qkv.const_data_ptr<T>(), *d_out = gradient.const_data_ptr<T>();
    T* d_x = d_qkv.data_ptr<T>();
    for_each_share(batch.items, [&](int64_t begin, int64_t end) {
      Head head(batch);
      std::vector<float> g(batch.block() * batch.size), d_scores(head.scores.size());
      std::vector<float> d_parts[] = {std::vector<float>(head.q.size()), head.k, head.v};
      for (int64_t item = begin; item < end; item++) {
        head.read(item, x);
        Draws draws(seed, item);
        for (int64_t first = 0; first < head.length; first += batch.block()) {
          const int64_t many = std::min(batch.block(), head.length - first);
          for (int64_t i = 0; i < many; i++)
            std::copy_n(d_out + head.output_offset(first + i), batch.size, &g[i * batch.size]);
          head.score(first, many);
          multiply(false, true, many, head.length, batch.size, 1.f, g.data(), head.v.data(), d_scores.data());
          for (int64_t i = 0; i < many; i++) {
            for (int64_t part = 0; part < 3; part++) prefetch(d_x + head.qkv_offset(part, first + i), batch.size);
            if (dropped) draws.factors(head.length, dropped, dropout_scale(dropped), head.factors.data());
            softmax_dropout_backward(&head.scores[i * head.length], &d_scores[i * head.length], head.length,
                                     head.factors.data(), logs[head.log_offset(first + i)]);
          }
          float *d_q = &d_parts[0][first * batch.size], *d_k = d_parts[1].data(), *d_v = d_parts[2].data();
          const float *p = head.scores.data(), *d_s = d_scores.data(), *q = head.queries(first);
          multiply(true, false, head.length, batch.size, many, 1.f, p, g.data(), d_v, first > 0);
          multiply(true, false, head.length, batch.size, many, batch.scale, d_s, q, d_k, first > 0);
          multiply(false, false, many, batch.size, head.length, batch.scale, d_s, head.k.data(), d_q);
        }
        for (int64_t part = 0; part < 3; part++)
          for (int64_t i = 0; i < head.length; i++)
            at::vec::convert(&d_parts[part][i * batch.size], d_x + head.qkv_offset(part, i), batch.size);
      }
    });
  });
  return d_qkv;
}

}  // namespace electra
