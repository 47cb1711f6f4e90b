// What a layer of the encoder does between its large matrix products, on a CPU. Each function begins with the bias of the
// product before it, and reads and writes its tensors once.
//
// `electra/model/fused.py` says what they are given. All tensors are contiguous. What is a product, or becomes a factor of
// one, is float32 or bfloat16 (`T`); all else, and everything in between, is float32.

#include "add_norm.h"
#include "attention.h"
#include "gelu.h"

#include <torch/library.h>

TORCH_LIBRARY(electra, library) {
  library.def("attend", &electra::attend);
  library.def("attend_backward", &electra::attend_backward);
  library.def("add_norm", &electra::add_norm);
  library.def("add_norm_backward", &electra::add_norm_backward);
  library.def("gelu", &electra::gelu);
  library.def("gelu_backward", &electra::gelu_backward);
}
