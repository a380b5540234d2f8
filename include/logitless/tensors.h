// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// Non-owning views of what a caller hands over: hidden states, LM head, finished logits, targets and
/// gradient outputs. Building a view never throws and checks nothing; the call that uses it checks everything
/// (see error.h).
///
/// Strides are in elements. One that is left out, or std::nullopt, means that rows, or sequences, follow one
/// another; no number stands for that. A stride that no step is taken with (of one row, of one sequence, or
/// of a tensor without elements) may be anything; every other one is at least a row.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>

#include "logitless/backward.h"
#include "logitless/dtype.h"
#include "logitless/names.h"
#include "logitless/packed.h"

namespace logitless {

namespace detail {
/// Returns a * b, or the int64 nearest to it: no tensor is that large, so that the call that uses it refuses
/// it.
constexpr int64_t saturated_product(int64_t a, int64_t b) {
  int64_t product = 0;
  if (!__builtin_mul_overflow(a, b, &product)) return product;
  return (a < 0) == (b < 0) ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
}
}  // namespace detail

/// A row-major matrix: element (r, c) stands at data[r * stride + c]; stride is in elements and at
/// least cols.
struct ConstMatrix {
  const void* data = nullptr;     ///< element (0, 0)
  DType dtype = DType::kFloat32;  ///< of the elements
  int64_t rows = 0;               ///< may be 0
  int64_t cols = 0;               ///< positive
  int64_t stride = 0;             ///< from one row to the next, in elements

  ConstMatrix() = default;
  /// Without a stride the rows follow one another.
  ConstMatrix(const void* data_, DType dtype_, int64_t rows_, int64_t cols_, std::optional<int64_t> stride_ = {})
      : data(data_), dtype(dtype_), rows(rows_), cols(cols_), stride(stride_.value_or(cols_)) {}
  /// Does the same for a typed pointer.
  template <class T>
  ConstMatrix(const T* data_, int64_t rows_, int64_t cols_, std::optional<int64_t> stride_ = {})
      : ConstMatrix(data_, DTypeOf<T>::value, rows_, cols_, stride_) {}
};

/// A writable row-major matrix. data == nullptr means that this output is not wanted.
struct Matrix {
  void* data = nullptr;           ///< element (0, 0)
  DType dtype = DType::kFloat32;  ///< of the elements
  int64_t rows = 0;               ///< may be 0
  int64_t cols = 0;               ///< positive
  int64_t stride = 0;             ///< from one row to the next, in elements

  Matrix() = default;
  /// Without a stride the rows follow one another.
  Matrix(void* data_, DType dtype_, int64_t rows_, int64_t cols_, std::optional<int64_t> stride_ = {})
      : data(data_), dtype(dtype_), rows(rows_), cols(cols_), stride(stride_.value_or(cols_)) {}
  /// Does the same for a typed pointer.
  template <class T>
  Matrix(T* data_, int64_t rows_, int64_t cols_, std::optional<int64_t> stride_ = {})
      : Matrix(data_, DTypeOf<T>::value, rows_, cols_, stride_) {}
};

/// A contiguous vector.
struct ConstVector {
  const void* data = nullptr;     ///< element 0
  DType dtype = DType::kFloat32;  ///< of the elements
  int64_t size = 0;               ///< in elements

  ConstVector() = default;
  /// Takes `size_` elements from `data_` on.
  ConstVector(const void* data_, DType dtype_, int64_t size_) : data(data_), dtype(dtype_), size(size_) {}
  /// Does the same for a typed pointer.
  template <class T>
  ConstVector(const T* data_, int64_t size_) : ConstVector(data_, DTypeOf<T>::value, size_) {}
};

/// A writable contiguous vector. data == nullptr means that this output is not wanted.
struct Vector {
  void* data = nullptr;           ///< element 0
  DType dtype = DType::kFloat32;  ///< of the elements
  int64_t size = 0;               ///< in elements

