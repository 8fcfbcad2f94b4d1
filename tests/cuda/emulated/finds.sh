#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# finds.sh KIT PLUGIN ORACLE FILTER SOUND: the kit must fail on a plugin with a planted fault, with one of a few seeds; and
# pass on the SOUND one with all of these.
set -euo pipefail
kit=$1 plugin=$2 oracle=$3 filter=$4 sound=$5
found=''
work=$(mktemp)
trap 'rm -f "$work"' EXIT
for seed in 1 2 3; do
  export SWITCHYARD_EMULATED_SEED=$seed
  "$kit" "$sound" --oracle "$oracle" --suite ops --filter "$filter" >"$work" 2>&1 || { cat "$work"; exit 1; }
  [[ -n $found ]] && continue
  if ! output=$("$kit" "$plugin" --oracle "$oracle" --suite ops --filter "$filter" 2>&1); then
    found=$seed
    echo "found with seed $seed:"
    grep -E '^(emulated:|FAILED|CRASHED|HUNG)' <<<"$output" | head -3
    if grep -q "the judge's pipe" <<<"$output"; then echo "FAILED: the kit takes its own line for the plugin's"; exit 1; fi
  fi
done
[[ -n $found ]] || { echo "FAILED: no seed shows the fault"; exit 1; }
