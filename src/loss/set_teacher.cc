// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Checks a teacher's sets and the options for them.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/check_fields.h"
#include "core/tensors.h"
#include "core/views.h"
#include "loss/divergence_options.h"
#include "loss/math.h"
#include "loss/sequences.h"
#include "loss/set_distillation.h"
#include "problem/id_sets.h"

namespace logitless::loss {
namespace {

using core::fail_if;

// Log-probabilities in bfloat16 have a relative error of 2^-9, so a row may sum to slightly more than 1.
constexpr double kMostMass = 1 + 0x1p-6;

// Returns the relative rounding error of a type.
double rounding_of(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return 0x1p-9;
    case DType::kFloat16:
      return 0x1p-11;
    case DType::kFloat32:
      return 0x1p-24;
    default:
      return 0x1p-53;
  }
}

// Returns whether the divergence is infinite where the student has mass but not the teacher.
bool needs_teacher_mass(const SetDistillation& options) {
  switch (options.loss_type) {
    case Divergence::kReverseKl:
      return true;
    case Divergence::kJsd:
      return options.beta == 1;
    case Divergence::kSkewReverseKl:
      return options.skew == 0;
    case Divergence::kMixedKl:
      return options.forward_weight < 1;
    default:
      return false;
  }
}

double check_logp(const ConstVector& logps, int64_t row, int64_t entry, int64_t place) {
  const double logp = core::read(logps, place);
  fail_if(!(logp <= 0), "teacher.logps of row ", row, ", entry ", entry, ", = ", logp,
          " must be a log-probability: at most 0, not a probability");
  return logp;
}

// The teacher's vectors, in addition to its sets.
struct Vectors {
  ConstVector logps, outside_logps;
};

// A row of the caller's sets.
struct Row {
  int64_t row = 0;
  int64_t begin = 0, end = 0;  // of the sets' picks
  int64_t first_entry = 0;     // of the caller's entries
  int64_t target = kNoTarget;  // target that needs a pick
};

// Appends the row's picks, and returns the log of its mass.
double add_row(const Vectors& teacher, const problem::SetPicks& sets, const Row& of, SetRows& out) {
  double largest = kNothing, sum = 0;
  const auto add = [&](int64_t id, double logp) {
    if (of.target == id) out.target[static_cast<size_t>(of.row)] = static_cast<int64_t>(out.picks.ids.size());
    out.picks.ids.push_back(id);
    out.logps.push_back(logp);
  };
  const size_t first = out.logps.size();
  bool wanted = of.target != kNoTarget;
  for (int64_t pick = of.begin; pick < of.end; ++pick) {
    const auto k = static_cast<size_t>(pick);
    const int64_t id = sets.picks.ids[k];
    fail_if(pick > of.begin && sets.picks.ids[k - 1] == id, "teacher.sets of row ", of.row, " has token id ", id,
            " twice: each id may occur once per row");
    if (wanted && of.target < id) add(of.target, kNan);
    wanted = wanted && of.target > id;
    add(id, check_logp(teacher.logps, of.row, sets.entries[k] - of.first_entry, sets.entries[k]));
  }
  if (wanted) add(of.target, kNan);
  for (size_t k = first; k < out.logps.size(); ++k) largest = std::fmax(largest, out.logps[k]);
  for (size_t k = first; k < out.logps.size(); ++k) {
    if (!std::isnan(out.logps[k]) && largest > kNothing) sum += std::exp(out.logps[k] - largest);
  }
  return largest > kNothing ? largest + std::log(sum) : kNothing;
}

// Applies the options to a row with mass e^log_mass.
void finish_row(const Vectors& teacher, const SetDistillation& options, const Row& of, int64_t vocab_size,
                double log_mass, SetRows& out) {
  const auto r = static_cast<size_t>(of.row);
  const double mass = std::exp(log_mass);
  fail_if(mass > kMostMass, "the probabilities of teacher.logps of row ", of.row, " sum to ", mass,
          ", which is more than 1");
  out.masses[r] = mass;
  if (options.outside == OutsideSet::kRenormalised || options.outside == OutsideSet::kTeacherRenormalised) {
    fail_if(log_mass == kNothing, "teacher.logps of row ", of.row, " are all -inf: there is nothing to renormalise");
    for (auto k = static_cast<size_t>(out.picks.offsets.back()); k < out.logps.size(); ++k) out.logps[k] -= log_mass;
  }
  if (options.outside != OutsideSet::kTail) return;
  double outside = mass < 1 ? std::log1p(-mass) : kNothing;
  if (teacher.outside_logps.size != 0) {
    outside = core::read(teacher.outside_logps, of.row);
    fail_if(!(outside <= 0), "teacher.outside_logps[", of.row, "] = ", outside,
            " must be a log-probability: at most 0");
    const double all = mass + std::exp(outside);
    fail_if(all > kMostMass, "the probabilities of teacher.outside_logps[", of.row, "] = ", outside,
            " and teacher.logps of row ", of.row, " sum to ", all, ", which is more than 1");
  }
  // If the set is the whole vocabulary, the student has no mass outside it either.
  const bool is_whole = of.end - of.begin == vocab_size;
  if (!is_whole) outside = std::max(outside, std::log(options.tail_floor));
  fail_if(outside == kNothing && !is_whole && needs_teacher_mass(options), "the probabilities of teacher.logps of row ",
          of.row, " sum to ", mass, ", which leaves nothing for the tail: loss_type = ", name_of(options.loss_type),
          " would be infinite. Set tail_floor (1e-7 in TRL), give teacher.outside_logps, or set outside = "
          "renormalised");
  out.outside[r] = outside;
}

Vectors check_vectors(const SetTeacher& teacher, const problem::Shape& shape, OutsideSet rule) {
  const ConstVector logps = core::vector_of("teacher.logps", teacher.logps, numbers("as teacher.sets.ids"));
  fail_if(logps.size != teacher.sets.entries(), "teacher.logps ", core::HasEntries(logps.size),
          " but teacher.sets.ids has ", teacher.sets.entries());
  const ConstVector outside = core::vector_of("teacher.outside_logps", teacher.outside_logps);
  fail_if(outside.size != 0 && rule != OutsideSet::kTail,
          "teacher.outside_logps is given, but outside = ", name_of(rule), " does not read it");
  fail_if(outside.size != 0 && outside.size != shape.tokens, "teacher.outside_logps ", core::HasEntries(outside.size),
          " but ", shape.rows_name, " has ", shape.tokens, " rows");
  return {logps, outside};
}

}  // namespace