  Vector() = default;
  /// Takes `size_` elements from `data_` on.
  Vector(void* data_, DType dtype_, int64_t size_) : data(data_), dtype(dtype_), size(size_) {}
  /// Does the same for a typed pointer.
  template <class T>
  Vector(T* data_, int64_t size_) : Vector(data_, DTypeOf<T>::value, size_) {}
};

/// The hidden states of N tokens, [N, H], one row per token, and the borders of the sequences among them.
/// Sequences of different lengths are packed (`offsets`).
struct HiddenStates {
  ConstMatrix states;  ///< [N, H]
  /// The number of sequences of equal length; N must be a multiple of it. 0 is an empty batch, [0, T, H],
  /// which has no rows. It is unused when offsets is not empty.
  int64_t sequences = 1;
  /// For packed sequences (cu_seqlens) these hold 0 = offsets[0] <= offsets[1] <= ... <= offsets.back() = N.
  /// Sequence s holds the rows [offsets[s], offsets[s + 1]).
  std::span<const int64_t> offsets;
  /// The step from one sequence of `states` to the next, in elements, at least H; unset, the
  /// sequences follow one another. Position t of sequence b begins at element
  /// b * batch_stride + t * states.stride, so that a slice such as hidden[:, :-1], or the transpose of [T, B,
  /// H], can be given. It is not for packed sequences.
  std::optional<int64_t> batch_stride;

  HiddenStates() = default;
  /// Takes [N, H] as one sequence.
  HiddenStates(ConstMatrix states_) : states(states_) {}
  /// Takes [B, T, H] with N = B * T rows.
  HiddenStates(ConstMatrix states_, int64_t batch) : states(states_), sequences(batch) {}
  /// Takes packed sequences.
  HiddenStates(ConstMatrix states_, std::span<const int64_t> offsets_) : states(states_), offsets(offsets_) {}
  /// Takes [B, T, H]: element (b, t, h) stands at data[b * batch_stride + t * row_stride + h].
  HiddenStates(const void* data, DType dtype, int64_t batch, int64_t time, int64_t hidden,
               std::optional<int64_t> batch_stride_ = {}, std::optional<int64_t> row_stride = {})
      : states(data, dtype, detail::saturated_product(batch, time), hidden, row_stride),
        sequences(batch),
        batch_stride(batch_stride_) {}
  /// Does the same for a typed pointer.
  template <class T>
  HiddenStates(const T* data, int64_t batch, int64_t time, int64_t hidden, std::optional<int64_t> batch_stride_ = {},
               std::optional<int64_t> row_stride = {})
      : HiddenStates(data, DTypeOf<T>::value, batch, time, hidden, batch_stride_, row_stride) {}

  /// Returns N.
  int64_t tokens() const { return states.rows; }
  /// Returns H.
  int64_t hidden_size() const { return states.cols; }
};

/// Which way round the head's weight is stored.
enum class HeadLayout {
  kHiddenVocab,  ///< weight is [H, V]: logits = hidden · weight
  /// Weight is [V, H]: logits = hidden · weightᵀ (tied embeddings, PyTorch's nn.Linear, GGUF). This layout is
  /// the default.
  kVocabHidden,
};

/// The names of layouts.
template <>
inline constexpr std::array kNamesOf<HeadLayout> = {"hidden_vocab", "vocab_hidden"};

/// A low-rank adapter beside a head's weight (LoRA, Hu et al. 2021, arXiv:2106.09685): it adds scale ·
/// (x_i aᵀ) · b_v to the raw logits. x aᵀ is computed once a call (with Ranks::slices once a slice), in
/// the type of the sums. A caller who makes these rows otherwise, e.g. of states that a dropout has seen,
/// or with another a for each row, gives them as `states` in place of `a`.
struct LoraAdapter {
  ConstMatrix a;            ///< [r, H]
  ConstMatrix b;            ///< [V, r], or, with LmHead::ids, a row for each entry that the weight has
  double scale = 1;         ///< s, often alpha / r; finite. 1 with states
  ConstMatrix states = {};  ///< [N, r]: it adds states_i · b_v instead

  /// Tells whether there is one.
  bool given() const { return a.data || b.data || a.rows != 0 || b.rows != 0 || has_states(); }
  /// Tells whether there are states in place of a.
  bool has_states() const { return states.data || states.rows != 0 || states.cols != 0; }
  /// Returns r.
  int64_t rank() const { return has_states() ? states.cols : a.rows; }
};

/// The LM head gives the raw logit r_iv = x_i · w_v + bias_v, to which an adapter adds its own, and the
/// capped logit c_iv = softcap · tanh(r_iv / softcap). Its weight is a matrix, or a packed one, which is
/// frozen: it has no gradient.
struct LmHead {
  ConstMatrix weight;                            ///< [V, H] or [H, V], as `layout` says
  HeadLayout layout = HeadLayout::kVocabHidden;  ///< of weight
  /// [V], or empty where there is none. A -inf entry masks its vocabulary entry (but not under a softcap,
  /// which bounds it from below).
  ConstVector bias;
  /// It is positive, and a normal number of the type of the sums, or 0 for none (Gemma 2 uses 30).
  double softcap = 0;
  PackedMatrix packed = {};  ///< [V, H] in place of weight; for hidden states that are not float64
  /// Which vocabulary entries of weight or packed, and of bias, the call is over, as rows of these; empty:
  /// all. Entry k of the call's vocabulary is entry ids[k]: targets, class weights, d_weight, d_bias and
  /// d_lora_b mean places in this list. An id that stands there twice is two entries.
  std::span<const int64_t> ids = {};
  LoraAdapter lora = {};  ///< beside weight or packed; left as it is, there is none

