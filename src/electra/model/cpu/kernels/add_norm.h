// LayerNorm of a residual and what dropout leaves of a product and its bias.

#pragma once

#include "check.h"
#include "dropout.h"
#include "numbers.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace electra {

// `of_token(t, factors)` for the tokens of a block, with what dropout makes of their elements; a block has its own stream.
template <typename OfToken>
void for_each_token(int64_t block, int64_t tokens, int64_t zeroed, int64_t seed, int64_t width,
                    std::vector<float>& factors, const OfToken& of_token) {
  Draws draws(seed, block);
  for (int64_t t = block * TOKENS; t < std::min(tokens, (block + 1) * TOKENS); t++) {
    if (zeroed) draws.factors(width, zeroed, scale_of(zeroed), factors.data());
    of_token(t, factors.data());
  }
}

inline int64_t blocks_of(int64_t tokens) { return (tokens + TOKENS - 1) / TOKENS; }

inline std::tuple<Tensor, Tensor, Tensor, Tensor> add_norm(const Tensor& product, const Tensor& bias,
                                                           const Tensor& residual, const Tensor& weight,
                                                           const Tensor& shift, double eps, int64_t zeroed,
                                                           int64_t seed) {
  const Checks checks("electra::add_norm");
  checks.tensor("product", product, PRODUCT, {ANY, ANY});
  const int64_t tokens = product.size(0), width = product.size(1);
  checks.at_least_1("the width of product", width);
  checks.tensor("bias", bias, FLOAT, {width});
  checks.tensor("residual", residual, FLOAT, {tokens, width});
  checks.tensor("weight", weight, FLOAT, {width});
  checks.tensor("shift", shift, FLOAT, {width});
  checks.eps(eps);
  checks.in_range("zeroed", zeroed, 0, LEVELS - 1);
  Tensor out = at::empty_like(residual), sums = at::empty_like(residual);
  Tensor means = at::empty({tokens}, residual.options()), scales = at::empty_like(means);
  const float *b = bias.const_data_ptr<float>(), *r = residual.const_data_ptr<float>(),
              *w = weight.const_data_ptr<float>(), *s = shift.const_data_ptr<float>();
  float *y = out.data_ptr<float>(), *z = sums.data_ptr<float>();
  float *m = means.data_ptr<float>(), *c = scales.data_ptr<float>();
  by_type(product, [&](auto type) {
    using T = decltype(type);
    const T* x = product.const_data_ptr<T>();
    const auto of_token = [=](int64_t t, const float* factors) {
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
    };
    for_each_share(blocks_of(tokens), [&](int64_t begin, int64_t end, int64_t) {
      std::vector<float> factors = buffer_for_factors(width);
      for (int64_t block = begin; block < end; block++)
        for_each_token(block, tokens, zeroed, seed, width, factors, of_token);
    });
  });
  return {out, sums, means, scales};
}

// The gradients of the product, of the type of `like`, which has its sizes, of the residual, and together of bias, weight and shift.
inline std::tuple<Tensor, Tensor, Tensor> add_norm_backward(const Tensor& gradient, const Tensor& sums,
                                                            const Tensor& means, const Tensor& scales,
                                                            const Tensor& weight, const Tensor& like, int64_t zeroed,
                                                            int64_t seed) {
  const Checks checks("electra::add_norm_backward");
  checks.tensor("sums", sums, FLOAT, {ANY, ANY});
  const int64_t tokens = sums.size(0), width = sums.size(1);
  checks.at_least_1("the width of sums", width);
  checks.tensor("gradient", gradient, FLOAT, {tokens, width});
  checks.tensor("means", means, FLOAT, {tokens});
  checks.tensor("scales", scales, FLOAT, {tokens});
  checks.tensor("weight", weight, FLOAT, {width});
  checks.tensor("like", like, PRODUCT, {tokens, width});
  checks.in_range("zeroed", zeroed, 0, LEVELS - 1);
  Tensor to_product = at::empty(sums.sizes(), like.options()), to_residual = at::empty_like(sums);
  Tensor to_vectors = sums_of_shares(3 * width, sums);
  const float *g = gradient.const_data_ptr<float>(), *z = sums.const_data_ptr<float>(),
              *m = means.const_data_ptr<float>(), *c = scales.const_data_ptr<float>(),
              *w = weight.const_data_ptr<float>();
  float *to_r = to_residual.data_ptr<float>(), *to_all = to_vectors.data_ptr<float>();
  by_type(like, [&](auto type) {
    using T = decltype(type);
    T* to_x = to_product.data_ptr<T>();
    for_each_share(blocks_of(tokens), [&](int64_t begin, int64_t end, int64_t share) {
      std::vector<float> factors = buffer_for_factors(width), part(3 * width);
      float *to_b = part.data(), *to_w = to_b + width, *to_s = to_w + width;
      Numbers<T> numbers(width);
      const auto of_token = [&](int64_t t, const float* kept) {
        const float *gt = g + t * width, *zt = z + t * width, mean = m[t], scale = c[t];
        float *to_rt = to_r + t * width, *to_xt = numbers.buffer_for(to_x + t * width), by_mean = 0.f, by_scale = 0.f;
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
          to_xt[h] = to_rt[h] * kept[h];
          to_b[h] += to_xt[h];
        }
        numbers.keep(to_x + t * width, width);
      };
      for (int64_t block = begin; block < end; block++) {
        for_each_token(block, tokens, zeroed, seed, width, factors, of_token);
        collect(part, to_all + share * 3 * width);
      }
    });
  });
  return {to_product, to_residual, to_vectors.sum(0).view({3, width})};
}

}  // namespace electra
