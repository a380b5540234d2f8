// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/measure/cost.h"

#include <algorithm>
#include <cstdint>

namespace logitless::cli {
namespace {

double bytes_of(const Job& job, TensorId id) { return job.has(id) ? static_cast<double>(job[id].bytes) : 0; }

}  // namespace

Cost cost_of(const Plan& plan, const Job& job, bool forward_only) {
  const bool d_hidden = !forward_only && job.has(TensorId::kDHidden);
  const bool d_weight = !forward_only && job.has(TensorId::kDWeight);
  const bool backward = d_hidden || d_weight;
  const bool dense = plan.kind == PlanKind::kDense;
  const bool again = plan.kind == PlanKind::kTwoPass;
  const int64_t rows = dense ? job.tokens : plan.active_rows;
  const double logits = static_cast<double>(rows) * static_cast<double>(job.vocab_size);

  Cost cost;
  const int products = 1 + again + plan.gradient_terms * (d_hidden + d_weight);
  cost.flops = 2.0 * products * logits * static_cast<double>(job.hidden_size);

  // Each chunk of one pass reads the head for its logits, and once more for what its gradients need of it;
  // the other plans have one chunk.
  const int64_t chunks = dense || plan.chunk_rows == 0 ? 1 : (rows + plan.chunk_rows - 1) / plan.chunk_rows;
  const bool reads_again = again ? backward : d_hidden;
  cost.bytes = static_cast<double>(chunks * (1 + reads_again)) * bytes_of(job, TensorId::kWeight);
  cost.bytes += (1 + d_hidden) * bytes_of(job, TensorId::kHidden);
  // What is written is read first: by the sum, or by the cache that takes the line in.
  if (d_weight) cost.bytes += static_cast<double>(chunks) * 2 * bytes_of(job, TensorId::kDWeight);
  if (d_hidden) cost.bytes += 2 * bytes_of(job, TensorId::kDHidden);
  // Logits that are kept are written once and turned into gradients in their place. The products of dense
  // read these from memory; those of one pass follow while the tile is in a cache. Dense folds what memory
  // holds, too.
  const double logit_bytes = job.dtype == DType::kFloat64 ? 8 : 4;
  double times = 0;
  if (dense) {
    times = 2 + 1 + (backward ? 2 : 0) + d_hidden + d_weight;
  } else if (plan.kind == PlanKind::kOnePass) {
    times = 2 + 2;
  }
  cost.bytes += times * logit_bytes * logits;
  return cost;
}

size_t read_all(const TensorBytes& tensor, int threads) {
  constexpr int64_t kPart = int64_t{1} << 18;  // words
  constexpr int64_t kLine = 8;
  constexpr int64_t kAhead = 64 * kLine;  // narrow loads alone do not keep enough lines on their way
  const auto* words = tensor.as<uint64_t>();
  const int64_t count = tensor.count(sizeof(uint64_t));
  const int64_t parts = (count + kPart - 1) / kPart;
  uint64_t sum = 0;
#pragma omp parallel for schedule(dynamic) num_threads(threads) reduction(+ : sum)
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t end = std::min(count, (part + 1) * kPart);
    int64_t i = part * kPart;
    for (; i + kLine <= end; i += kLine) {
      __builtin_prefetch(words + std::min(i + kAhead, count - 1));
      for (int64_t k = 0; k < kLine; ++k) sum += words[i + k];
    }
    for (; i < end; ++i) sum += words[i];
  }
  return sum;
}

}  // namespace logitless::cli
