#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh SWITCHYARD PLUGIN: the demo model runs with a plugin of some version of the headers, and gives the same text.
set -euo pipefail
switchyard=$1 plugin=$2

text() {
  "$switchyard" run -n 24 --temp 0 --threads 2 "$@" "Once upon a time"
}
plan=$("$switchyard" plan --backend-lib "$plugin" --backend abi,reference --explain)
[[ $plan == *add.abi* && $plan == *rms_norm.abi* ]] || {
  echo "the plugin's kernels are not used: $plan"
  exit 1
}
with=$(text --backend-lib "$plugin" --backend abi,reference --validate)
without=$(text --backend reference)
[[ -n $with && $with == "$without" ]] || {
  printf 'with the plugin:    %s\nwithout the plugin: %s\n' "$with" "$without"
  exit 1
}
echo "the same text"
