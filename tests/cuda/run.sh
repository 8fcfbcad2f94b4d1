#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh BUILD: checks the CUDA backend of a build, made here or copied from another machine. BUILD has the shape of an
# installation: bin, lib/switchyard/backends, share/switchyard/models. Exit code 77: there is no GPU, and the backend says so.
set -euo pipefail

backend=cuda
build=$(cd "$1" && pwd)
# shellcheck source=tests/gpu/checks.sh
source "$(dirname "${BASH_SOURCE[0]}")/../gpu/checks.sh"

need_device
echo "switchyard-plugin-check against reference:"
run ops "${judge[@]}" --suite ops
tail -1 "$work/ops"
for kernel in split rows; do  # those that support keys and values in fp32
  run "ops_kv_fp32_$kernel" "${judge[@]}" --suite ops --set kv_bf16=0 --filter "ops/attention.$kernel/"
  tail -1 "$work/ops_kv_fp32_$kernel"
done
for kernel in split rows decode wgmma prompt tiles; do
  run "ops_kv_i8_$kernel" "${judge[@]}" --suite ops --set kv_i8=1 --filter "ops/attention.$kernel/"
  tail -1 "$work/ops_kv_i8_$kernel"
done
for op in attend kv_append; do
  run "ops_kv_i8_$op" "${judge[@]}" --suite ops --set kv_i8=1 --filter "ops/$op."
  tail -1 "$work/ops_kv_i8_$op"
done
for op in gated_delta delta_rule; do
  run "ops_delta_fp32_$op" "${judge[@]}" --suite ops --set delta_i16=0 --filter "ops/$op."
  tail -1 "$work/ops_delta_fp32_$op"
done
for set in delta_i16=0 kv_i8=1; do
  run "range_$set" "${judge[@]}" --suite range --set "$set"
  tail -1 "$work/range_$set"
done
check_rules
# The record for `./dev support` on machines without a GPU, once it is copied to docs/support.
"${judge[@]}" --suite ops --list --seed 1 --claims "$build/support_cuda.json" >/dev/null
check_families "$(dirname "${BASH_SOURCE[0]}")/../data/tiny/families" --set cuda.delta_i16=0
check_loss 16  # of 4 windows rounding alone makes up to 2.5e-3
check_loss 16 --set cuda.kv_i8=1
check_draws fused
echo "cuda: all passed"
