#!/usr/bin/env bash
# run.sh BUILD: checks the CUDA backend of a build, here or carried to another machine. BUILD has the shape of an
# installation: bin, lib/switchyard/backends, share/switchyard/models. Exit code 77: there is no GPU, and the backend says so.
set -euo pipefail

build=$(cd "$1" && pwd)
switchyard=$build/bin/switchyard
backends=$build/lib/switchyard/backends
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

[[ -f $backends/switchyard_cuda.so ]] || { echo "SKIPPED: this build has no CUDA backend"; exit 77; }

"$switchyard" backends --explain >"$work/backends"
reason=$(awk '/^cuda /{seen = 1} seen && /no device:/{sub(/^ *no device: /, ""); print; exit}' "$work/backends")
if [[ -n $reason ]]; then
  # Declining must be polite: one line with the reason, and the other backends go on.
  if "$switchyard" run --backend cuda -n 1 x >"$work/out" 2>"$work/err"; then fail "it ran without a device"; fi
  [[ $(wc -l <"$work/err") == 1 ]] || fail "the refusal is not one line: $(cat "$work/err")"
  run fallback "$switchyard" run --backend reference -n 1 x
  echo "SKIPPED: $reason"
  exit 77
fi

echo "switchyard-plugin-check against reference:"
judge=("$build/bin/switchyard-plugin-check" "$backends/switchyard_cuda.so" --oracle "$backends/switchyard_reference.so")
run ops "${judge[@]}" --suite ops
tail -1 "$work/ops"
run ops_kv_fp32 "${judge[@]}" --suite ops --set kv_bf16=0 --filter attention
tail -1 "$work/ops_kv_fp32"
run rules "${judge[@]}" --suite negotiation,abi,device,errors,copies,threads,memory,replay,numbers,races,sampling,range,profile
tail -15 "$work/rules"
# What `./dev support` shows of it on machines without a GPU, if it is copied to docs/support.
"${judge[@]}" --suite ops --list --seed 1 --summary "$build/support_cuda.json" >/dev/null

echo "demo model, loss on its text (they may differ by 2e-3):"
text=$build/share/switchyard/models/prompt.txt
for backend in cuda reference; do
  run "loss_$backend" "$switchyard" perplexity --backend "$backend" -f "$text" --windows 4
  grep 'nats per token' "$work/loss_$backend"
done
paste <(grep -o '^[0-9.]* nats' "$work/loss_cuda") <(grep -o '^[0-9.]* nats' "$work/loss_reference") |
  awk '{d = $1 - $3; exit !(d < 2e-3 && d > -2e-3)}' || fail "the loss differs from reference"

echo "demo model, tokens drawn on the device and on the host:"
for options in "--temp 0" "--temp 1" "--temp 0.8 --top-p 0.9 --top-k 40" "--temp 1 --min-p 0.05 --repeat-penalty 1.2"; do
  # shellcheck disable=SC2086  # several options
  for where in fused logits; do
    run "$where" "$switchyard" run --backend cuda --seed 7 -n 64 --ignore-eos --sampling "$where" $options "Once upon a time"
    sed -i '/^on cuda/,$d' "$work/$where"
  done
  cmp -s "$work/fused" "$work/logits" || fail "$options: other tokens on the device than on the host"
  echo "  $options: equal"
done
echo "cuda: all passed"
