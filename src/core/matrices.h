// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The engine's types for the tensors of a call: matrices with contiguous rows, vectors, and structures of
// them. core/tensors.h checks the views of the public API and converts them to these types.
//
// Strides are in elements. An omitted stride, or std::nullopt, means that rows or sequences are contiguous. A
// stride that is not used (of a single row, of a single sequence, or of a tensor without elements) may be
// anything; every other stride is at least a row.
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

/// A row-major matrix: element (r, c) is data[r * stride + c], with stride >= cols.
struct ConstMatrix {
  const void* data = nullptr;     ///< element (0, 0)
  DType dtype = DType::kFloat32;  ///< of the elements
  int64_t rows = 0;               ///< may be 0
  int64_t cols = 0;               ///< positive
  int64_t stride = 0;             ///< from one row to the next, in elements

  ConstMatrix() = default;
  /// Without a stride the rows are contiguous.
  ConstMatrix(const void* data_, DType dtype_, int64_t rows_, int64_t cols_, std::optional<int64_t> stride_ = {})
      : data(data_), dtype(dtype_), rows(rows_), cols(cols_), stride(stride_.value_or(cols_)) {}
  template <class T>
  ConstMatrix(const T* data_, int64_t rows_, int64_t cols_, std::optional<int64_t> stride_ = {})
      : ConstMatrix(data_, DTypeOf<T>::value, rows_, cols_, stride_) {}
  /// The view; absent if the matrix is empty and has no data.
  operator ConstTensor() const {
    if (!data && rows == 0 && cols == 0) return {};
    return {data, dtype, {rows, cols}, {stride, 1}};
  }
};

/// A writable row-major matrix. data == nullptr: this output is not requested.
struct Matrix {
  void* data = nullptr;           ///< element (0, 0)
  DType dtype = DType::kFloat32;  ///< of the elements
  int64_t rows = 0;               ///< may be 0
  int64_t cols = 0;               ///< positive
  int64_t stride = 0;             ///< from one row to the next, in elements

  Matrix() = default;
  Matrix(void* data_, DType dtype_, int64_t rows_, int64_t cols_, std::optional<int64_t> stride_ = {})
      : data(data_), dtype(dtype_), rows(rows_), cols(cols_), stride(stride_.value_or(cols_)) {}
  template <class T>
  Matrix(T* data_, int64_t rows_, int64_t cols_, std::optional<int64_t> stride_ = {})
      : Matrix(data_, DTypeOf<T>::value, rows_, cols_, stride_) {}
  /// The view; absent if the output is not requested.
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
  ConstVector(const void* data_, DType dtype_, int64_t size_) : data(data_), dtype(dtype_), size(size_) {}
  template <class T>
  ConstVector(const T* data_, int64_t size_) : ConstVector(data_, DTypeOf<T>::value, size_) {}
  /// The view; absent if the vector is empty.
  operator ConstTensor() const {
    if (!data && size == 0) return {};
    return {data, dtype, {size}};
  }
};

/// A writable contiguous vector. data == nullptr: this output is not requested.
struct Vector {
  void* data = nullptr;           ///< element 0
  DType dtype = DType::kFloat32;  ///< of the elements
  int64_t size = 0;               ///< in elements

  Vector() = default;
  Vector(void* data_, DType dtype_, int64_t size_) : data(data_), dtype(dtype_), size(size_) {}
  template <class T>
  Vector(T* data_, int64_t size_) : Vector(data_, DTypeOf<T>::value, size_) {}
  /// The view; absent if the output is not requested.
  operator Tensor() const {
    if (!data) return {};
    return {data, dtype, {size}};
  }
};

/// The hidden states of N tokens, [N, H], one row per token, and their division into sequences. Sequences of
/// different lengths are packed (`offsets`).
struct HiddenStates {
  ConstMatrix states;  ///< [N, H]
  /// The number of sequences of equal length; N is a multiple of it. 0: an empty batch, [0, T, H], without
  /// rows. Unused if offsets is not empty.
  int64_t sequences = 1;
  /// Packed sequences (cu_seqlens): 0 = offsets[0] <= offsets[1] <= ... <= offsets.back() = N. Sequence s has
  /// the rows [offsets[s], offsets[s + 1]).
  std::span<const int64_t> offsets;
  /// Elements from one sequence of `states` to the next, at least H; unset: sequences are contiguous.
  /// Position t of sequence b begins at element b * batch_stride + t * states.stride, which allows a slice
  /// such as hidden[:, :-1] or the transpose of [T, B, H]. Not for packed sequences.
  std::optional<int64_t> batch_stride;

