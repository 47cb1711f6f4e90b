// Vectorized loops over float32, and the division of work among threads.

#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>

#include <algorithm>
#include <vector>

namespace electra {

using at::Tensor;
using Vec = at::vec::Vectorized<float>;

constexpr int64_t CACHE_LINE = 64;  // bytes

// `body` with a value of the type of the tensor's elements.
template <typename Body>
auto by_type(const Tensor& tensor, const Body& body) {
  return tensor.scalar_type() == at::kBFloat16 ? body(at::BFloat16()) : body(float());
}

// `body(begin, end)` for parts of `items`, one for each thread.
template <typename Body>
void for_each_share(int64_t items, const Body& body) {
  const int64_t shares = std::min<int64_t>(at::get_num_threads(), items);
  at::parallel_for(0, shares, 1, [&](int64_t begin, int64_t end) {
    for (int64_t share = begin; share < end; share++) body(items * share / shares, items * (share + 1) / shares);
  });
}

inline float largest_of(const float* x, int64_t n) {
  return at::vec::reduce_all<float>([](Vec& one, Vec& other) { return at::vec::maximum(one, other); }, x, n);
}

// exp(x - from) in place, with an error of up to 20 ulp.
inline void exponentials(float* x, int64_t n, float from) {
  at::vec::map<float>([from](Vec each) { return (each - Vec(from)).exp_u20(); }, x, x, n);
}

inline float sum_of(const float* x, int64_t n) {
  float sum = 0.f;
  #pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; i++) sum += x[i];
  return sum;
}

// Prefetch n numbers into the cache before they are overwritten, so that the write does not wait.
template <typename T>
inline void prefetch(const T* to, int64_t n) {
  for (int64_t i = 0; i < n; i += CACHE_LINE / int64_t(sizeof(T))) __builtin_prefetch(to + i, 1);
}

}  // namespace electra
