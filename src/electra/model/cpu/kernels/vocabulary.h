// What a masked language model says over the vocabulary, some words at a time: their logits are not written to memory, but for
// what a core's cache has no place for.

#pragma once

#include "check.h"
#include "product.h"

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

namespace electra {

constexpr int64_t WORDS = 256;  // at a time
constexpr int64_t SOME = 18 * HEIGHT;  // rows at a time: their logits of so many words stay in the cache

// Logits of [rows, size] vectors and [words, size] weights.
struct Vocabulary {
  const float *said, *word, *bias;
  int64_t rows, size, words;

  Vocabulary(const Tensor& said_, const Tensor& word_, const Tensor& bias_)
      : said(said_.const_data_ptr<float>()), word(word_.const_data_ptr<float>()), bias(bias_.const_data_ptr<float>()),
        rows(said_.size(0)), size(said_.size(1)), words(word_.size(0)) {}

  int64_t parts() const { return (words + WORDS - 1) / WORDS; }
  int64_t first(int64_t part) const { return part * WORDS; }
  int64_t many(int64_t part) const { return std::min(WORDS, words - first(part)); }
  bool has(int64_t part, int64_t one) const { return one >= 0 && one / WORDS == part; }

  // `body(first, many)` for some rows at a time.
  template <typename Body>
  void for_some(const Body& body) const {
    for (int64_t row = 0; row < rows; row += SOME) body(row, std::min(SOME, rows - row));
  }

  // The words of a part, as a right factor.
  Panels panels(int64_t part) const {
    Panels panels(size, many(part));
    panels.fill_transposed(word + first(part) * size, size);
    return panels;
  }

  // Logits [many, WORDS] of some rows, without their bias.
  void products(const Panels& panels, int64_t row, int64_t many_rows, float* to) const {
    multiply({said + row * size, size, 1}, many_rows, panels, to, WORDS);
  }
};

// Where the running sum of n weights passes `point`, from which all before it are taken away. Where none does, by rounding,
// the last that may come up.
inline int64_t passes(const float* weights, int64_t n, double& point) {
  int64_t last = n - 1;
  for (int64_t i = 0; i < n; i++) {
    if (weights[i] > 0.f) {
      if (point < weights[i]) return i;
      last = i;
    }
    point -= weights[i];
  }
  point += weights[last];
  return last;
}

// Of each row and part of the vocabulary: the largest logit, and the sums of all exponentials beside it, and of those of words
// that may be drawn.
struct Tally {
  Tensor maxima, sums, to_draw;
  float *largest, *sum, *draw;

  Tally(const Vocabulary& all, at::TensorOptions options)
      : maxima(at::empty({all.rows, all.parts()}, options)), sums(at::empty_like(maxima)), to_draw(at::empty_like(maxima)),
        largest(maxima.data_ptr<float>()), sum(sums.data_ptr<float>()), draw(to_draw.data_ptr<float>()) {}
};

// Fills a tally, and what the logits of the targets are.
inline void tally_words(const Vocabulary& all, const int64_t* targets, int64_t never, const Tally& tally, float* at_target) {
  for_each_share(all.parts(), [&](int64_t begin, int64_t end, int64_t) {
    Buffer logits(SOME * WORDS);
    for (int64_t part = begin; part < end; part++) {
      const Panels panels = all.panels(part);
      const int64_t first = all.first(part), n = all.many(part);
      all.for_some([&](int64_t row, int64_t many) {
        all.products(panels, row, many, logits.data());
        for (int64_t i = row; i < row + many; i++) {
          float* x = logits.data() + (i - row) * WORDS;
          add_to(x, all.bias + first, n);
          if (all.has(part, targets[i])) at_target[i] = x[targets[i] - first];
          const int64_t here = i * all.parts() + part;
          tally.largest[here] = largest_of(x, n);
          // Where all words are barred by logits of -inf, nothing is to be said of them, not that it is no number.
          exponentials(x, n, std::max(tally.largest[here], std::numeric_limits<float>::lowest()));
          tally.draw[here] = tally.sum[here] = sum_of(x, n);
          if (all.has(part, never)) {
            x[never - first] = 0.f;
            tally.draw[here] = sum_of(x, n);
          }
        }
      });
    }
  });
}

// The word of a row at which the running sum of what may be drawn, in parts of these weights, passes `u` of it.
inline int64_t draw_word(const Vocabulary& all, int64_t row, const float* parts, float u, float best, int64_t never) {
  double point = 0.;
  for (int64_t part = 0; part < all.parts(); part++) point += parts[part];
  point *= u;
  const int64_t part = passes(parts, all.parts(), point), first = all.first(part), n = all.many(part);
  float weights[WORDS];
  for (int64_t j = 0; j < n; j++) {  // its logits, once more
    const float *vector = all.said + row * all.size, *other = all.word + (first + j) * all.size;
    float product = 0.f;
    #pragma omp simd reduction(+ : product)
    for (int64_t e = 0; e < all.size; e++) product += vector[e] * other[e];
    weights[j] = product + all.bias[first + j];
  }
  exponentials(weights, n, best);
  if (all.has(part, never)) weights[never - first] = 0.f;
  return first + passes(weights, n, point);
}

inline void check_vocabulary(const Checks& checks, const Tensor& said, const Tensor& word, const Tensor& bias,
                             const Tensor& targets) {
  checks.tensor("said", said, FLOAT, {ANY, ANY});
  checks.at_least_1("the width of said", said.size(1));
  checks.tensor("word", word, FLOAT, {ANY, said.size(1)});
  checks.at_least_1("the number of words", word.size(0));
  checks.tensor("bias", bias, FLOAT, {word.size(0)});
  checks.tensor("targets", targets, INDEX, {said.size(0)});
  checks.indices("targets", targets, word.size(0));
}

// Of each row: the target's logit, the largest, the log of the sum of all exponentials, and the word at which the cumulative
// distribution, without the word `never`, if it is one, passes `u`. No word is drawn where `u` is empty.
inline std::tuple<Tensor, Tensor, Tensor, Tensor> score_words(const Tensor& said, const Tensor& word, const Tensor& bias,
                                                              const Tensor& targets, const Tensor& u, int64_t never) {
  const Checks checks("electra::score_words");
  check_vocabulary(checks, said, word, bias, targets);
  checks.tensor("u", u, FLOAT, {u.numel() ? said.size(0) : 0});
  checks.shares("u", u);
  checks.in_range("never", never, -1, word.size(0) - 1);
  const Vocabulary all(said, word, bias);
  const int64_t* target = targets.const_data_ptr<int64_t>();
  Tensor at_target = at::empty({all.rows}, said.options()), best = at::empty_like(at_target);
  Tensor log_normaliser = at::empty_like(at_target), drawn = at::empty_like(targets);
  const Tally tally(all, said.options());
  tally_words(all, target, never, tally, at_target.data_ptr<float>());

  float *largest = best.data_ptr<float>(), *log_sum = log_normaliser.data_ptr<float>();
  const float* points = u.numel() ? u.const_data_ptr<float>() : nullptr;
  int64_t* found = drawn.data_ptr<int64_t>();
  for_each_share(all.rows, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t i = begin; i < end; i++) {
      const int64_t row = i * all.parts();
      float *scales = tally.largest + row, *sums = tally.sum + row, *draw = tally.draw + row;
      largest[i] = largest_of(scales, all.parts());
      exponentials(scales, all.parts(), std::max(largest[i], std::numeric_limits<float>::lowest()));
      for (int64_t part = 0; part < all.parts(); part++) {
        sums[part] *= scales[part];
        draw[part] *= scales[part];
      }
      log_sum[i] = largest[i] + std::log(sum_of(sums, all.parts()));
      if (points) found[i] = draw_word(all, i, draw, points[i], largest[i], never);
    }
  });
  return {at_target, best, log_normaliser, drawn};
}

