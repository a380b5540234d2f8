#!/usr/bin/env bash
# Compares the losses of four MPI ranks with one process, step by step.
#   split_test.sh vocab|data TRAIN_LM MPIEXEC ARGUMENTS
set -euo pipefail
split=$1 train_lm=$2 mpiexec=$3
shift 3
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$train_lm" "$@" --metrics "$out/one" >"$out/log" || { cat "$out/log"; exit 1; }
"$mpiexec" -n 4 "$train_lm" "$@" --split "$split" --metrics "$out/four" >"$out/log" 2>&1 || { cat "$out/log"; exit 1; }
losses() { jq -r 'select(.name == "loss") | .value' "$1"; }
paste <(losses "$out/one") <(losses "$out/four") | awk '
  { d = $1 > $2 ? $1 - $2 : $2 - $1; if (d > most) most = d; if (NF == 2) ++steps }
  END { printf "%d steps, the losses differ by at most %.1e\n", steps, most; exit !(steps > 0 && NR == steps && most < 1e-5) }'
