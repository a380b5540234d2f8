#!/usr/bin/env bash
# Runs `logitless compare` on up to four MPI ranks, and checks its reports and refusals.
#   compare_test.sh LOGITLESS MPIEXEC CONFIGS
set -euo pipefail
logitless=$1 mpiexec=$2 configs=$3
export OMP_WAIT_POLICY=passive
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
passed=0

fail() {
  echo "FAILED: $*"
  cat "$out/log" "$out/report" 2>/dev/null || true
  exit 1
}

# agrees RANKS CONFIG SETTING...: only rank 0 reports, and its report is complete.
agrees() {
  local ranks=$1 config=$2 settings=()
  shift 2
  for setting in "$@"; do settings+=(--set "$setting"); done
  "$mpiexec" -n "$ranks" "$logitless" compare "$configs/$config.yaml" "${settings[@]}" --json - \
    >"$out/report" 2>"$out/log" || fail "$config $*: exit status $?"
  jq -es --argjson ranks "$ranks" 'length == 1 and (.[0] |
      .pass and (.ranks.each | length) == $ranks and ([.ranks.each[].rank] == [range($ranks)])
      and .parallel.vocab * .parallel.data == $ranks
      and ([.ranks.each[] | select(.data_rank == 0).vocab] | add) == .shape.vocab
      and ([.ranks.each[] | select(.vocab_rank == 0).tokens] | add) == .shape.tokens
      and all(.ranks.each[]; .time_s > 0 and .tensor_bytes < $whole.bytes)
      and all(.ranks.each[]; (.vocab_exchanges.bytes_sent > 0) == ($vocab > 1)
                         and (.data_exchanges.bytes_sent > 0) == ($data > 1)))' \
    --argjson vocab "$(jq .parallel.vocab "$out/report")" --argjson data "$(jq .parallel.data "$out/report")" \
    --argjson whole "{\"bytes\": $(jq .one_process.tensor_bytes "$out/report")}" "$out/report" >/dev/null ||
    fail "$config $*: the report"
  passed=$((passed + 1))
}

# refuses RANKS STATUS MESSAGE ARGUMENT...: fails with one line, from rank 0.
refuses() {
  local ranks=$1 status=$2 message=$3 got=0
  shift 3
  "$mpiexec" -n "$ranks" "$logitless" "$@" >"$out/report" 2>"$out/log" || got=$?
  [ "$got" = "$status" ] || fail "$*: exit status $got, not $status"
  [ "$(grep -c '^logitless: ' "$out/log")" = 1 ] || fail "$*: not one line"
  grep -qF -- "logitless: $message" "$out/log" || fail "$*: another message"
  passed=$((passed + 1))
}

grid=(parallel.vocab=2 parallel.data=2)
for config in tiny-policy_loss tiny-preference_loss tiny-kto_loss tiny-distillation_loss tiny-set_distillation_loss tiny-soft_cross_entropy; do
  agrees 4 "$config" "${grid[@]}"
done
agrees 3 tiny-id_logps parallel.vocab=3
agrees 3 tiny-distillation_loss parallel.vocab=3 kernel.plan=two_pass gradients.d_weight=false
agrees 4 tiny parallel.vocab=4 model.bias=true model.layout=hidden_vocab model.dtype=bfloat16 label_smoothing=0.1 \
  class_weights=true z_loss=0.01 'temperature=[0.5, 2]' 'metrics={accuracy: true, entropy: true}'
agrees 2 tiny parallel.data=2 shift=true model.dtype=bfloat16
agrees 4 tiny "${grid[@]}" model.lora.rank=3 model.layout=hidden_vocab
agrees 3 tiny-policy_loss parallel.data=3 batch_size=6 policy_loss.advantages=token policy_loss.beta=0.1 ignored_fraction=0.3
agrees 2 tiny parallel.vocab=2 seq_len=0
# Ranks with other parts of the vocabulary send other numbers of messages: 1,024 and 1,025 bias entries, then
# 0 and 1 entries in all.
agrees 4 tiny "${grid[@]}" model.bias=true
agrees 4 tiny "${grid[@]}" model.bias=true model.vocab_size=1 kernel.vocab_tile=auto

# -o writes the gradients of all ranks.
"$mpiexec" -n 4 "$logitless" compare "$configs/tiny.yaml" --set parallel.vocab=2 --set parallel.data=2 --quiet \
  -o "$out/ranks.safetensors" 2>"$out/log" || fail "-o: exit status $?"
"$logitless" compare "$configs/tiny.yaml" --quiet -o "$out/one.safetensors" 2>"$out/log" || fail "-o of one process"
[ "$(stat -c %s "$out/ranks.safetensors")" = "$(stat -c %s "$out/one.safetensors")" ] || fail "-o: another size"
passed=$((passed + 1))

tiny=$configs/tiny.yaml
refuses 2 2 "parallel.vocab = 2 and parallel.data = 2 are 4 ranks, but there are 2: mpirun -n 4" \
  compare "$tiny" --set parallel.vocab=2 --set parallel.data=2
refuses 3 2 "--set parallel.data = 3: the batch has 2 sequences" \
  compare "$tiny" --set parallel.data=3 --set shift=true
refuses 2 2 "workspace_bytes = 1024 is too small" \
  compare "$tiny" --set parallel.vocab=2 --set kernel.workspace=1KiB
refuses 2 2 "--json $out/nowhere/report: cannot be written" \
  compare "$tiny" --set parallel.vocab=2 --json "$out/nowhere/report"

# Reports a difference, and a loss that is not a number.
for settings in "--set tolerances.d_hidden_rel_l2=0" "--set loss_scale=1e308 --set reduction=sum"; do
  status=0
  # several words
  "$mpiexec" -n 2 "$logitless" compare "$tiny" --set parallel.vocab=2 $settings >"$out/report" 2>"$out/log" || status=$?
  [ "$status" = 1 ] && grep -q '^one process and ranks DISAGREE$' "$out/report" || fail "$settings is not told"
  passed=$((passed + 1))
done
# If a rank is killed, the others end, whatever they are waiting for.
"$mpiexec" -n 3 "$logitless" compare "$tiny" --set parallel.vocab=3 --repeat 1000000 >"$out/report" 2>"$out/log" &
job=$!
children=()
for _ in $(seq 100); do
  read -ra children <"/proc/$job/task/$job/children" || true
  [ ${#children[@]} -ge 3 ] && break
  sleep 0.1
done
sleep 1
kill -KILL "${children[-1]}" || fail "no rank to kill"
for _ in $(seq 300); do
  kill -0 "$job" 2>/dev/null || break
  sleep 0.1
done
kill -KILL "$job" 2>/dev/null && fail "the others outlive a killed rank by 30 s"
wait "$job" && fail "a killed rank is no failure"
[ ! -s "$out/report" ] || fail "a killed rank leaves a report"
passed=$((passed + 1))
echo "$passed checks passed"
