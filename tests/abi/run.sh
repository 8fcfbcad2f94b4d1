#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh SWITCHYARD PLUGIN ID KERNELS...: the demo model runs with a plugin of some version of the headers, which uses
# these of its kernels, and gives the same text.
set -euo pipefail
switchyard=$1 plugin=$2 id=$3
shift 3

text() {
  "$switchyard" run -n 24 --temp 0 --threads 2 "$@" "Once upon a time"
}
plan=$("$switchyard" plan --backend-lib "$plugin" --backend "$id,reference" --explain)
for kernel in "$@"; do
  [[ $plan == *"$id:0 $kernel "* ]] || {
    echo "the plugin's kernel $kernel is not used: $plan"
    exit 1
  }
done
with=$(text --backend-lib "$plugin" --backend "$id,reference" --validate)
without=$(text --backend reference)
[[ -n $with && $with == "$without" ]] || {
  printf 'with the plugin:    %s\nwithout the plugin: %s\n' "$with" "$without"
  exit 1
}
echo "the same text"
