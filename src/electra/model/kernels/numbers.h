// Numbers as they are stored and as they are computed with, which is always float32.

#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>

#include <type_traits>
#include <vector>

namespace electra {

using at::Tensor;
using Vec = at::vec::Vectorized<float>;

constexpr int64_t LINE = 64;  // bytes of the cache
constexpr int64_t TOKENS = 16;  // of which a thread takes some multiple

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