void check_set_options(const SetDistillation& options, const ConstTensor& targets, int64_t tokens) {
  core::check_fields(options);
  const Divergence kind = options.loss_type;
  fail_if(kind == Divergence::kAcceptance || kind == Divergence::kLkHybrid, "loss_type = ", name_of(kind),
          " is not a sum over token ids: it needs the teacher's head");
  check_divergence_options(options, targets, tokens);
  fail_if(options.tail_floor != 0 && options.outside != OutsideSet::kTail, "tail_floor = ", options.tail_floor,
          " has no meaning for outside = ", name_of(options.outside));
  const bool hard = options.hard_weight != 0;
  fail_if(hard && (!options.token.temperatures.empty() || options.token.temperature != 1),
          "hard_weight = ", options.hard_weight, " needs a temperature of 1: it shares the student's softmax");
  fail_if(hard && options.outside == OutsideSet::kRenormalised, "hard_weight = ", options.hard_weight,
          " and outside = renormalised are both set: the cross-entropy needs the logits of the whole vocabulary");
}

core::Array<core::ByteRange> ranges_of(const SetTeacher& teacher) {
  core::Array<core::ByteRange> ranges = problem::ranges_of(teacher.sets);
  ranges.insert(ranges.end(), {core::range_of("teacher.logps", teacher.logps),
                               core::range_of("teacher.outside_logps", teacher.outside_logps)});
  return ranges;
}

SetRows check_set_teacher(const SetTeacher& teacher, const problem::Shape& shape, std::span<const int64_t> ids,
                          const SetDistillation& options) {
  const auto n = static_cast<size_t>(shape.tokens);
  core::Array<uint8_t> mask;
  if (!ids.empty()) {
    mask.resize(n);
    for (size_t row = 0; row < n; ++row) mask[row] = ids[row] != kNoTarget;
  }
  const problem::SetPicks sets = problem::set_picks(teacher.sets, shape, mask, "teacher.sets");
  const Vectors vectors = check_vectors(teacher, shape, options.outside);
  SetRows out;
  out.masses.assign(n, 0);
  if (options.outside == OutsideSet::kTail) out.outside.assign(n, 0);
  if (vectors.outside_logps.size == 0) out.rounding = rounding_of(vectors.logps.dtype);
  if (options.hard_weight != 0) out.target.assign(n, 0);
  out.picks.rows = sets.picks.rows;
  out.picks.offsets.push_back(0);
  for (int64_t row = 0; row < shape.tokens; ++row) {
    Row of = {row, sets.picks.offsets[static_cast<size_t>(row)], sets.picks.offsets[static_cast<size_t>(row) + 1]};
    if (of.begin < of.end) {
      of.first_entry = *std::min_element(sets.entries.begin() + of.begin, sets.entries.begin() + of.end);
      if (options.hard_weight != 0) of.target = ids[static_cast<size_t>(row)];
      finish_row(vectors, options, of, shape.vocab_size, add_row(vectors, sets, of, out), out);
    }
    out.picks.offsets.push_back(static_cast<int64_t>(out.picks.ids.size()));
  }
  return out;
}

}  // namespace logitless::loss
