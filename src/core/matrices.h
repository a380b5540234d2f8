// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What the engine calls the tensors of a call: matrices whose rows are contiguous, vectors, and what they
// make together. problem/matrices.h makes them of the views of the public API, and checks these.
//
// Strides are in elements. One that is left out, or std::nullopt, means that rows, or sequences, follow one
// another; no number stands for that. A stride that no step is taken with (of one row, of one sequence, or
// of a tensor without elements) may be anything; every other one is at least a row.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "logitless/dtype.h"
#include "logitless/gradients.h"
#include "logitless/names.h"
#include "logitless/packed.h"
#include "logitless/tensor.h"

namespace logitless {

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
  /// Returns the view of it; none where there is none.
  operator ConstTensor() const {
    if (!data && rows == 0 && cols == 0) return {};
    return {data, dtype, {rows, cols}, {stride, 1}};
  }
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
  /// Returns the view of it; none where it is not wanted.
  operator Tensor() const {
    if (!data) return {};
    return {data, dtype, {rows, cols}, {stride, 1}};
  }
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
  /// Returns the view of it; none where it is empty.
  operator ConstTensor() const {
    if (!data && size == 0) return {};
    return {data, dtype, {size}};
  }
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
  /// Returns the view of it; none where it is not wanted.
  operator Tensor() const {
    if (!data) return {};
    return {data, dtype, {size}};
  }
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

/// A packed matrix.
struct PackedMatrix {
  const void* data = nullptr;        ///< row 0
  Packing packing = Packing::kInt8;  ///< of all rows
  int64_t rows = 0;                  ///< may be 0
  int64_t cols = 0;                  ///< positive, and a multiple of the numbers of a block
  /// From one row to the next, in bytes. Left out, the rows follow one another.
  std::optional<int64_t> row_bytes = {};
  /// Of kInt8 and kNf4: [rows, cols / group]; otherwise null.
  const float* scales = nullptr;
  /// Of kInt8 and kNf4: how many numbers of a row share a scale, a divisor of cols, even for kNf4; 0: all.
  int64_t group = 0;

  /// Tells whether there is one.
  bool given() const { return data || rows != 0 || cols != 0; }
};

/// LoraAdapter.
struct LoraMatrices {
  ConstMatrix a;            ///< [r, H]
  ConstMatrix b;            ///< [V, r], or, with LmHead::vocab_ids, a row for each entry that the weight has
  double scale = 1;         ///< s
  ConstMatrix states = {};  ///< [N, r] in place of a

  /// Tells whether there is one.
  bool given() const { return a.data || b.data || a.rows != 0 || b.rows != 0 || has_states(); }
  /// Tells whether there are states in place of a.
  bool has_states() const { return states.data || states.rows != 0 || states.cols != 0; }
  /// Returns r.
  int64_t rank() const { return has_states() ? states.cols : a.rows; }
};

/// LmHead.
struct HeadMatrices {
  ConstMatrix weight;                            ///< [V, H] or [H, V], as `layout` says
  HeadLayout layout = HeadLayout::kVocabHidden;  ///< of weight
  ConstVector bias;                              ///< [V], or empty
  double softcap = 0;                            ///< or 0 for none
  PackedMatrix packed = {};                      ///< [V, H] in place of weight
  std::span<const int64_t> ids = {};             ///< LmHead::vocab_ids
  LoraMatrices lora = {};                        ///< left as it is, there is none

  HeadMatrices() = default;
  /// Makes a head without bias and softcap.
  HeadMatrices(ConstMatrix weight_, HeadLayout layout_ = HeadLayout::kVocabHidden) : weight(weight_), layout(layout_) {}
  /// Makes a head of a packed matrix, without bias and softcap.
  HeadMatrices(PackedMatrix packed_) : packed(packed_) {}

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

  /// Returns the view of them; none where there are none.
  operator ConstTensor() const {
    const void* data = data32 ? static_cast<const void*>(data32) : data64;
    const DType dtype = data32 ? DType::kInt32 : DType::kInt64;
    if (time > 0) return {data, dtype, {size / time, time}, {batch_stride, stride}};
    if (!data && size == 0) return {};
    return {data, dtype, {size}, {stride}};
  }

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
  /// Returns the view of them.
  operator ConstTensor() const { return {data, dtype, {batch, time, vocab}, {batch_stride, row_stride, 1}}; }
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
  /// Returns the view of it; none where it is not wanted.
  operator Tensor() const {
    if (!data) return {};
    return {data, dtype, {batch, time, vocab}, {batch_stride, row_stride, 1}};
  }
};

/// Receives each finished vocabulary tile of d_weight, in the head's layout (WeightGradientSink).
using WeightTileSink = std::function<void(int64_t first, int64_t count, const ConstMatrix& tile)>;

/// Gradients.
struct GradientMatrices {
  Matrix d_hidden = {};                             ///< [N, H]
  Matrix d_weight = {};                             ///< the head's shape and layout
  Vector d_bias = {};                               ///< [V]
  Matrix d_lora_a = {};                             ///< [r, H]
  Matrix d_lora_b = {};                             ///< [V, r]
  Matrix d_lora_states = {};                        ///< [N, r]
  WriteMode d_hidden_mode = WriteMode::kOverwrite;  ///< of d_hidden
  WriteMode d_weight_mode = WriteMode::kOverwrite;  ///< of d_weight; a sink has none
  WriteMode d_bias_mode = WriteMode::kOverwrite;    ///< of d_bias
  WriteMode d_lora_mode = WriteMode::kOverwrite;    ///< of d_lora_a, d_lora_b and d_lora_states
  WeightTileSink weight_sink = {};                  ///< in place of d_weight
  /// The step from one sequence of d_hidden to the next, as HiddenStates::batch_stride.
  std::optional<int64_t> d_hidden_batch_stride = {};
  LogitsGradient d_logits = {};   ///< of finished logits
  BackwardOptions backward = {};  ///< how they are made

  /// Tells whether anything is wanted: where nothing is, a call runs forward only.
  bool any() const { return wants_d_hidden() || wants_head() || d_lora_states.data || d_logits.data; }
  /// Tells whether d_hidden is wanted.
  bool wants_d_hidden() const { return d_hidden.data != nullptr; }
  /// Tells whether the gradient of some part of the head is wanted.
  bool wants_head() const { return d_weight.data || d_bias.data || weight_sink || d_lora_a.data || d_lora_b.data; }
};

/// A second model over the same vocabulary, which is read and never differentiated.
struct TeacherMatrices {
  HiddenStates hidden;                        ///< [N, H of the teacher]
  HeadMatrices head;                          ///< as many vocabulary entries as the student's
  std::optional<DType> round_logits_to = {};  ///< Distillation::teacher_round_logits_to
  FinishedLogits logits = {};                 ///< in place of hidden and head

  TeacherMatrices() = default;
  /// Takes a teacher of states and a head.
  TeacherMatrices(HiddenStates hidden_, HeadMatrices head_, std::optional<DType> round_logits_to_ = {})
      : hidden(hidden_), head(head_), round_logits_to(round_logits_to_) {}
  /// Takes a teacher of finished logits.
  TeacherMatrices(FinishedLogits logits_) : logits(logits_) {}

  /// Tells whether it has logits in place of hidden and head.
  bool has_logits() const { return logits.data || logits.batch != 0 || logits.time != 0 || logits.vocab != 0; }
};

}  // namespace logitless