  HiddenStates() = default;
  /// [N, H] as a single sequence.
  HiddenStates(ConstMatrix states_) : states(states_) {}
  /// [B, T, H] with N = B * T rows.
  HiddenStates(ConstMatrix states_, int64_t batch) : states(states_), sequences(batch) {}
  /// Packed sequences.
  HiddenStates(ConstMatrix states_, std::span<const int64_t> offsets_) : states(states_), offsets(offsets_) {}
  /// [B, T, H]: element (b, t, h) is data[b * batch_stride + t * row_stride + h].
  HiddenStates(const void* data, DType dtype, int64_t batch, int64_t time, int64_t hidden,
               std::optional<int64_t> batch_stride_ = {}, std::optional<int64_t> row_stride = {})
      : states(data, dtype, detail::saturated_product(batch, time), hidden, row_stride),
        sequences(batch),
        batch_stride(batch_stride_) {}
  template <class T>
  HiddenStates(const T* data, int64_t batch, int64_t time, int64_t hidden, std::optional<int64_t> batch_stride_ = {},
               std::optional<int64_t> row_stride = {})
      : HiddenStates(data, DTypeOf<T>::value, batch, time, hidden, batch_stride_, row_stride) {}

  /// Returns N.
  int64_t tokens() const { return states.rows; }
  /// Returns H.
  int64_t hidden_size() const { return states.cols; }
};

/// The memory layout of the head's weight.
enum class HeadLayout {
  kHiddenVocab,  ///< weight is [H, V]: logits = hidden · weight
  /// Weight is [V, H]: logits = hidden · weightᵀ (tied embeddings, PyTorch's nn.Linear, GGUF). The default.
  kVocabHidden,
};

/// The names of HeadLayout.
template <>
inline constexpr std::array kNamesOf<HeadLayout> = {"hidden_vocab", "vocab_hidden"};

/// A packed matrix.
struct PackedMatrix {
  const void* data = nullptr;        ///< row 0
  Packing packing = Packing::kInt8;  ///< of all rows
  int64_t rows = 0;                  ///< may be 0
  int64_t cols = 0;                  ///< positive, and a multiple of the numbers of a block
  /// Bytes from one row to the next; unset: rows are contiguous.
  std::optional<int64_t> row_bytes = {};
  /// kInt8, kNf4: [rows, cols / group]; otherwise null.
  const float* scales = nullptr;
  /// kInt8, kNf4: numbers of a row that share a scale, a divisor of cols, even for kNf4; 0: all.
  int64_t group = 0;

  /// Returns whether there is a matrix.
  bool given() const { return data || rows != 0 || cols != 0; }
};

/// The matrices of a LoraAdapter.
struct LoraMatrices {
  ConstMatrix a;            ///< [r, H]
  ConstMatrix b;            ///< [V, r]; with LmHead::vocab_ids, one row per entry of the weight
  double scale = 1;         ///< s
  ConstMatrix states = {};  ///< [N, r] in place of a

  /// Returns whether there is an adapter.
  bool given() const { return a.data || b.data || a.rows != 0 || b.rows != 0 || has_states(); }
  /// Returns whether there are states in place of a.
  bool has_states() const { return states.data || states.rows != 0 || states.cols != 0; }
  /// Returns r.
  int64_t rank() const { return has_states() ? states.cols : a.rows; }
};

/// The matrices of an LmHead.
struct HeadMatrices {
  ConstMatrix weight;                            ///< [V, H] or [H, V], see `layout`
  HeadLayout layout = HeadLayout::kVocabHidden;  ///< of weight
  ConstVector bias;                              ///< [V], or empty
  double softcap = 0;                            ///< 0: none
  PackedMatrix packed = {};                      ///< [V, H] in place of weight
  std::span<const int64_t> ids = {};             ///< LmHead::vocab_ids
  LoraMatrices lora = {};                        ///< default: absent

  HeadMatrices() = default;
  HeadMatrices(ConstMatrix weight_, HeadLayout layout_ = HeadLayout::kVocabHidden) : weight(weight_), layout(layout_) {}
  HeadMatrices(PackedMatrix packed_) : packed(packed_) {}

