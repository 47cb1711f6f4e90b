// What a layer of the encoder does between its large matrix products, on a CPU: each function begins with the bias of the
// product before it, and reads and writes its tensors once. And the vocabulary's softmax, some words at a time.
//
// `electra/model/fused.py` and `electra/pretraining/token_scores.py` say what they are given, and every operator checks it
// (`check.h`). What is a product of a layer, or becomes a factor of one, is float32 or bfloat16 (`T`); all else is float32.

#include "add_norm.h"
#include "attention.h"
#include "gelu.h"
#include "vocabulary.h"

#include <torch/library.h>

#include <string>

TORCH_LIBRARY(electra, library) {
  library.def("build_id() -> str", [] { return std::string(ELECTRA_BUILD_ID); });  // `kernel_library.py` asks for it
  library.def("attend(Tensor product, Tensor bias, Tensor starts, int heads, int zeroed, int seed) -> (Tensor, Tensor)");
  library.def(
      "attend_backward(Tensor gradient, Tensor product, Tensor bias, Tensor starts, Tensor normalisers, int heads, "
      "int zeroed, int seed) -> (Tensor, Tensor)");
  library.def(
      "add_norm(Tensor product, Tensor bias, Tensor residual, Tensor weight, Tensor shift, float eps, int zeroed, "
      "int seed) -> (Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "add_norm_backward(Tensor gradient, Tensor sums, Tensor means, Tensor scales, Tensor weight, Tensor like, "
      "int zeroed, int seed) -> (Tensor, Tensor, Tensor)");
  library.def("gelu(Tensor product, Tensor bias) -> Tensor");
  library.def("gelu_backward(Tensor gradient, Tensor product, Tensor bias) -> (Tensor, Tensor)");
  library.def(
      "score_words(Tensor said, Tensor word, Tensor bias, Tensor targets, Tensor u, int never) -> "
      "(Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "score_words_backward(Tensor gradient, Tensor said, Tensor word, Tensor bias, Tensor targets, "
      "Tensor log_normaliser) -> (Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(electra, CPU, library) {
  library.impl("attend", &electra::attend);
  library.impl("attend_backward", &electra::attend_backward);
  library.impl("add_norm", &electra::add_norm);
  library.impl("add_norm_backward", &electra::add_norm_backward);
  library.impl("gelu", &electra::gelu);
  library.impl("gelu_backward", &electra::gelu_backward);
  library.impl("score_words", &electra::score_words);
  library.impl("score_words_backward", &electra::score_words_backward);
}