  LmHead() = default;
  /// Makes a head without bias and softcap.
  LmHead(ConstMatrix weight_, HeadLayout layout_ = HeadLayout::kVocabHidden) : weight(weight_), layout(layout_) {}
  /// Makes a head of a packed matrix, without bias and softcap.
  LmHead(PackedMatrix packed_) : packed(packed_) {}

  /// Tells whether there is any part of one.
  bool given() const { return weight.data || packed.given() || !ids.empty() || bias.data || lora.given(); }
  /// Returns H.
  int64_t hidden_size() const {
    if (packed.given()) return packed.cols;
    return layout == HeadLayout::kHiddenVocab ? weight.rows : weight.cols;
  }
  /// Returns how many vocabulary entries the weight has.
  int64_t stored_entries() const {
    if (packed.given()) return packed.rows;
    return layout == HeadLayout::kHiddenVocab ? weight.cols : weight.rows;
  }
  /// Returns V.
  int64_t vocab_size() const { return ids.empty() ? stored_entries() : static_cast<int64_t>(ids.size()); }
};

/// Targets are one id a token, int32 or int64. Id i = b * time + t stands at
/// data[b * batch_stride + t * stride], so that a slice such as targets[:, 1:] of [B, T + 1] needs no copy.
struct Targets {
  const int32_t* data32 = nullptr;  ///< id 0, or null
  const int64_t* data64 = nullptr;  ///< id 0, when data32 is null
  int64_t size = 0;                 ///< N
  int64_t stride = 1;               ///< from one id to the next of its sequence, in elements; positive
  /// T, the number of ids of a sequence, of which size is a multiple; with 0 one sequence holds all.
  int64_t time = 0;
  /// The step from one sequence to the next, in elements; it is positive where there are several.
  int64_t batch_stride = 0;

  Targets() = default;
  /// Takes `size_` ids from `data` on.
  Targets(const int32_t* data, int64_t size_) : data32(data), size(size_) {}
  /// Takes `size_` ids from `data` on.
  Targets(const int64_t* data, int64_t size_) : data64(data), size(size_) {}
  /// Takes [B, T]. Without a batch_stride the sequences follow one another.
  Targets(const int32_t* data, int64_t batch, int64_t time_, std::optional<int64_t> batch_stride_ = {},
          int64_t stride_ = 1)
      : data32(data), size(detail::saturated_product(batch, time_)) {
    set_strides(time_, batch_stride_, stride_);
  }
  /// Takes [B, T]. Without a batch_stride the sequences follow one another.
  Targets(const int64_t* data, int64_t batch, int64_t time_, std::optional<int64_t> batch_stride_ = {},
          int64_t stride_ = 1)
      : data64(data), size(detail::saturated_product(batch, time_)) {
    set_strides(time_, batch_stride_, stride_);
  }
  /// Takes all of a span, array or vector.
  Targets(std::span<const int32_t> ids) : data32(ids.data()), size(static_cast<int64_t>(ids.size())) {}
  /// Takes all of a span, array or vector.
  Targets(std::span<const int64_t> ids) : data64(ids.data()), size(static_cast<int64_t>(ids.size())) {}

  /// Returns id i, unchecked.
  int64_t operator[](int64_t i) const {
    const int64_t at = time == 0 ? i * stride : i / time * batch_stride + i % time * stride;
    return data32 ? data32[at] : data64[at];
  }

