#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ab_trial.sh [--build DIR] [--trials N] [-- FLAGS...]: how often `switchyard bench --ab` is right. Compares the CPU
# backend with a copy that does the same, and with one whose every submission takes 5% longer, N times each (20), and
# prints each verdict and the tally. FLAGS go to `switchyard bench`; without any, decoding of the demo model is compared.
# Needs a machine that runs nothing else. Exit code 1 when fewer than nine tenths of either are right.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$root/build/release
trials=20
flags=(--metrics decode --context 64 --decode 64)
while (($# > 0)); do
  case $1 in
    --build) build=$2; shift 2 ;;
    --trials) trials=$2; shift 2 ;;
    --) shift; flags=("$@"); break ;;
    *) sed -n '2,5p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
done
fixtures=$build/tests/bench/fixtures

# verdict OTHER: of the base against OTHER, with the ratio and its interval.
verdict() {
  "$build/bin/switchyard" bench --ab "$fixtures/switchyard_bench_same.so" "$fixtures/$1" --no-check --format json \
    "${flags[@]}" 2>/dev/null | python3 -c '
import json, sys
for c in json.load(sys.stdin)["comparisons"]:
    print("%s;%.4f;%.4f;%.4f;%d" % (c["verdict"], c["ratio"], c["low"], c["high"], c["pairs"]))'
}

declare -A right=([same]=0 [slow]=0)
begin=$SECONDS
for ((i = 1; i <= trials; ++i)); do
  for other in same slow; do
    file=switchyard_bench_$other.so
    [[ $other == same ]] && { cp "$fixtures/$file" "$fixtures/copy_of_same.so"; file=copy_of_same.so; }
    from=$SECONDS
    IFS=';' read -r said ratio low high pairs < <(verdict "$file")
    [[ ($other == same && $said == "no difference") || ($other == slow && $said == slower) ]] && ((++right[$other]))
    printf '%3d %-5s %-14s %s (%s to %s), %s pairs, %d s\n' "$i" "$other" "$said" "$ratio" "$low" "$high" "$pairs" \
      $((SECONDS - from))
  done
done
rm -f "$fixtures/copy_of_same.so"
echo "the same build: no difference in ${right[same]} of $trials; 5% slower: seen in ${right[slow]} of $trials;" \
  "$((SECONDS - begin)) s"
((right[same] * 10 >= trials * 9 && right[slow] * 10 >= trials * 9))
