// GELU of a product and its bias.

#pragma once

#include "check.h"
#include "numbers.h"

#include <tuple>
#include <utility>

namespace electra {

// The share of a normal distribution below v, and its density at v. One exponential serves both: erf is Abramowitz and
// Stegun's 7.1.26, whose error, 1.5e-7, is about float32's own.
inline std::pair<Vec, Vec> normal_at(Vec v) {
  const Vec bell = (v * v * Vec(-0.5f)).exp_u20();
  const Vec t = Vec(1.f) / (Vec(1.f) + v.abs() * Vec(0.3275911f * 0.70710678f));
  Vec above = at::vec::fmadd(t, Vec(1.061405429f), Vec(-1.453152027f));
  above = at::vec::fmadd(t, above, Vec(1.421413741f));
  above = at::vec::fmadd(t, above, Vec(-0.284496736f));
  above = at::vec::fmadd(t, above, Vec(0.254829592f)) * t * bell * Vec(0.5f);
  return {Vec::blendv(Vec(1.f) - above, above, v < Vec(0.f)), bell * Vec(0.39894228f)};
}

inline void check_gelu(const Checks& checks, const Tensor& product, const Tensor& bias) {
  checks.tensor("product", product, PRODUCT, {ANY, ANY});
  checks.at_least_1("the width of product", product.size(1));
  checks.tensor("bias", bias, FLOAT, {product.size(1)});
}

inline Tensor gelu(const Tensor& product, const Tensor& bias) {
  check_gelu(Checks("electra::gelu"), product, bias);
  const int64_t tokens = product.size(0), width = product.size(1);
  Tensor out = at::empty_like(product);
  const float* b = bias.const_data_ptr<float>();
  const auto of = [](Vec each, Vec add) { return (each + add) * normal_at(each + add).first; };
  by_type(product, [&](auto type) {
    using T = decltype(type);
    const T* x = product.const_data_ptr<T>();
    T* y = out.data_ptr<T>();
    for_each_share(tokens, [&](int64_t begin, int64_t end, int64_t) {
      Numbers<T> given(width), found(width);
      for (int64_t t = begin; t < end; t++) {
        T* row = y + t * width;
        at::vec::map2<float>(of, found.buffer_for(row), given.read(x + t * width, width), b, width);
        found.keep(row, width);
      }
    });
  });
  return out;
}

inline std::tuple<Tensor, Tensor> gelu_backward(const Tensor& gradient, const Tensor& product, const Tensor& bias) {
  const Checks checks("electra::gelu_backward");
  check_gelu(checks, product, bias);
  const int64_t tokens = product.size(0), width = product.size(1);
  checks.tensor("gradient", gradient, {product.scalar_type()}, {tokens, width});
  Tensor to_product = at::empty_like(product), to_bias = sums_of_shares(width, bias);
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
    for_each_share(tokens, [&](int64_t begin, int64_t end, int64_t share) {
      Numbers<T> given(width), slopes(width), found(width);
      std::vector<float> part(width);
      for (int64_t t = begin; t < end; t++) {
        T* row = to_x + t * width;
        float* numbers = found.buffer_for(row);
        const float *xt = given.read(x + t * width, width), *gt = slopes.read(g + t * width, width);
        at::vec::map3<float>(of, numbers, xt, b, gt, width);
        add_to(part.data(), numbers, width);
        found.keep(row, width);
        if ((t + 1) % TOKENS == 0 || t + 1 == end) collect(part, to_b + share * width);
      }
    });
  });
  return {to_product, to_bias.sum(0)};
}

}  // namespace electra
