# SPDX-License-Identifier: Apache-2.0
# To be sourced: functions that the checks of the GPU backends share. `backend` names the backend and `build` the build's folder: it
# has the shape of an installation, with bin, lib/switchyard/backends and share/switchyard/models.
# shellcheck shell=bash
# shellcheck disable=SC2154  # set by the script that sources this
switchyard=$build/bin/switchyard
backends=$build/lib/switchyard/backends
judge=("$build/bin/switchyard-plugin-check" "$backends/switchyard_$backend.so" --oracle "$backends/switchyard_reference.so")
text=$build/share/switchyard/models/prompt.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# run NAME COMMAND...: its output goes to a file, which is shown if it fails.
run() {
  local name=$1
  shift
  if ! timeout 540 "$@" >"$work/$name" 2>&1; then
    tail -40 "$work/$name" >&2
    fail "$name"
  fi
}

# refused WHAT [ENVIRONMENT...]: checks that the demo does not run with this environment, and that one line says WHAT.
refused() {
  local what=$1 code=0
  shift
  timeout 120 env "$@" "$switchyard" run --backend "$backend" --temp 0 -n 8 Hello >"$work/out" 2>"$work/err" || code=$?
  [[ $code == 1 ]] || fail "refused $*: exit code $code, $(cat "$work/err")"
  [[ $(wc -l <"$work/err") == 1 ]] || fail "refused $*: not one line: $(cat "$work/err")"
  grep -qF "$what" "$work/err" || fail "refused $*: not \"$what\" but: $(cat "$work/err")"
  (($# > 0)) || return 0
  local how=${!###*/}
  echo "  ${how#SWITCHYARD_VULKAN_FAULT=}: $(cat "$work/err")"
}

# Ends with 77 if the build has no such backend, or the backend no device. Otherwise prints the device.
need_device() {
  local reason
  [[ -f $backends/switchyard_$backend.so ]] || { echo "SKIPPED: this build has no $backend backend"; exit 77; }
  "$switchyard" backends --explain >"$work/backends"
  # A backend's lines are indented below its own; another one may well have no device.
  awk -v id="$backend" '/^[^ ]/{own = $1 == id} own' "$work/backends" >"$work/own"
  reason=$(awk '/no device:/{sub(/^.*no device: /, ""); print; exit}' "$work/own")
  if [[ -n $reason ]]; then
    # One line must give the reason, and the other backends must still work.
    refused "$reason"
    run fallback "$switchyard" run --backend reference -n 1 x
    echo "SKIPPED: $reason"
    exit 77
  fi
  grep -F -m 1 "$backend:0" "$work/own" || fail "no line of a device in: $(cat "$work/own")"
}

# The conformance kit, except for operations.
check_rules() {
  run rules "${judge[@]}" --suite negotiation,abi,device,sizes,errors,states,copies,timelines,threads,memory,guards,replay,numbers,races,sampling,range,profile,ahead
  tail -15 "$work/rules"
}

# loss BACKEND WINDOWS [FLAGS]: prints the demo model's loss on its text.
loss() {
  local of=$1 windows=$2
  shift 2
  run loss "$switchyard" perplexity --backend "$of" -f "$text" --windows "$windows" "$@"
  grep 'nats per token' "$work/loss"
}

# check_loss WINDOWS [FLAGS]: flags of the backend's own run.
check_loss() {
  local here there windows=$1
  shift
  echo "demo model, loss on its text (they may differ by 2e-3)${*:+, $*}:"
  here=$(loss "$backend" "$windows" "$@")
  there=$(loss reference "$windows")
  printf '  %-10s %s\n' "$backend" "$here" reference "$there"
  awk -v a="${here%% *}" -v b="${there%% *}" 'BEGIN {d = a - b; exit !(d < 2e-3 && d > -2e-3)}' ||
    fail "the loss differs from reference"
}

# draw NAME FLAGS...: writes the demo model's text, without the summary, to $work/NAME.
draw() {
  local name=$1
  shift
  run "$name" "$switchyard" run --backend "$backend" --seed 7 -n 64 --ignore-eos "$@" "Once upon a time"
  sed -i "/^on $backend/,\$d" "$work/$name"
  [[ -s $work/$name ]] || fail "no text: $*"
}

# check_draws WAY...: the same tokens whether the device samples (fused), offers candidates, or only logits.
check_draws() {
  local options way
  echo "demo model, tokens by way of $*, and drawn on the host:"
  for options in "--temp 0" "--temp 1" "--temp 0.8 --top-p 0.9 --top-k 40" "--temp 1 --min-p 0.05 --repeat-penalty 1.2"; do
    # shellcheck disable=SC2086  # several options
    draw logits --sampling logits $options
    for way in "$@"; do
      # shellcheck disable=SC2086
      draw "$way" --sampling "$way" $options
      cmp -s "$work/$way" "$work/logits" || fail "$options: other tokens by way of $way than on the host"
    done
    echo "  $options: equal"
  done
}

# floats FILE BYTES: the fp32 numbers after so many bytes, one a line.
floats() { od -An -v -tf4 -w4 -j"$2" "$1"; }

# logits_off FOLDER FLAGS...: how far a family's logits are from those recorded in FOLDER: of each token the largest
# difference, as a share of the largest logit of all. Prints the largest and the median, in the form 1.2e-05 3.4e-06. The
# program is $work/family.swy.
logits_off() {
  local folder=$1 ids vocab header
  shift
  ids=$(sed -n 's/^ *"ids": \[\(.*\)\].*/\1/p' "$folder/expected.json" | tr -d ,)
  vocab=$(sed -n 's/^ *"vocab": \([0-9]*\).*/\1/p' "$folder/expected.json")
  run logits "$switchyard" logits -m "$work/family.swy" --ids "$ids" --out "$work/logits.npy" "$@"
  header=$(($(od -An -tu2 -j8 -N2 "$work/logits.npy") + 10))
  paste <(floats "$work/logits.npy" "$header") <(floats "$folder/logits.f32" 0) | awk -v vocab="$vocab" '
    NF != 2 {exit 1}
    {d = $1 - $2; d = d < 0 ? -d : d; w = $2 < 0 ? -$2 : $2; if (!(d <= most)) most = d; if (w > top) top = w}
    NR % vocab == 0 {print most; most = 0}
    END {if (top <= 1) exit 1; print "top", top}' | sort -g | awk '
    $1 == "top" {top = $2; next}
    {row[n++] = $1}
    END {if (n == 0) exit 1; printf "%.1e %.1e\n", row[n - 1] / top, row[int(n / 2)] / top}'
}

# check_families FOLDER [FLAGS]: a small checkpoint of each family gives the logits that transformers computed, and needs
# no other backend. States or products that are rounded make a random model choose other experts for some tokens, so
# kernels that round are held to the median token alone, in steps of 256, 7 and 1 tokens. FLAGS: with --deterministic
# keep states in fp32, besides keys and values.
check_families() {
  local folder folders=$1 name chunk off rows
  shift
  echo "checkpoints of all families, how far logits are off as a share of the largest: the worst token with --deterministic"
  echo "(at most 1e-3); the median token without it in steps of 256, 7 and 1 tokens (at most 2e-2):"
  for folder in "$folders"/*; do
    name=$(basename "$folder")
    run convert "$switchyard" convert "$folder" --quant bf16 -o "$work/family.swy"
    printf '  %-14s' "$name"
    off=$(logits_off "$folder" --backend "$backend" --set "$backend.kv_bf16=0" "$@" --deterministic)
    awk '{printf " %s;", $1; exit !(NF == 2 && $1 <= 1e-3)}' <<<"$off" || fail "$name, worst and median: $off"
    for chunk in 256 7 1; do
      off=$(logits_off "$folder" --backend "$backend" --chunk "$chunk")
      awk '{printf " %s", $2; exit !(NF == 2 && $2 <= 2e-2)}' <<<"$off" ||
        fail "$name, --chunk $chunk, worst and median: $off"
    done
    for rows in 1 5 64; do
      run plan "$switchyard" plan -m "$work/family.swy" --backend "$backend" --rows "$rows"
      grep -E '^[^ ]+ +[a-z_]+ +[a-z]+:[0-9]+ ' "$work/plan" >"$work/kernels" || fail "$name: no kernels in the plan"
      ! grep -v " $backend:0 " "$work/kernels" >"$work/others" || fail "$name, $rows rows: $(cat "$work/others")"
    done
    echo "; all on $backend"
  done
}
