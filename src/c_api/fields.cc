// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "c_api/fields.h"

#include "c_api/context.h"

using namespace logitless;
using namespace logitless::c_api;

namespace logitless::c_api {

void take(const char* name, Workspace*& to, logitless_workspace* from) {
  to = from ? &there(from, name).workspace : nullptr;
}

void take(const char*, TokenOptions& to, const logitless_token_options* from) { to = token_options_of(from); }

void take(const char*, Reference& to, const logitless_reference* from) { to = reference_of(from); }

Reference reference_of(const logitless_reference* given) {
  const logitless_reference in = read(given, "reference");
  Reference out;
  out.logps = vector_of(in.logps, "reference.logps");
  out.logps_per = enumerator<EntriesPer>(in.logps_per, "reference.logps_per");
  if (in.hidden || in.head) {
    out.hidden = hidden_of(there(in.hidden, "reference.hidden"), "reference.hidden");
    out.head = head_of(there(in.head, "reference.head"), "reference.head");
  }
  return out;
}

Teacher teacher_of(const logitless_teacher* given) {
  const logitless_teacher in = read(&there(given, "teacher"), "teacher");
  Teacher out;
  if (in.logits) {
    if (in.hidden || in.head) core::fail("teacher has logits, and hidden states or a head beside them");
    out.logits = logits_of(in.logits, "teacher.logits");
  } else {
    out.hidden = hidden_of(there(in.hidden, "teacher.hidden"), "teacher.hidden");
    out.head = head_of(there(in.head, "teacher.head"), "teacher.head");
  }
  take("teacher.round_logits_to", out.round_logits_to, in.round_logits_to);
  return out;
}

}  // namespace logitless::c_api

void logitless_token_options_init(logitless_token_options* options, size_t size) { init(options, size); }
void logitless_stats_request_init(logitless_stats_request* request, size_t size) { init(request, size); }
void logitless_cross_entropy_options_init(logitless_cross_entropy_options* options, size_t size) {
  init(options, size);
}
void logitless_policy_batch_init(logitless_policy_batch* batch, size_t size) { init(batch, size); }
void logitless_policy_options_init(logitless_policy_options* options, size_t size) { init(options, size); }
void logitless_reference_init(logitless_reference* reference, size_t size) { init(reference, size); }
void logitless_preference_options_init(logitless_preference_options* options, size_t size) { init(options, size); }
void logitless_kto_batch_init(logitless_kto_batch* batch, size_t size) { init(batch, size); }
void logitless_kto_options_init(logitless_kto_options* options, size_t size) { init(options, size); }
void logitless_teacher_init(logitless_teacher* teacher, size_t size) { init(teacher, size); }
void logitless_distillation_options_init(logitless_distillation_options* options, size_t size) { init(options, size); }
void logitless_context_options_init(logitless_context_options* options, size_t size) { init(options, size); }