// From logits without their bias: exp(logit - from) times `by`, in place.
inline void slopes_of(float* x, const float* bias, int64_t n, float from, float by) {
  at::vec::map2<float>([=](Vec each, Vec add) { return (each + add - Vec(from)).exp_u20() * Vec(by); }, x, x, bias, n);
}

// The gradients of vectors, weights and bias, from those of -log p(target).
inline std::tuple<Tensor, Tensor, Tensor> score_words_backward(const Tensor& gradient, const Tensor& said,
                                                               const Tensor& word, const Tensor& bias,
                                                               const Tensor& targets, const Tensor& log_normaliser) {
  const Checks checks("electra::score_words_backward");
  check_vocabulary(checks, said, word, bias, targets);
  checks.tensor("gradient", gradient, FLOAT, {said.size(0)});
  checks.tensor("log_normaliser", log_normaliser, FLOAT, {said.size(0)});
  const Vocabulary all(said, word, bias);
  Tensor to_word = all.rows ? at::empty_like(word) : at::zeros_like(word), to_bias = at::zeros_like(bias);
  const int64_t shares = std::min<int64_t>(at::get_num_threads(), all.parts());
  Tensor to_said = at::zeros({shares, all.rows, all.size}, said.options());
  std::vector<Panels> vectors;
  all.for_some([&](int64_t row, int64_t many) {
    vectors.emplace_back(many, all.size).fill(all.said + row * all.size, all.size);
  });
  const float *g = gradient.const_data_ptr<float>(), *l = log_normaliser.const_data_ptr<float>();
  const int64_t* target = targets.const_data_ptr<int64_t>();
  float *to_w = to_word.data_ptr<float>(), *to_b = to_bias.data_ptr<float>(), *to_s = to_said.data_ptr<float>();
  for_each_share(all.parts(), [&](int64_t begin, int64_t end, int64_t share) {
    Buffer slopes(SOME * WORDS);
    for (int64_t part = begin; part < end; part++) {
      const Panels panels = all.panels(part);
      const int64_t first = all.first(part), n = all.many(part);
      std::vector<float> sum(n);
      Panels words(n, all.size);
      words.fill(all.word + first * all.size, all.size);
      all.for_some([&](int64_t row, int64_t many) {
        all.products(panels, row, many, slopes.data());
        for (int64_t i = row; i < row + many; i++) {
          float* x = slopes.data() + (i - row) * WORDS;
          slopes_of(x, all.bias + first, n, l[i], g[i]);
          if (all.has(part, target[i])) x[target[i] - first] -= g[i];
          add_to(sum.data(), x, n);
        }
        collect(sum, to_b + first);
        multiply({slopes.data(), 1, WORDS}, n, vectors[row / SOME], to_w + first * all.size, all.size, row > 0);
        multiply({slopes.data(), WORDS, 1}, many, words, to_s + (share * all.rows + row) * all.size, all.size, true);
      });
    }
  });
  return {to_said.sum(0), to_word, to_bias};
}

}  // namespace electra
