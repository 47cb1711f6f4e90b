// Matrix products of float32 for a thread by itself, so that what they give can be used while it is in the cache.
//
// A block of the product stays in registers while the inner dimension goes by. The left factor is read where it stands, the
// right one from a copy, in the order in which it is read.

#pragma once

#include "numbers.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <array>
#include <utility>

namespace electra {

#if defined(CPU_CAPABILITY_AVX512)
constexpr int64_t HEIGHT = 14;  // of a block: its sums take 28 of 32 registers
#else
constexpr int64_t HEIGHT = 6;  // 12 of 16
#endif
constexpr int64_t ACROSS = 2 * Vec::size();  // and its width
constexpr int64_t DEPTH = 256;  // of the inner dimension at a time: so much of a panel is 32 or 16 kB

// Memory for n numbers, by torch's allocator: they begin with a line of the cache, and what they are is to be said.
class Buffer {
 public:
  explicit Buffer(int64_t n) : memory_(c10::GetCPUAllocator()->allocate(n * sizeof(float))) {}
  float* data() const { return static_cast<float*>(memory_.get()); }

 private:
  at::DataPtr memory_;
};

// A left factor, wherever it stands: (i, k) is at[i * row + k * column].
struct Left {
  const float* at;
  int64_t row, column;

  Left from(int64_t i, int64_t k) const { return {at + i * row + k * column, row, column}; }
};

// A right factor [inner, columns] as panels of ACROSS columns, the last filled up with zeros.
class Panels {
 public:
  Panels(int64_t inner, int64_t columns) : inner_(inner), columns_(columns), numbers_(count() * inner * ACROSS) {}

  int64_t inner() const { return inner_; }
  int64_t count() const { return (columns_ + ACROSS - 1) / ACROSS; }
  int64_t width(int64_t panel) const { return std::min(ACROSS, columns_ - panel * ACROSS); }
  const float* at(int64_t panel, int64_t k) const { return line(panel, k); }

  // From b [inner, columns], whose rows are `row` apart.
  void fill(const float* b, int64_t row) {
    for (int64_t panel = 0; panel < count(); panel++)
      for (int64_t k = 0; k < inner_; k++) {
        const float* from = b + k * row + panel * ACROSS;
        std::fill(std::copy_n(from, width(panel), line(panel, k)), line(panel, k) + ACROSS, 0.f);
      }
  }

  // From the transposed b [columns, inner], whose rows are `row` apart.
  void fill_transposed(const float* b, int64_t row) {
    constexpr int64_t SIDE = Vec::size();
    for (int64_t panel = 0; panel < count(); panel++) {
      const float* from = b + panel * ACROSS * row;
      int64_t k = 0;
      for (; width(panel) == ACROSS && k + SIDE <= inner_; k += SIDE)
        for (int64_t j = 0; j < ACROSS; j += SIDE)
          at::vec::transpose_mxn<float, SIDE, SIDE>(from + j * row + k, row, line(panel, k) + j, ACROSS);
      for (; k < inner_; k++)
        for (int64_t j = 0; j < ACROSS; j++) line(panel, k)[j] = j < width(panel) ? from[j * row + k] : 0.f;
    }
  }

 private:
  float* line(int64_t panel, int64_t k) const { return numbers_.data() + (panel * inner_ + k) * ACROSS; }

  int64_t inner_, columns_;
  Buffer numbers_;
};

// c (+)= a b for a block of MANY rows; those of c are `row` apart.
template <int MANY>
void block_product(Left a, const float* b, int64_t inner, float* c, int64_t row, bool add) {
  Vec sums[MANY][2];
  const float* thirds[(MANY + 2) / 3];  // an address may add up to two strides, so not every row needs a register
  #pragma GCC unroll 16
  for (int i = 0; i < MANY; i++) {
    sums[i][0] = sums[i][1] = Vec(0.f);
    if (i % 3 == 0) thirds[i / 3] = a.at + i * a.row;
  }
  for (int64_t k = 0; k < inner; k++) {
    const Vec left = Vec::loadu(b + k * ACROSS), right = Vec::loadu(b + k * ACROSS + Vec::size());
    #pragma GCC unroll 16
    for (int i = 0; i < MANY; i++) {
      const Vec each(thirds[i / 3][i % 3 * a.row]);
      sums[i][0] = at::vec::fmadd(each, left, sums[i][0]);
      sums[i][1] = at::vec::fmadd(each, right, sums[i][1]);
    }
    #pragma GCC unroll 8
    for (int i = 0; i < MANY; i += 3) thirds[i / 3] += a.column;
  }
  #pragma GCC unroll 16
  for (int i = 0; i < MANY; i++) {
    float *left = c + i * row, *right = left + Vec::size();
    (add ? sums[i][0] + Vec::loadu(left) : sums[i][0]).store(left);
    (add ? sums[i][1] + Vec::loadu(right) : sums[i][1]).store(right);
  }
}

// The same for up to HEIGHT rows, and the first `columns` of a panel.
inline void block_product(int64_t many, int64_t columns, Left a, const float* b, int64_t inner, float* c, int64_t row,
                          bool add) {
  using Product = void (*)(Left, const float*, int64_t, float*, int64_t, bool);
  static constexpr auto products = []<size_t... N>(std::index_sequence<N...>) {
    return std::array<Product, sizeof...(N)>{block_product<int(N) + 1>...};
  }(std::make_index_sequence<HEIGHT>());
  if (columns == ACROSS) return products[many - 1](a, b, inner, c, row, add);
  float whole[HEIGHT * ACROSS] = {};
  for (int64_t i = 0; add && i < many; i++) std::copy_n(c + i * row, columns, whole + i * ACROSS);
  products[many - 1](a, b, inner, whole, ACROSS, add);
  for (int64_t i = 0; i < many; i++) std::copy_n(whole + i * ACROSS, columns, c + i * row);
}

// c (+)= a b for `many` rows of a; those of c are `row` apart.
inline void multiply(Left a, int64_t many, const Panels& b, float* c, int64_t row, bool add = false) {
  for (int64_t k = 0; k < b.inner(); k += DEPTH)
    for (int64_t panel = 0; panel < b.count(); panel++)
      for (int64_t i = 0; i < many; i += HEIGHT)
        block_product(std::min(HEIGHT, many - i), b.width(panel), a.from(i, k), b.at(panel, k),
                      std::min(DEPTH, b.inner() - k), c + i * row + panel * ACROSS, row, add || k > 0);
}

}  // namespace electra
