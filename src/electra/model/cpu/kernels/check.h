// Checks of the arguments of an operator before they are used. Checking a tensor takes O(1), offsets O(sequences).

#pragma once

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <sstream>
#include <string>

namespace electra {

using at::Tensor;
using Types = std::initializer_list<at::ScalarType>;

constexpr int64_t ANY = -1;  // a size that is not checked
constexpr Types FLOAT = {at::kFloat};
constexpr Types FLOAT_OR_BFLOAT16 = {at::kFloat, at::kBFloat16};
constexpr Types INDEX = {at::kLong};

// Raises RuntimeError; the message names the operator and the argument.
class Checks {
 public:
  explicit Checks(const char* op) : op_(op) {}

  // A dense contiguous tensor on the CPU, of one of these types and of these sizes, with all its elements in memory.
  void tensor(const char* name, const Tensor& given, Types types, at::IntArrayRef sizes) const {
    const bool fits = given.defined() && given.is_cpu() && given.layout() == at::kStrided &&
                      std::find(types.begin(), types.end(), given.scalar_type()) != types.end() &&
                      has_sizes(given, sizes) && given.is_contiguous() && !given.is_neg() && is_stored(given);
    TORCH_CHECK(fits, op_, ": ", name, " is ", description(given), ", expected ", description(types, sizes));
  }

  void in_range(const char* name, int64_t given, int64_t least, int64_t most) const {
    TORCH_CHECK(least <= given && given <= most, op_, ": ", name, " is ", given, ", expected ", least, " to ", most);
  }

  void at_least_1(const char* what, int64_t given) const {
    TORCH_CHECK(given >= 1, op_, ": ", what, " is ", given, ", expected at least 1");
  }

  void multiple(const char* what, int64_t given, int64_t of) const {
    TORCH_CHECK(given % of == 0, op_, ": ", what, " is ", given, ", expected a multiple of ", of);
  }

  // Offsets of sequences: they begin at 0, never decrease, and end within the tokens.
  void cu_seqlens(const Tensor& given, int64_t tokens) const {
    tensor("cu_seqlens", given, INDEX, {ANY});
    at_least_1("the number of cu_seqlens", given.numel());
    const int64_t* start = given.const_data_ptr<int64_t>();
    TORCH_CHECK(start[0] == 0, op_, ": cu_seqlens begins at ", start[0], ", expected 0");
    for (int64_t i = 1; i < given.numel(); i++) {
      TORCH_CHECK(start[i - 1] <= start[i], op_, ": cu_seqlens decreases from ", start[i - 1], " to ", start[i], " at ", i,
                  ", expected that it never decreases");
      TORCH_CHECK(start[i] <= tokens, op_, ": cu_seqlens is ", start[i], " at ", i, ", expected at most the ", tokens,
                  " tokens");
      TORCH_CHECK(start[i] - start[i - 1] <= std::numeric_limits<int>::max(), op_, ": sequence ", i - 1, " has ",
                  start[i] - start[i - 1], " tokens, expected a number of 32 bits, which BLAS takes");
    }
  }

 private:
  static bool has_sizes(const Tensor& given, at::IntArrayRef sizes) {
    if (given.dim() != static_cast<int64_t>(sizes.size())) return false;
    for (size_t i = 0; i < sizes.size(); i++)
      if (sizes[i] != ANY && sizes[i] != given.size(i)) return false;
    return true;
  }

  // A storage may have been shrunk after the tensor was created; the tensor keeps its sizes.
  static bool is_stored(const Tensor& given) {
    const int64_t end = (given.storage_offset() + given.numel()) * static_cast<int64_t>(given.element_size());
    return !given.numel() || (given.has_storage() && end <= static_cast<int64_t>(given.storage().nbytes()));
  }

  static std::string description(const Tensor& given) {
    if (!given.defined()) return "undefined";
    std::ostringstream text;
    const bool strided = given.layout() == at::kStrided;
    if (!strided) text << given.layout() << " ";
    else if (!given.is_contiguous()) text << "non-contiguous ";
    text << c10::getDtypeNames(given.scalar_type()).first << " " << given.sizes() << " on " << given.device();
    if (strided && given.is_cpu() && !is_stored(given)) text << " in a storage of " << given.storage().nbytes() << " bytes";
    if (given.is_neg()) text << " with its negative bit set";
    return text.str();
  }

  static std::string description(Types types, at::IntArrayRef sizes) {
    std::ostringstream text;
    text << "contiguous ";
    for (const auto* type = types.begin(); type != types.end(); type++)
      text << (type == types.begin() ? "" : " or ") << c10::getDtypeNames(*type).first;
    text << " [";
    for (size_t i = 0; i < sizes.size(); i++) {
      text << (i ? ", " : "");
      if (sizes[i] == ANY) text << "*";
      else text << sizes[i];
    }
    text << "] on cpu";
    return text.str();
  }

  const char* op_;
};

}  // namespace electra
