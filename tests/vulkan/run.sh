#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh BUILD [PART...]: checks the Vulkan backend of a build, made here or copied from another machine, on the first
# device. BUILD has the shape of an installation: bin, lib/switchyard/backends, share/switchyard/models. The parts, all by default:
#   refusals     impossible settings are refused with one line (needs the tests of a build tree)
#   kit          the conformance kit, except for operations
#   devices      other kinds of devices: with their own memory, with another clock (needs the tests of a build
#                tree)
#   cache        compiled pipelines are kept, and a file or folder that does not work is no error (needs the tests of a
#                build tree)
#   ops          every kernel against reference; with SWITCHYARD_VULKAN_ONE_IN=n one case in n
#   demo         the demo model: loss, tokens sampled on the device, the order of launches
#   validation   the Khronos validation layers report nothing (needs vulkan-validationlayers)
# Exit code 77: there is no device, and the backend says so.
set -euo pipefail

build=$(cd "$1" && pwd)
shift
parts=("$@")
((${#parts[@]} > 0)) || parts=(refusals kit devices cache ops demo validation)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
backend=vulkan
# shellcheck source=tests/gpu/checks.sh
source "$here/../gpu/checks.sh"

layer=$build/tests/vulkan
# Whether this is a build tree. If a layer's library is missing, the loader skips it silently.
has_faults() {
  [[ -f $layer/faults.json ]] || return 1
  [[ -f $layer/libswitchyard_vulkan_faults.so ]] || fail "the tests of $build are not built; ./dev test builds them"
}

# From here to faults_off, SWITCHYARD_VULKAN_FAULT makes the driver fail.
faults_on() {
  has_faults || { echo "  the rest needs the tests of a build tree"; return 1; }
  # The device-select layer of Mesa does not survive a machine without devices.
  export VK_LAYER_PATH=$layer VK_INSTANCE_LAYERS=VK_LAYER_SWITCHYARD_faults NODEVICE_SELECT=1
}
faults_off() { unset VK_LAYER_PATH VK_INSTANCE_LAYERS NODEVICE_SELECT; }

part_refusals() {
  echo "refusals:"
  mkdir -p "$work/no_loader" "$work/odd_loader"
  echo "not a library" >"$work/no_loader/libvulkan.so.1"
  ln -sf "$(ldconfig -p | awk '$1 == "libm.so.6" {print $NF; exit}')" "$work/odd_loader/libvulkan.so.1"
  refused "no Vulkan loader" LD_LIBRARY_PATH="$work/no_loader"
  refused "has no vkGetInstanceProcAddr" LD_LIBRARY_PATH="$work/odd_loader"
  refused "no Vulkan driver on this machine" VK_DRIVER_FILES=/nowhere.json VK_ICD_FILENAMES=/nowhere.json
  run others env VK_DRIVER_FILES=/nowhere.json VK_ICD_FILENAMES=/nowhere.json "$switchyard" run -n 1 x

  local fault n
  faults_on || return 0
  while IFS='|' read -r fault what; do
    refused "$what" SWITCHYARD_VULKAN_FAULT="$fault"
  done <<'FAULTS'
no-instance|creating a Vulkan instance: VK_ERROR_INITIALIZATION_FAILED
no-devices|no Vulkan driver on this machine has a device
old|has Vulkan 1.1; 1.2 is needed
no-compute|has no queue for compute
no-addresses|has no buffer device addresses
no-timelines|has no timeline semaphores
no-int64|has no 64-bit integers in shaders
little-shared|has 16384 bytes of shared memory
no-device|opening the device: VK_ERROR_INITIALIZATION_FAILED
memory=1|17.5 MiB are needed
memory=18|MiB are needed, more than is left of the device's 18.0; a smaller encoding of the weights
memory=30|for state layers
FAULTS
  # Two tokens fewer than the count that is refused, since the number of submissions depends on timing.
  run counted env SWITCHYARD_VULKAN_FAULT=count "$switchyard" run --backend vulkan --temp 0 -n 6 Hello
  n=$(awk '$1 == "submissions:" {print $2}' "$work/counted")
  for fault in 1 $((n / 2)) $((n - 7)) $((n - 6)) $((n - 5)) $((n - 1)) $n; do
    refused VK_ERROR_DEVICE_LOST SWITCHYARD_VULKAN_FAULT="lost=$fault"
  done
  # More tokens must not allocate more on the device.
  run longer env SWITCHYARD_VULKAN_FAULT=count "$switchyard" run --backend vulkan --temp 0 --ignore-eos -n 40 Hello
  [[ $(grep '^made:' "$work/longer") == "$(grep '^made:' "$work/counted")" ]] ||
    fail "6 tokens: $(grep '^made:' "$work/counted"), 40: $(grep '^made:' "$work/longer")"
  faults_off
}

part_kit() {
  echo "switchyard-plugin-check:"
  check_rules
}

# judged_as FAULT SUITES: the kit on a device that the layer changes.
judged_as() {
  run "$1" env SWITCHYARD_VULKAN_FAULT="$1" "${judge[@]}" --suite "$2"
  echo "  $1: $(tail -1 "$work/$1")"
}

part_devices() {
  echo "switchyard-plugin-check on other devices:"
  faults_on || return 0
  judged_as discrete copies,timelines,threads,replay,profile  # through staging memory; a driver on the processor would copy directly
  judged_as no-calibration profile
  judged_as ticks=30 profile  # they wrap around every 1.1 s
  judged_as no-import copies
  run imported "$switchyard" run --backend vulkan --temp 0 -n 8 --ignore-eos Hello
  run copied env SWITCHYARD_VULKAN_FAULT=no-import "$switchyard" run --backend vulkan --temp 0 -n 8 --ignore-eos Hello
  [[ $(head -1 "$work/imported") == "$(head -1 "$work/copied")" ]] || fail "weights that are copied give other tokens"
  judged_as inexact device,threads,sampling  # then it offers only logits, and no sampling kernel
  run inexact_demo env SWITCHYARD_VULKAN_FAULT=inexact "$switchyard" run --backend vulkan --temp 0 -n 8 Hello
  grep -q 'sampling: logits (vulkan:0 offers no sampler' "$work/inexact_demo" ||
    fail "a device whose arithmetic is wrong: $(cat "$work/inexact_demo")"
  faults_off
}

# handed BYTES FOLDER FLAGS...: runs the demo with FOLDER for caches; checks how many bytes of pipelines the driver gets.
handed() {
  local wanted=$1 folder=$2
  shift 2
  # The driver's own cache stays where it is.
  run cached env SWITCHYARD_VULKAN_FAULT=count XDG_CACHE_HOME="$folder" \
    MESA_SHADER_CACHE_DIR="${MESA_SHADER_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}}" \
    "$switchyard" run --backend vulkan --temp 0 -n 1 --ignore-eos "$@" Hello
  local got
  got=$(awk '$1 == "pipelines:" {print $2; exit}' "$work/cached")
  [[ $wanted == any && $got -gt 0 || $got == "$wanted" ]] || fail "$got bytes of pipelines are handed over, not $wanted"
  [[ $(wc -l <"$work/cached") == 6 ]] || fail "more is said than should be: $(cat "$work/cached")"
}

part_cache() {
  echo "compiled pipelines from the process before:"
  faults_on || return 0
  local folder=$work/caches damage file
  mkdir -p "$folder"
  handed 0 "$folder" --set vulkan.pipeline_cache=0
  [[ ! -e $folder/switchyard/vulkan ]] || fail "pipelines are kept though nobody wants it"
  handed 0 "$folder"
  handed any "$folder"
  handed 0 "$folder" --set vulkan.pipeline_cache=0
  echo "  kept, and handed over, unless they are switched off"
  file=$(echo "$folder"/switchyard/vulkan/pipelines-*)
  [[ -f $file && $(find "$folder/switchyard/vulkan" -type f | wc -l) == 1 ]] || fail "not one file: $file"
  cp "$file" "$work/whole"
  for damage in "truncate -s -1" "truncate -s 50" "truncate -s 0" "truncate -s +1" "flip 3" "flip 10" "flip 45" "flip 100" \
    "flip $(($(stat -c %s "$file") - 1))"; do
    # shellcheck disable=SC2086  # a command and its arguments
    $damage "$file"
    handed 0 "$folder"
    cmp -s "$file" "$work/whole" || fail "$damage: the file is not written anew"
  done
  rm "$file"
  mkdir "$file"
  handed 0 "$folder"
  [[ $(find "$folder/switchyard/vulkan" -type f | wc -l) == 0 ]] || fail "files are left where none can be kept"
  handed 0 "$work/whole"  # no folder at all
  handed 0 /proc
  echo "  damaged, foreign and impossible files are no error"
  faults_off
}

# flip AT FILE: changes the byte at AT.
flip() {
  local byte
  byte=$(od -An -tu1 -j "$1" -N 1 "$2")
  printf %b "\\x$(printf %x $((byte ^ 85)))" | dd of="$2" bs=1 seek="$1" conv=notrunc status=none
}

part_ops() {
  echo "switchyard-plugin-check against reference:"
  run ops "${judge[@]}" --suite ops --one-in "${SWITCHYARD_VULKAN_ONE_IN:-1}" --limit-s 300
  tail -1 "$work/ops"
  run ops_kv_fp32 "${judge[@]}" --suite ops --set kv_bf16=0 --filter attention
  tail -1 "$work/ops_kv_fp32"
  # The head of a device without products of bytes, which others do not use.
  run ops_without_dot8 "${judge[@]}" --suite ops --set dot8=0 --filter lm_head
  tail -1 "$work/ops_without_dot8"
  # Workgroups that wait for each other: lavapipe runs as many at once as it has threads.
  run ops_meeting env LP_NUM_THREADS=4 "${judge[@]}" --suite ops --set resident=2 --filter moe_add.resident/moe_add.i4.g64
  tail -1 "$work/ops_meeting"
  # The record for `./dev support` on machines without such a device, once it is copied to docs/support.
  [[ ! -w $build ]] || "${judge[@]}" --suite ops --list --seed 1 --claims "$build/support_vulkan.json" >/dev/null
}

part_demo() {
  local forward reversed
  check_loss "${SWITCHYARD_VULKAN_WINDOWS:-4}"
  check_draws fused candidates
  draw forward --temp 1
  draw reversed --temp 1 --set vulkan.reversed=1
  cmp -s "$work/forward" "$work/reversed" || fail "a barrier between launches is missing"
  export LP_NUM_THREADS=4
  draw forward --temp 0
  draw meeting --temp 0 --set vulkan.resident=2
  cmp -s "$work/forward" "$work/meeting" || fail "layers in one launch draw other tokens"
  draw meeting_reversed --temp 0 --set vulkan.resident=2 --set vulkan.reversed=1
  cmp -s "$work/meeting" "$work/meeting_reversed" || fail "a barrier between launches is missing where layers are one"
  unset LP_NUM_THREADS
  echo "  layers in one launch: equal"
  forward=$(loss vulkan 1 | cut -d, -f 1)
  reversed=$(loss vulkan 1 --set vulkan.reversed=1 | cut -d, -f 1)
  [[ $forward == "$reversed" ]] || fail "a barrier between launches of prompts is missing"
  echo "  launches without a barrier between them, in reverse order: equal"
}

# validated NAME COMMAND...: runs it under the validation layers; their messages are appended to $work/said.
validated() {
  run "$1" env VK_INSTANCE_LAYERS="${layers:-VK_LAYER_KHRONOS_validation}" VK_LAYER_SETTINGS_PATH="$work/vk_layer_settings.txt" \
    "${@:2}"
}

# said KINDS: how many messages of these kinds there are, once all have arrived.
said() {
  sleep 0.3
  grep -cE "\(($1) / " "$work/said" || true
}

part_validation() {
  echo "validation layers:"
  local layers='' reader fault
  mkfifo "$work/messages"
  exec 3<>"$work/messages"  # every process opens it again, and no message is overwritten
  cat <&3 >"$work/said" &
  reader=$!
  cat >"$work/vk_layer_settings.txt" <<SETTINGS
khronos_validation.enables = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT
khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG
khronos_validation.report_flags = error,warn,perf,info
khronos_validation.log_filename = $work/messages
SETTINGS
  validated fused "$switchyard" run --backend vulkan --seed 7 -n 16 --ignore-eos --sampling fused --temp 1 --top-p 0.9 Once
  if (($(said INFO) == 0)); then
    kill "$reader"
    [[ -z ${CI:-} ]] || fail "the validation layers are not installed"
    echo "  SKIPPED: they are not installed (vulkan-validationlayers)"
    return
  fi
  validated logits "$switchyard" run --backend vulkan --seed 7 -n 8 --ignore-eos --sampling logits --temp 1 Once
  validated candidates "$switchyard" run --backend vulkan --seed 7 -n 8 --ignore-eos --sampling candidates --temp 1 --top-k 40 Once
  validated meeting env LP_NUM_THREADS=4 "$switchyard" run --backend vulkan --set vulkan.resident=2 --temp 0 -n 4 --ignore-eos Once
  validated prompt "$switchyard" perplexity --backend vulkan -f "$text" --windows 1
  validated kit "${judge[@]}" --suite negotiation,abi,device,sizes,errors,states,copies,timelines,threads,replay,sampling,profile --limit-s 300
  echo "  $(said 'ERROR|WARN|PERF') messages in $(grep -c 'Khronos Validation Layer Active' "$work/said") processes"
  (($(said 'ERROR|WARN|PERF') == 0)) || fail "the validation layers object: $(grep -m 3 -E '\((ERROR|WARN|PERF) / ' "$work/said")"
  # Do the layers report deliberate faults?
  if has_faults; then
    layers=VK_LAYER_SWITCHYARD_faults:VK_LAYER_KHRONOS_validation
    export VK_LAYER_PATH=$layer:/usr/share/vulkan/explicit_layer.d:/etc/vulkan/explicit_layer.d
    for fault in invalid hazard; do
      : >"$work/said"
      SWITCHYARD_VULKAN_FAULT=$fault validated "$fault" "$switchyard" run --backend vulkan --temp 0 -n 1 Once
      (($(said ERROR) > 0)) || fail "the validation layers do not see what is wrong on purpose: $fault"
      echo "  $fault: $(said ERROR) messages, as it should be"
    done
    unset VK_LAYER_PATH
  fi
  kill "$reader"
  exec 3>&-
}

need_device
for part in "${parts[@]}"; do "part_$part"; done
echo "vulkan: all passed"
