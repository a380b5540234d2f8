// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "api/reference.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "api/call.h"
#include "core/store.h"
#include "core/views.h"
#include "loss/math.h"

namespace logitless::api {
namespace {

using core::fail;

// glibc maps larger blocks separately from its heap. A call with smaller logits reuses the memory that a part
// has freed; returning it to the system would only cost time.
constexpr int64_t kMappedApart = int64_t{32} << 20;

// Returns the members of a reference model, and whether each is given.
std::array<std::pair<std::string_view, bool>, 6> parts_of_model(const Logits& model) {
  const LmHead& head = model.head;
  return {{{"reference.hidden", model.hidden.given()},
           {"reference.weight", head.weight.given()},
           {"reference.bias", head.bias.given()},
           {"reference.vocab_ids", !head.vocab_ids.empty()},
           {"reference.lora", head.lora.given()},
           {"reference.logits", model.is_given()}}};
}

// Adds the logps of the active tokens, or of the active sequences, to the digests.
void digest_logps(ranks::Digests& digests, const problem::TokenProblem& problem, const loss::SequenceTokens& tokens,
                  const ConstVector& logps) {
  if (logps.size == 0 || logps.size == problem.tokens) {
    return digest_vector(digests, "ref_logps", problem, logps);
  }
  digests.add_values("ref_logps", logps.size,
                     [&](int64_t s) { return tokens.count(s) > 0 ? core::read(logps, s) : 0; });
}

// Returns work(call) for the call that computes the tokens' statistics under the reference model.
template <class Work>
auto with_model(const Call& whole, const Reference& reference, const loss::SequenceTokens& tokens,
                const TokenOptions& token, const Work& work) {
  if (whole.context().options().ranks.slice) {
    fail(
        "reference.hidden and ranks.slice are both set, but a slice has the statistics of a single model: compute the "
        "reference's log-probabilities first, and give ref_logps");
  }
  try {
    Call call(whole, "reference.", reference.model);
    call.set_task({.options = token, .request = {}, .picks = problem::target_picks(tokens.targets)});
    return work(call);
  } catch (const InvalidInput& error) {
    fail("reference: ", error.what());
  }
}

}  // namespace

bool is_given(const Reference& reference) {
  const auto parts = parts_of_model(reference.model);
  return reference.logps.size != 0 ||
         std::any_of(parts.begin(), parts.end(), [](const auto& part) { return part.second; });
}

void check_reference(const Reference& reference, const loss::SequenceTokens& tokens, const problem::Shape& shape) {
  const ConstVector& logps = reference.logps;
  if (logps.size != 0) {
    for (const auto& [name, given] : parts_of_model(reference.model)) {
      if (given) fail("ref_logps and ", name, " are both set: give only one of them");
    }
    loss::is_per_token("ref_logps", reference.logps_per, logps.size, tokens);
  } else if (is_given(reference)) {
    const Logits& model = reference.model;
    if (model.is_given()) fail("reference has finished logits: give hidden states and a head, or ref_logps");
    if (!model.hidden.given()) fail("reference.hidden is not given");
    if (!model.head.weight.given()) fail("reference.weight is not given");
    if (model.hidden.rows() != shape.tokens) {
      fail("reference.hidden has ", model.hidden.rows(), " rows but ", shape.rows_name, " has ", shape.tokens);
    }
    if (model.head.vocab_size() != shape.entries) {
      fail("reference.weight has ", model.head.vocab_size(), " vocabulary entries but ", shape.vocab_name, " has ",
           shape.entries);
    }
  }
  if (reference.logps_are == SequenceLogps::kSums || is_sums(reference, tokens) || tokens.tokens() == 0) return;
  fail("ref_logps_are = ", name_of(reference.logps_are), " is set but ",
       logps.size != 0 ? "ref_logps has one entry per token" : "ref_logps is not given");
}

bool is_sums(const Reference& reference, const loss::SequenceTokens& tokens) {
  const ConstVector& logps = reference.logps;
  return logps.size != 0 && !loss::is_per_token("ref_logps", reference.logps_per, logps.size, tokens);
}

core::Array<double> reference_sums(Call& whole, const Reference& reference, const loss::SequenceTokens& tokens,
                                   const TokenOptions& token, std::span<const double> weights) {
  core::Array<double> sums(tokens.counts.size(), 0);
  // Also without tokens, because the ranks of a batch run the model together.
  if (!is_given(reference)) return sums;
  const ConstVector& logps = reference.logps;
  whole.digest_tokens([&](ranks::Digests& digests) { digest_logps(digests, whole.problem(), tokens, logps); });
  if (is_sums(reference, tokens)) {
    for (int64_t s = 0; s < tokens.sequences(); ++s) {
      if (tokens.counts[static_cast<size_t>(s)] == 0) continue;
      const double tokens_of_entry = reference.logps_are == SequenceLogps::kAverages ? tokens.count(s) : 1;
      sums[static_cast<size_t>(s)] = tokens_of_entry * loss::finite_entry("ref_logps", logps, s);
    }
    return sums;
  }
  // Without this store the heap would keep the memory that the part frees while the call allocates its own.
  const int64_t kept_logits = kMappedApart / static_cast<int64_t>(sizeof(float));
  core::Store of_part(tokens.tokens() > kept_logits / std::max<int64_t>(1, whole.shape().entries));
  stream::Outcome model;
  if (logps.size == 0) {
    const core::StoreScope scope(core::current_store() ? core::current_store() : &of_part);
    model = with_model(whole, reference, tokens, token, [](const Call& call) { return call.run(nullptr); });
    whole.count_part(model.plan);
  }
  for (int64_t row = 0; row < tokens.tokens(); ++row) {
    const auto i = static_cast<size_t>(row);
    if (tokens.targets[i] == problem::kNoTarget) continue;
    const double logp = logps.size == 0 ? model.stats.logp[i] : loss::finite_entry("ref_logps", logps, row);
    sums[static_cast<size_t>(tokens.sequence[i])] += loss::weighted(weights.empty() ? 1 : weights[i], logp);
  }
  return sums;
}

void plan_reference(Call& whole, const Reference& reference, const loss::SequenceTokens& tokens,
                    const TokenOptions& token) {
  if (!is_given(reference) || reference.logps.size != 0) return;
  whole.count_part(with_model(whole, reference, tokens, token, [](const Call& call) { return call.plan(nullptr); }));
}

core::Array<core::ByteRange> ranges_of(const Reference& reference) {
  const std::span<const int64_t> offsets = reference.model.offsets;
  core::Array<core::ByteRange> ranges = {core::range_of("ref_logps", reference.logps),
                                         core::range_of("reference.offsets", offsets.data(), offsets.size_bytes())};
  try {
    const HeadMatrices head = core::head_of(reference.model.head);
    ranges.push_back(problem::range_of("reference.hidden", core::hidden_of(reference.model)));
    problem::append_reads(head, head.bias, "reference.weight", "reference.bias", ranges);
  } catch (const InvalidInput& error) {
    fail("reference: ", error.what());
  }
  return ranges;
}

}  // namespace logitless::api