  /// Returns whether any part is set.
  bool given() const { return weight.data || packed.given() || !ids.empty() || bias.data || lora.given(); }
  /// Returns H.
  int64_t hidden_size() const {
    if (packed.given()) return packed.cols;
    return layout == HeadLayout::kHiddenVocab ? weight.rows : weight.cols;
  }
  /// Returns the number of vocabulary entries of the weight.
  int64_t stored_entries() const {
    if (packed.given()) return packed.rows;
    return layout == HeadLayout::kHiddenVocab ? weight.cols : weight.rows;
  }
  /// Returns V.
  int64_t vocab_size() const { return ids.empty() ? stored_entries() : static_cast<int64_t>(ids.size()); }
};

/// One id per token, int32 or int64. Id i = b * time + t is data[b * batch_stride + t * stride], so a slice
/// such as targets[:, 1:] of [B, T + 1] needs no copy.
struct Targets {
  const int32_t* data32 = nullptr;  ///< id 0, or null
  const int64_t* data64 = nullptr;  ///< id 0, when data32 is null
  int64_t size = 0;                 ///< N
  int64_t stride = 1;               ///< elements from one id of a sequence to the next; positive
  /// T, the ids per sequence, a divisor of size; 0: a single sequence.
  int64_t time = 0;
  /// Elements from one sequence to the next; positive if there are several.
  int64_t batch_stride = 0;

  Targets() = default;
  Targets(const int32_t* data, int64_t size_) : data32(data), size(size_) {}
  Targets(const int64_t* data, int64_t size_) : data64(data), size(size_) {}
  /// [B, T]. Without a batch_stride the sequences are contiguous.
  Targets(const int32_t* data, int64_t batch, int64_t time_, std::optional<int64_t> batch_stride_ = {},
          int64_t stride_ = 1)
      : data32(data), size(detail::saturated_product(batch, time_)) {
    set_strides(time_, batch_stride_, stride_);
  }
  Targets(const int64_t* data, int64_t batch, int64_t time_, std::optional<int64_t> batch_stride_ = {},
          int64_t stride_ = 1)
      : data64(data), size(detail::saturated_product(batch, time_)) {
    set_strides(time_, batch_stride_, stride_);
  }
  Targets(std::span<const int32_t> ids) : data32(ids.data()), size(static_cast<int64_t>(ids.size())) {}
  Targets(std::span<const int64_t> ids) : data64(ids.data()), size(static_cast<int64_t>(ids.size())) {}

  /// The view; absent without targets.
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

/// Finished logits [B, T, V]: element (b, t, v) is data[b * batch_stride + t * row_stride + v], with strides
/// of at least V. Any strided slice is possible, such as logits[:, :-1, :] or the transpose of [T, B, V]. Row
/// i = b * T + t is token i of targets, temperatures and all results. They are capped logits: the caller has
/// applied bias and softcap. float32, bfloat16 and float16 are computed in float32, float64 in float64.
struct FinishedLogits {
  const void* data = nullptr;     ///< element (0, 0, 0)
  DType dtype = DType::kFloat32;  ///< of the elements
  int64_t batch = 0;              ///< B, sequences
  int64_t time = 0;               ///< T, positions per sequence
  int64_t vocab = 0;              ///< V
  int64_t batch_stride = 0;       ///< elements from one sequence to the next
  int64_t row_stride = 0;         ///< elements from one position to the next

  FinishedLogits() = default;
  /// Without strides the rows and sequences are contiguous.
  FinishedLogits(const void* data_, DType dtype_, int64_t batch_, int64_t time_, int64_t vocab_,
                 std::optional<int64_t> batch_stride_ = {}, std::optional<int64_t> row_stride_ = {})
      : data(data_),
        dtype(dtype_),
        batch(batch_),
        time(time_),
        vocab(vocab_),
        batch_stride(batch_stride_.value_or(detail::saturated_product(time_, row_stride_.value_or(vocab_)))),
        row_stride(row_stride_.value_or(vocab_)) {}
  template <class T>
  FinishedLogits(const T* data_, int64_t batch_, int64_t time_, int64_t vocab_,
                 std::optional<int64_t> batch_stride_ = {}, std::optional<int64_t> row_stride_ = {})
      : FinishedLogits(data_, DTypeOf<T>::value, batch_, time_, vocab_, batch_stride_, row_stride_) {}

