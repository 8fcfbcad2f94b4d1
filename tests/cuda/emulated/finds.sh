#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# finds.sh KIT PLUGIN ORACLE SUITE/NAME SOUND REASON: the kit must fail on a plugin with a planted fault, with one of
# a few orders of threads, and name a REASON like this; and pass on the SOUND one with all of these.
set -euo pipefail
kit=$1 plugin=$2 oracle=$3 filter=$4 sound=$5 reason=$6
found=''
work=$(mktemp)
trap 'rm -f "$work"' EXIT
judge() { "$kit" "$1" --oracle "$oracle" --suite "${filter%%/*}" --seed 1 --filter "$filter" >"$work" 2>&1; }

for seed in 1 2 3; do
  export SWITCHYARD_EMULATED_SEED=$seed
  judge "$sound" || { cat "$work"; exit 1; }
  [[ -n $found ]] && continue
  if ! judge "$plugin"; then
    found=$seed
    echo "found with seed $seed:"
    grep -E '^(emulated:|FAILED|CRASHED)' "$work" | head -3
    grep -qE -- "$reason" "$work" || { echo "FAILED: not for this reason: $reason"; exit 1; }
  fi
done
[[ -n $found ]] || { echo "FAILED: no seed shows the fault"; exit 1; }
