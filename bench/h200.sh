#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# h200.sh [--part NAME] [--build DIR] [--quant ENCODING]: measures the CUDA backend with a full-size synthetic
# Qwen3.5-35B-A3B, from a portable build that was carried to the machine. Each part takes less than nine minutes:
#   check    tests/cuda/run.sh: only a backend that is right is worth measuring
#   decode   one session at several depths, and the kernels of a step
#   prefill  prompts of several lengths, long ones in chunks of 8,192 and of 2,048 rows
#   batch    many sessions decoding, and how long they wait while a long prompt is read
#   ops      every operation of a step alone: time, bytes, rate
# Without --part all of them, one after the other.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/portable
quant=i4
parts=(check decode prefill batch ops)
while (($# > 0)); do
  case $1 in
    --part) parts=("$2") ;;
    --build) build=$2 ;;
    --quant) quant=$2 ;;
    *) sed -n '2,9p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
  shift 2
done
switchyard=$build/bin/switchyard
model=${TMPDIR:-/tmp}/switchyard-35b-$quant.swy

# The weights are random and all distinct; the file stays for the parts that follow.
make_model() {
  [[ -f $model ]] && return
  "$switchyard" synth --config qwen3.5-35b-a3b --quant "$quant" --group 64 --no-histogram -o "$model"
}

part_check() { "$root/tests/cuda/run.sh" "$build"; }
part_decode() {
  make_model
  "$switchyard" bench -m "$model" --backend cuda --random --prefill 64 --context 0 1024 8192 --decode 256 --repeat 5 --ctx 9000
  "$switchyard" bench -m "$model" --backend cuda --random --prefill 64 --context 32768 --decode 128 --repeat 5 --ctx 33280
}
part_prefill() {
  make_model
  "$switchyard" bench -m "$model" --backend cuda --random --prefill 512 1341 --decode 0 --repeat 5 --ctx 2048
  "$switchyard" bench -m "$model" --backend cuda --random --prefill 8192 32768 --decode 0 --repeat 3 --ctx 33024
  "$switchyard" bench -m "$model" --backend cuda --random --prefill 8192 32768 --decode 0 --repeat 3 --ctx 33024 --chunk 2048
}
part_batch() {
  make_model
  "$switchyard" bench -m "$model" --backend cuda --random --metrics decode --context 1024 --decode 128 --repeat 3 --ctx 2048 \
    --sampling fused --temp 0 --batch 1,8,32,64
  "$switchyard" bench arrival -m "$model" --backend cuda --random --temp 0 --sessions 16 --context 1024 --prompt 2000
  "$switchyard" bench arrival -m "$model" --backend cuda --random --temp 0 --sessions 16 --context 1024 --prompt 2000 --prompt-rows 0
}
part_ops() {
  make_model
  "$switchyard" bench ops -m "$model" --backend cuda --rows 1,4,16,64,512 --seconds 0.05
}

nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm --format=csv,noheader
for part in "${parts[@]}"; do
  echo "== $part"
  "part_$part"
done