 private:
  void set_strides(int64_t time_, std::optional<int64_t> batch_stride_, int64_t stride_) {
    time = time_;
    stride = stride_;
    batch_stride = batch_stride_.value_or(detail::saturated_product(time, stride));
  }
};

/// Some vectors may have an entry a sequence or an entry a token; this says which of the two.
enum class EntriesPer {
  kBySize,    ///< the size tells; an InvalidInput where it fits both and they would be read differently
  kSequence,  ///< [B]
  kToken,     ///< [N]
};

/// The names of what vectors may have entries for.
template <>
inline constexpr std::array kNamesOf<EntriesPer> = {"by_size", "sequence", "token"};

/// What a call does with what an output holds.
enum class WriteMode {
  kOverwrite,  ///< what was there does not matter, not even a NaN
  /// The gradient is added to what is there. A 16-bit output, and a float32 or float64 d_hidden whose sums
  /// [N, H] (one pass: of a chunk) find room in the workspace, is rounded once. Any other float32 or float64
  /// output g is added to part by part, with an error of at most (parts + 1) u (|g before| + |gradient|), u =
  /// 2^-24 or 2^-53. d_hidden has a part for each tile of the vocabulary, and one more for every 64 of its
  /// entries. d_weight and d_bias have a part for each tile of rows, and one more for every 64 rows; there
  /// are at most 2 N / row_tile + 1 tiles, so that a small ContextOptions::row_tile makes many (N at 1).
  /// Gradients of two terms (Plan::gradient_terms) have twice as many parts.
  kAccumulate,
};

/// The names of modes.
template <>
inline constexpr std::array kNamesOf<WriteMode> = {"overwrite", "accumulate"};

/// Receives each finished vocabulary tile of d_weight once: the vocabulary entries [first, first + count).
/// The tiles come in vocabulary order, one call at a time, from any thread of the team. `tile` is in the
/// head's layout (vocab_hidden: [count, H], hidden_vocab: [H, count]; rows may be further apart than they are
/// long: honour its stride), float32 (float64 for a float64 head), and lives until the callback returns. The
/// callback may overwrite these vocabulary entries of the weight: nothing reads them afterwards (but where an
/// id stands twice in LmHead::ids, whose row is read for each of its entries). What it throws reaches the
/// caller of the library.
using WeightGradientSink = std::function<void(int64_t first, int64_t count, ConstMatrix tile)>;

/// Logits are [B, T, V]: element (b, t, v) stands at data[b * batch_stride + t * row_stride + v]. They may be
/// any strided slice such as logits[:, :-1, :], or the transpose of [T, B, V]. Strides are in elements and at
/// least V. Row i = b * T + t is token i of targets, temperatures and all results. They are final raw logits:
/// no bias and no softcap is applied to them. Tensors of float32, bfloat16 and float16 are computed in
/// float32, those of float64 in float64.
struct FinishedLogits {
  const void* data = nullptr;     ///< element (0, 0, 0)
  DType dtype = DType::kFloat32;  ///< of the elements
  int64_t batch = 0;              ///< B, sequences
  int64_t time = 0;               ///< T, positions of each
  int64_t vocab = 0;              ///< V
  int64_t batch_stride = 0;       ///< from one sequence to the next, in elements
  int64_t row_stride = 0;         ///< from one position to the next, in elements

  FinishedLogits() = default;
  /// Without a stride the rows, or the sequences, follow one another.
  FinishedLogits(const void* data_, DType dtype_, int64_t batch_, int64_t time_, int64_t vocab_,
                 std::optional<int64_t> batch_stride_ = {}, std::optional<int64_t> row_stride_ = {})
      : data(data_),
        dtype(dtype_),
        batch(batch_),
        time(time_),
        vocab(vocab_),
        batch_stride(batch_stride_.value_or(detail::saturated_product(time_, row_stride_.value_or(vocab_)))),
        row_stride(row_stride_.value_or(vocab_)) {}
  /// Does the same for a typed pointer.
  template <class T>
  FinishedLogits(const T* data_, int64_t batch_, int64_t time_, int64_t vocab_,
                 std::optional<int64_t> batch_stride_ = {}, std::optional<int64_t> row_stride_ = {})
      : FinishedLogits(data_, DTypeOf<T>::value, batch_, time_, vocab_, batch_stride_, row_stride_) {}

