// The operators of torch.ops.electra: attention of packed batches, and dropout. `electra/model/cpu/attention.py` and `dropout.py`
// call them; every operator checks its arguments (`check.h`). Inputs and tensors of their type are float32 or bfloat16 (`T`), all
// others are float32.

#include "attention.h"
#include "dropout_op.h"

#include <torch/library.h>

#include <string>

TORCH_LIBRARY(electra, library) {
  library.def("build_id() -> str", [] { return std::string(ELECTRA_BUILD_ID); });  // compared by `library.py`
  library.def("attend(Tensor qkv, Tensor cu_seqlens, int heads, int dropped, int seed) -> (Tensor, Tensor)");
  library.def(
      "attend_backward(Tensor gradient, Tensor qkv, Tensor cu_seqlens, Tensor log_sum_exp, int heads, int dropped, "
      "int seed) -> Tensor");
  library.def("dropout(Tensor x, int dropped, int seed) -> Tensor");
}

TORCH_LIBRARY_IMPL(electra, CPU, library) {
  library.impl("attend", &electra::attend);
  library.impl("attend_backward", &electra::attend_backward);
  library.impl("dropout", &electra::dropout);
}
