// Dropout of any tensor. Its backward pass is the same operator with the same seed, applied to the gradient.

#pragma once

#include "check.h"
#include "dropout.h"
#include "numbers.h"

namespace electra {

constexpr int64_t DROPOUT_BLOCK = 4096;  // elements with one stream of random bits; few enough for the first-level cache

// x with an element zeroed for `dropped` of the LEVELS values of its draw, and the others scaled. The result does not depend on
// the number of threads: a block's number is its stream.
inline Tensor dropout(const Tensor& x, int64_t dropped, int64_t seed) {
  const Checks checks("electra::dropout");
  checks.tensor("x", x, FLOAT_OR_BFLOAT16, {ANY});
  checks.in_range("dropped", dropped, 0, LEVELS - 1);
  Tensor out = at::empty_like(x);
  const int64_t n = x.numel();
  by_type(x, [&](auto type) {
    using T = decltype(type);
    const T* from = x.const_data_ptr<T>();
    T* to = out.mutable_data_ptr<T>();
    const float scale = dropout_scale(dropped);
    for_each_share((n + DROPOUT_BLOCK - 1) / DROPOUT_BLOCK, [&](int64_t begin, int64_t end) {
      std::vector<float> factors = buffer_for_factors(DROPOUT_BLOCK);
      for (int64_t block = begin; block < end; block++) {
        const int64_t start = block * DROPOUT_BLOCK, size = std::min(DROPOUT_BLOCK, n - start);
        Draws(seed, block).factors(size, dropped, scale, factors.data());
        for (int64_t i = 0; i < size; i++) to[start + i] = static_cast<T>(static_cast<float>(from[start + i]) * factors[i]);
      }
    });
  });
  return out;
}

}  // namespace electra
