// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "cli/command.h"
#include "cli/gradcheck.h"

namespace logitless::cli {
namespace {

constexpr const char* kGradcheckHelp = "Checks loss and gradients against a float64 reference";

constexpr const char* kGradcheckFooter =
    R"(The reference is computed in float64 by code of its own, in tiles of bounded memory, from the same inputs, and is
not rounded to the type that the kernels store. Level fused: hidden states and head in, d_hidden, d_weight and d_bias
out; level logits: finished logits in, dlogits out.

  loss_ref, loss_kernel, abs_diff_loss
  logp_max_abs                   log-probabilities of the targets, in nats
  per_token_loss_max_abs, _rel_l2
  dlogits_max_abs                max |kernel - reference|
  dlogits_max_rel                max |kernel - reference| / |reference| over the entries whose |reference| is at least
                                 the smallest normal number of the stored type
  dlogits_rounded_max_abs, _rel  the same two against the reference rounded to the stored type: what two kernels that
                                 store that type differ by
  ..._rel_l2                     ||kernel - reference|| / ||reference||
  time/forward_s                 the kernel without gradients
  time/kernel_grad_s             the kernel with gradients
  time/ref_grad_s                the reference, comparison included

Gates are the keys of tolerances: loss_atol (nats a token), losses_rel_l2, logp_max_abs, dlogits_max_abs,
dlogits_max_rel, dlogits_rel_l2, d_hidden_rel_l2, d_weight_rel_l2, d_bias_rel_l2. Left out they follow from the types
and the reference's size; dlogits_max_rel is then no gate where terms of a gradient can cancel (label smoothing,
entropy terms, policy.beta), logp_max_abs none where computed logits are rounded (round_logits_to at level fused). A
value that is no finite number fails its gate.

--metrics writes a line a metric, {"step":1,"name":"loss_ref","value":11.9}: the step is the config's place among the
configs, gate/NAME is 1 where the gate holds and 0 where not. scripts/forward_metrics.py reads it.

Exit status, the worst of all configs: 0 every gate holds, 1 one does not, 2 a bad option, config or input, 3 out of
memory.

Examples:
  logitless gradcheck configs/tiny.yaml configs/tiny-grpo.yaml configs/tiny-dpo.yaml configs/tiny-kto.yaml
  logitless gradcheck configs/gradcheck/grpo-logits-tiny.yaml --set model.dtype=float16 --json -)";

}  // namespace

void add_gradcheck(CLI::App& app, Action& action) {
  CLI::App* gradcheck = app.add_subcommand("gradcheck", kGradcheckHelp);
  gradcheck->footer(kGradcheckFooter);
  const auto options = std::make_shared<GradcheckOptions>();
  gradcheck->add_option("CONFIG,--config", options->config_paths, "YAML configs, each a check of its own")
      ->type_name("FILE");
  add_set_flag(*gradcheck, options->assignments);
  add_tensor_flags(*gradcheck, options->tensors);
  gradcheck->add_option("--json", options->json_path, "writes the report as one JSON object; - is standard output")
      ->type_name("FILE");
  gradcheck->add_option("--metrics", options->metrics_path, "writes each metric as a line of JSON")->type_name("FILE");
  add_profile_flag(*gradcheck, options->profile_path);
  gradcheck->add_flag("--quiet", options->quiet, "prints no table and no progress: the exit status says it");
  gradcheck->callback([=, &action] { action = [=] { return run_gradcheck(*options); }; });
}

}  // namespace logitless::cli
