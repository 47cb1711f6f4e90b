// Random bits for dropout, cheap enough to draw again in the backward pass instead of storing them.

#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

namespace electra {

constexpr int64_t LEVELS = 1 << 16;  // values of a draw; an element is dropped for `dropped` of them
constexpr int LANES = 16;
using Lanes = uint32_t __attribute__((vector_size(sizeof(uint32_t) * LANES)));

// Random bits by sfc32 (Doty-Humphrey, PractRand), one generator per lane; 16 bits per element.
class Draws {
 public:
  Draws(int64_t seed, int64_t stream) {
    a_ = Lanes{} + static_cast<uint32_t>(seed);
    b_ = Lanes{} + static_cast<uint32_t>(seed >> 32);
    c_ = Lanes{} + static_cast<uint32_t>(stream * LANES);
    for (int lane = 0; lane < LANES; lane++) c_[lane] += lane;
    count_ = Lanes{} + 1;
    for (int round = 0; round < 12; round++) next();
  }

  // 0, or `scale`, for each of n elements. Up to 2 * LANES - 1 more are written.
  void factors(int64_t n, int64_t dropped, float scale, float* out) {
    uint32_t bits;
    std::memcpy(&bits, &scale, sizeof bits);
    const auto least = static_cast<uint32_t>(dropped);
    for (int64_t i = 0; i < n; i += 2 * LANES) {
      const Lanes drawn = next();
      const Lanes low = Lanes((drawn & 0xffff) >= least) & bits, high = Lanes((drawn >> 16) >= least) & bits;
      std::memcpy(out + i, &low, sizeof low);
      std::memcpy(out + i + LANES, &high, sizeof high);
    }
  }

 private:
  Lanes next() {
    const Lanes drawn = a_ + b_ + count_;
    count_ += 1;
    a_ = b_ ^ (b_ >> 9);
    b_ = c_ + (c_ << 3);
    c_ = ((c_ << 21) | (c_ >> 11)) + drawn;
    return drawn;
  }

  Lanes a_, b_, c_, count_;
};

// Factor of the elements that are not dropped, which preserves the mean.
inline float dropout_scale(int64_t dropped) { return float(LEVELS) / float(LEVELS - dropped); }

// A buffer for the factors of n elements, initialized to 1 (no dropout).
inline std::vector<float> buffer_for_factors(int64_t n) { return std::vector<float>(n + 2 * LANES, 1.f); }

}  // namespace electra
