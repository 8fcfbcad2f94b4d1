#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh KIT PLUGIN ORACLE [PART...]: the conformance kit on the emulated CUDA backend, with another order of threads
# and copies for each filter. PARTs: boxes, few, moe, bytes, delta, attention, ranges, memory, rest; ampere and
# blackwell, on an emulated card of that kind; without one, all. A plugin whose addresses are checked needs
# LD_PRELOAD=$(g++ -print-file-name=libasan.so) and ASAN_OPTIONS=detect_leaks=0.
set -euo pipefail

kit=$1 plugin=$2 oracle=$3
shift 3
(($# > 0)) || set -- boxes few moe bytes delta attention ranges memory rest ampere blackwell
seed=${SWITCHYARD_EMULATED_SEED:-1}

# judge SUITE/NAME [OPTION...]: at least one of these checks must pass, and none fail.
judge() {
  local filter=$1 output options
  shift
  options=(--oracle "$oracle" --suite "${filter%%/*}" --seed 1 --limit-s 240 --filter "$filter" "$@")
  export SWITCHYARD_EMULATED_SEED=$((seed++))
  if ! output=$("$kit" "$plugin" "${options[@]}" 2>&1); then
    grep -v ': unsupported' <<<"$output" | tail -40 >&2
    echo "FAILED: $filter, seed $SWITCHYARD_EMULATED_SEED" >&2
    exit 1
  fi
  grep -q 'all passed' <<<"$output" || { echo "FAILED: $filter: nothing was checked" >&2; exit 1; }
  echo "$filter $*: $(tail -1 <<<"$output")"
}

# refuse OPTION VALUE TEXT: with this option nothing runs, and the kit says why.
refuse() {
  local output
  if output=$("$kit" "$plugin" --oracle "$oracle" --suite ops "$1" "$2" 2>&1) || ! grep -q "$3" <<<"$output"; then
    echo "FAILED: $1 $2 is not refused with '$3', but says: $output" >&2
    exit 1
  fi
}

for part; do
  export SWITCHYARD_EMULATED_CAPABILITY=9.0
  case $part in
    boxes) judge ops/linear.boxes/; judge ops/linear_add.boxes/; judge ops/rms_norm_linear.boxes/
      judge ops/linear.strips/ ;;
    few) judge ops/linear.few/; judge ops/rms_norm_linear.few/
      SWITCHYARD_EMULATED_PROCESSORS=4 judge ops/lm_head_sample.few/ ;;
    moe) judge ops/moe.boxes/; judge ops/moe_add.boxes/moe_add.i4.g64.rows4 ;;
    bytes) judge ops/linear.bytes/; judge ops/moe.bytes/ --one-in 3 ;;
    delta) judge states/; judge ops/gated_delta.step/; judge ops/gated_delta.batch/; judge ops/gated_delta.chunks/
      SWITCHYARD_EMULATED_PROCESSORS=4 judge ops/gated_delta.batch/  # so that a multiprocessor has many blocks
      judge ops/gated_delta.recurrent/gated_delta.4k8v.dims32_32.kernel4.pending
      judge ops/gated_delta. --one-in 6 --set delta_i16=0
      judge range/delta --one-in 4 --set delta_i16=0 ;;
    attention) judge ops/attention.decode/; judge ops/attention.wgmma/ --one-in 8
      for kernel in attention.{wgmma,prompt,tiles,split} kv_append; do
        judge ops/$kernel --one-in 16 --set kv_i8=1
      done
      judge ops/attention.decode/ --set kv_i8=1
      judge ops/attention.decode/attention.4h1kv.dim256 --slow --set kv_i8=1
      for set in kv_i8=0 kv_i8=1; do
        SWITCHYARD_EMULATED_PROCESSORS=132 judge ops/attention.decode/attention.16h2kv.dim256 --slow --set $set
      done ;;
    ranges) judge range/norm3_moe_add; judge range/norm4_rows; judge range/norms; judge range/norm_prompt
      judge range/delta; judge range/first_delta; judge range/linear; judge range/attention
      SWITCHYARD_EMULATED_PROCESSORS=132 judge range/attention3_far
      SWITCHYARD_EMULATED_PROCESSORS=132 judge range/attention_far_layer --set kv_i8=1
      judge range/attention4_groups_layer --set kv_i8=1
      judge range/embedding; judge range/wide_embedding; judge timelines/; judge ahead/ ;;
    memory) for name in attention cast linear moe rms; do judge "memory/$name"; done ;;
    rest) judge ops/ --one-in 300 ;;
    ampere) SWITCHYARD_EMULATED_CAPABILITY=8.0
      judge ops/linear.boxes/; judge ops/rms_norm_linear.boxes/; judge range/delta; judge range/norm
      judge ops/experts.bytes/
      SWITCHYARD_EMULATED_PROCESSORS=3 judge ops/linear.bytes/  # so that a block gets several tiles
      judge ops/ --one-in 300
      SWITCHYARD_EMULATED_CAPABILITY=9.0
      judge ops/rms_norm_linear.boxes/ --set card=8.9
      refuse --set card=7.5 "card is one of auto, 8.0"
      SWITCHYARD_EMULATED_CAPABILITY=8.6  # less shared memory
      judge ops/moe.boxes/; judge ops/linear_add.boxes/; judge ops/moe.bytes/ --one-in 3 ;;
    blackwell) SWITCHYARD_EMULATED_CAPABILITY=12.0  # the copy engine, but no more memory than 8.6
      judge ops/linear_add.boxes/; judge ops/linear.strips/; judge ops/linear.few/; judge ops/gated_delta.step/
      judge ops/rms_norm_linear.bytes/
      judge range/norm; judge range/delta; judge range/first_delta; judge ops/ --one-in 300 ;;
    *) echo "run.sh: there is no part $part" >&2; exit 2 ;;
  esac
done