  /// Returns N = B T.
  int64_t tokens() const { return detail::saturated_product(batch, time); }
  operator ConstTensor() const { return {data, dtype, {batch, time, vocab}, {batch_stride, row_stride, 1}}; }
};

/// The output of dL/dlogits; data == nullptr: not requested. It has the logits' shape, and their type or
/// float32 (for float64 logits float64 only). Either a buffer that overlaps no input, or exactly the logits:
/// the same pointer, type and strides (in place). Rows may not overlap: one of the two strides must be larger
/// than the extent covered by the other. Always overwritten; ignored rows get zeros.
struct LogitsGradient {
  void* data = nullptr;           ///< element (0, 0, 0)
  DType dtype = DType::kFloat32;  ///< of the elements
  int64_t batch = 0;              ///< B, sequences
  int64_t time = 0;               ///< T, positions per sequence
  int64_t vocab = 0;              ///< V
  int64_t batch_stride = 0;       ///< elements from one sequence to the next
  int64_t row_stride = 0;         ///< elements from one position to the next

  LogitsGradient() = default;
  /// Without strides the rows and sequences are contiguous.
  LogitsGradient(void* data_, DType dtype_, int64_t batch_, int64_t time_, int64_t vocab_,
                 std::optional<int64_t> batch_stride_ = {}, std::optional<int64_t> row_stride_ = {})
      : data(data_),
        dtype(dtype_),
        batch(batch_),
        time(time_),
        vocab(vocab_),
        batch_stride(batch_stride_.value_or(detail::saturated_product(time_, row_stride_.value_or(vocab_)))),
        row_stride(row_stride_.value_or(vocab_)) {}
  template <class T>
  LogitsGradient(T* data_, int64_t batch_, int64_t time_, int64_t vocab_, std::optional<int64_t> batch_stride_ = {},
                 std::optional<int64_t> row_stride_ = {})
      : LogitsGradient(data_, DTypeOf<T>::value, batch_, time_, vocab_, batch_stride_, row_stride_) {}
  /// The view; absent if the output is not requested.
  operator Tensor() const {
    if (!data) return {};
    return {data, dtype, {batch, time, vocab}, {batch_stride, row_stride, 1}};
  }
};

/// Receives each finished vocabulary tile of d_weight, in the head's layout (WeightGradientSink).
using WeightTileSink = std::function<void(int64_t first, int64_t count, const ConstMatrix& tile)>;

/// The matrices of Gradients.
struct GradientMatrices {
  Matrix d_hidden = {};                             ///< [N, H]
  Matrix d_weight = {};                             ///< the head's shape and layout
  Vector d_bias = {};                               ///< [V]
  Matrix d_lora_a = {};                             ///< [r, H]
  Matrix d_lora_b = {};                             ///< [V, r]
  Matrix d_lora_states = {};                        ///< [N, r]
  WriteMode d_hidden_mode = WriteMode::kOverwrite;  ///< of d_hidden
  WriteMode d_weight_mode = WriteMode::kOverwrite;  ///< of d_weight; not used with a sink
  WriteMode d_bias_mode = WriteMode::kOverwrite;    ///< of d_bias
  WriteMode d_lora_mode = WriteMode::kOverwrite;    ///< of d_lora_a, d_lora_b and d_lora_states
  WeightTileSink weight_sink = {};                  ///< in place of d_weight
  /// Elements from one sequence of d_hidden to the next, like HiddenStates::batch_stride.
  std::optional<int64_t> d_hidden_batch_stride = {};
  LogitsGradient d_logits = {};   ///< of finished logits
  BackwardOptions backward = {};  ///< how the gradients are computed

  /// Returns whether any gradient is requested. If not, a call runs forward only.
  bool any() const { return wants_d_hidden() || wants_head() || d_lora_states.data || d_logits.data; }
  bool wants_d_hidden() const { return d_hidden.data != nullptr; }
  /// Returns whether the gradient of any part of the head is requested.
  bool wants_head() const { return d_weight.data || d_bias.data || weight_sink || d_lora_a.data || d_lora_b.data; }
};

/// A second model over the same vocabulary; it has no gradient.
struct TeacherMatrices {
  HiddenStates hidden;                        ///< [N, H of the teacher]
  HeadMatrices head;                          ///< with the student's number of vocabulary entries
  std::optional<DType> round_logits_to = {};  ///< Distillation::teacher_round_logits_to
  FinishedLogits logits = {};                 ///< in place of hidden and head

  TeacherMatrices() = default;
  TeacherMatrices(HiddenStates hidden_, HeadMatrices head_, std::optional<DType> round_logits_to_ = {})
      : hidden(hidden_), head(head_), round_logits_to(round_logits_to_) {}
  TeacherMatrices(FinishedLogits logits_) : logits(logits_) {}

  /// Returns whether it has finished logits in place of hidden and head.
  bool has_logits() const { return logits.data || logits.batch != 0 || logits.time != 0 || logits.vocab != 0; }
};

}  // namespace logitless
