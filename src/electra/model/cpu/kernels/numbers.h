// Numbers as they are stored and as they are computed with, which is always float32.

#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>

#include <algorithm>
#include <type_traits>
#include <vector>

namespace electra {

using at::Tensor;
using Vec = at::vec::Vectorized<float>;

constexpr int64_t LINE = 64;  // bytes of the cache
constexpr int64_t TOKENS = 16;  // of a block

// `body` with a value of the type of the tensor's elements.
template <typename Body>
auto by_type(const Tensor& tensor, const Body& body) {
  return tensor.scalar_type() == at::kBFloat16 ? body(at::BFloat16()) : body(float());
}

// Numbers of type T as float32: where they stand, or in a buffer.
template <typename T>
class Numbers {
 public:
  explicit Numbers(int64_t n) : buffer_(in_place ? 0 : n) {}

  const float* read(const T* from, int64_t n) {
    if constexpr (in_place) return from;
    else {
      #pragma omp simd
      for (int64_t i = 0; i < n; i++) buffer_[i] = static_cast<float>(from[i]);
      return buffer_.data();
    }
  }

  // Where to write what `keep` then stores at `to`.
  float* buffer_for(T* to) {
    if constexpr (in_place) return to;
    else return buffer_.data();
  }

  void keep(T* to, int64_t n) const {
    if constexpr (!in_place) at::vec::convert(buffer_.data(), to, n);
  }

 private:
  static constexpr bool in_place = std::is_same_v<T, float>;
  std::vector<float> buffer_;
};

// `body(begin, end, share)` for parts of `items`, one for each thread. What is summed up over items is kept for each share:
// a thread's own number is not asked for, as another OpenMP than torch's would count from 0 in each of its teams.
template <typename Body>
void for_each_share(int64_t items, const Body& body) {
  const int64_t shares = std::min<int64_t>(at::get_num_threads(), items);
  at::parallel_for(0, shares, 1, [&](int64_t begin, int64_t end) {
    for (int64_t share = begin; share < end; share++) body(items * share / shares, items * (share + 1) / shares, share);
  });
}

// Zeros for the sums of each share.
inline Tensor sums_of_shares(int64_t width, const Tensor& like) {
  return at::zeros({at::get_num_threads(), width}, like.options());
}

inline void add_to(float* sum, const float* x, int64_t n) {
  #pragma omp simd
  for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

// `sum` += `part`, which becomes zeros: sums of many numbers are sums of sums, which rounds less.
inline void collect(std::vector<float>& part, float* sum) {
  add_to(sum, part.data(), part.size());
  std::fill(part.begin(), part.end(), 0.f);
}

inline float largest_of(const float* x, int64_t n) {
  return at::vec::reduce_all<float>([](Vec& one, Vec& other) { return at::vec::maximum(one, other); }, x, n);
}

// exp(x - from), in place.
inline void exponentials(float* x, int64_t n, float from) {
  at::vec::map<float>([from](Vec each) { return (each - Vec(from)).exp_u20(); }, x, x, n);
}

inline float sum_of(const float* x, int64_t n) {
  float sum = 0.f;
  #pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; i++) sum += x[i];
  return sum;
}

// Have n numbers on their way into the cache before they are written, or it waits for what they overwrite.
template <typename T>
inline void expect(const T* to, int64_t n) {
  for (int64_t i = 0; i < n; i += LINE / int64_t(sizeof(T))) __builtin_prefetch(to + i, 1);
}

}  // namespace electra