  /// Returns N = B T.
  int64_t tokens() const { return detail::saturated_product(batch, time); }
};

/// Where dL/dlogits goes; with data == nullptr it is not wanted. It has the logits' shape, and their
/// type or float32 (float64, and nothing else, for float64 logits). It is either a buffer apart from the
/// logits and every other input, or exactly the logits: the same pointer, type and strides (in place). Rows
/// may not overlap: one of the two strides must step over all that the other one covers. It is overwritten;
/// rows that take no part get zeros.
struct LogitsGradient {
  void* data = nullptr;           ///< element (0, 0, 0)
  DType dtype = DType::kFloat32;  ///< of the elements
  int64_t batch = 0;              ///< B, sequences
  int64_t time = 0;               ///< T, positions of each
  int64_t vocab = 0;              ///< V
  int64_t batch_stride = 0;       ///< from one sequence to the next, in elements
  int64_t row_stride = 0;         ///< from one position to the next, in elements

  LogitsGradient() = default;
  /// Without a stride the rows, or the sequences, follow one another.
  LogitsGradient(void* data_, DType dtype_, int64_t batch_, int64_t time_, int64_t vocab_,
                 std::optional<int64_t> batch_stride_ = {}, std::optional<int64_t> row_stride_ = {})
      : data(data_),
        dtype(dtype_),
        batch(batch_),
        time(time_),
        vocab(vocab_),
        batch_stride(batch_stride_.value_or(detail::saturated_product(time_, row_stride_.value_or(vocab_)))),
        row_stride(row_stride_.value_or(vocab_)) {}
  /// Does the same for a typed pointer.
  template <class T>
  LogitsGradient(T* data_, int64_t batch_, int64_t time_, int64_t vocab_, std::optional<int64_t> batch_stride_ = {},
                 std::optional<int64_t> row_stride_ = {})
      : LogitsGradient(data_, DTypeOf<T>::value, batch_, time_, vocab_, batch_stride_, row_stride_) {}
};

/// Where the gradients go. No output may overlap an input or another output; a matrix covers
/// everything from its first to its last element, what stands between its rows included. Each output is
/// optional by itself; each has the type of its sums (float32; float64, and nothing else, for float64 inputs)
/// or that of its input: 16-bit outputs are summed in float32 and rounded to nearest even once, at the end.
struct Gradients {
  Matrix d_hidden = {};       ///< [N, H]; rows that take no part get zeros (or keep what is there, when accumulating)
  Matrix d_weight = {};       ///< the head's shape and layout
  Vector d_bias = {};         ///< [V]; only for a head with a bias
  Matrix d_lora_a = {};       ///< [r, H], of LoraAdapter::a
  Matrix d_lora_b = {};       ///< [V, r], of LoraAdapter::b
  Matrix d_lora_states = {};  ///< [N, r], of LoraAdapter::states
  WriteMode d_hidden_mode = WriteMode::kOverwrite;  ///< of d_hidden
  WriteMode d_weight_mode = WriteMode::kOverwrite;  ///< of d_weight; a sink has none
  WriteMode d_bias_mode = WriteMode::kOverwrite;    ///< of d_bias
  WriteMode d_lora_mode = WriteMode::kOverwrite;    ///< of d_lora_a, d_lora_b and d_lora_states
  /// This takes the place of d_weight.data: at most one of the two may be set.
  WeightGradientSink weight_sink = {};
  /// The step from one sequence of d_hidden to the next, in elements, whatever hidden's own is. It
  /// works as HiddenStates::batch_stride does, but no two rows may overlap. Unset, the sequences follow one
  /// another.
  std::optional<int64_t> d_hidden_batch_stride = {};
  LogitsGradient d_logits = {};  ///< of finished logits, whose only gradient it is
  /// How they are made.
  BackwardOptions backward = {};

  /// Sets d_hidden to [B, T, H] with strides, as the constructor of HiddenStates that takes them does.
  template <class T>
  void set_d_hidden(T* data, int64_t batch, int64_t time, int64_t hidden, std::optional<int64_t> batch_stride = {},
                    std::optional<int64_t> row_stride = {}) {
    d_hidden = Matrix(data, detail::saturated_product(batch, time), hidden, row_stride);
    d_hidden_batch_stride = batch_stride;
  }

  /// Tells whether anything is wanted: where nothing is, a call runs forward only.
  bool any() const { return wants_d_hidden() || wants_head() || d_lora_states.data || d_logits.data; }
  /// Tells whether d_hidden is wanted.
  bool wants_d_hidden() const { return d_hidden.data != nullptr; }
  /// Tells whether the gradient of some part of the head is wanted.
  bool wants_head() const { return d_weight.data || d_bias.data || weight_sink || d_lora_a.data || d_lora_b.data; }
};

}  // namespace logitless
