#!/usr/bin/env bash
# run.sh BUILD [PART...]: checks the Vulkan backend of a build, here or carried to another machine, on the device that comes
# first. BUILD has the shape of an installation: bin, lib/switchyard/backends, share/switchyard/models. The parts, all by default:
#   refusals     what cannot work is refused with one line (needs the tests of a build tree)
#   kit          the conformance kit, but for operations
#   ops          every kernel against reference
#   demo         the demo model: loss, tokens drawn on the device, the order of launches
#   validation   the Khronos validation layers have nothing to say (needs vulkan-validationlayers)
# Exit code 77: there is no device, and the backend says so.
set -euo pipefail

build=$(cd "$1" && pwd)
shift
parts=("$@")
((${#parts[@]} > 0)) || parts=(refusals kit ops demo validation)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
backend=vulkan
# shellcheck source=tests/gpu/checks.sh
source "$here/../gpu/checks.sh"

part_refusals() {
  echo "refusals:"
  mkdir -p "$work/no_loader" "$work/odd_loader"
  echo "not a library" >"$work/no_loader/libvulkan.so.1"
  ln -sf "$(ldconfig -p | awk '$1 == "libm.so.6" {print $NF; exit}')" "$work/odd_loader/libvulkan.so.1"
  refused "no Vulkan loader" LD_LIBRARY_PATH="$work/no_loader"
  refused "has no vkGetInstanceProcAddr" LD_LIBRARY_PATH="$work/odd_loader"
  refused "no Vulkan driver on this machine" VK_DRIVER_FILES=/nowhere.json VK_ICD_FILENAMES=/nowhere.json
  run others env VK_DRIVER_FILES=/nowhere.json VK_ICD_FILENAMES=/nowhere.json "$switchyard" run -n 1 x

  local layer=$build/tests/vulkan fault n
  [[ -f $layer/faults.json ]] || { echo "  the rest needs the tests of a build tree"; return; }
  # The device-select layer of Mesa does not survive a machine without devices.
  export VK_LAYER_PATH=$layer VK_INSTANCE_LAYERS=VK_LAYER_SWITCHYARD_faults NODEVICE_SELECT=1
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
memory=1|free; use a smaller encoding or another device
memory=70|a smaller encoding of the weights
FAULTS
  run counted env SWITCHYARD_VULKAN_FAULT=count "$switchyard" run --backend vulkan --temp 0 -n 8 Hello
  n=$(awk '$1 == "submissions:" {print $2}' "$work/counted")
  for fault in 1 $((n / 2)) $((n - 9)) $((n - 8)) $((n - 7)) $((n - 3)); do
    refused VK_ERROR_DEVICE_LOST SWITCHYARD_VULKAN_FAULT="lost=$fault"
  done
  unset VK_LAYER_PATH VK_INSTANCE_LAYERS NODEVICE_SELECT
}

part_kit() {
  echo "switchyard-plugin-check:"
  check_rules
}

part_ops() {
  echo "switchyard-plugin-check against reference:"
  run ops "${judge[@]}" --suite ops --limit-s 300
  tail -1 "$work/ops"
  run ops_kv_fp32 "${judge[@]}" --suite ops --set kv_bf16=0 --filter attention
  tail -1 "$work/ops_kv_fp32"
  # The head of a device without products of bytes, which others do not use.
  run ops_without_dot8 "${judge[@]}" --suite ops --set dot8=0 --filter lm_head
  tail -1 "$work/ops_without_dot8"
  # What `./dev support` shows of it on machines without such a device, if it is copied to docs/support.
  [[ ! -w $build ]] || "${judge[@]}" --suite ops --list --seed 1 --summary "$build/support_vulkan.json" >/dev/null
}

part_demo() {
  local forward reversed
  check_loss "${SWITCHYARD_VULKAN_WINDOWS:-4}"
  check_draws fused
  draw forward --temp 1
  draw reversed --temp 1 --set vulkan.reversed=1
  cmp -s "$work/forward" "$work/reversed" || fail "a barrier between launches is missing"
  forward=$(loss vulkan 1 | cut -d, -f 1)
  reversed=$(loss vulkan 1 --set vulkan.reversed=1 | cut -d, -f 1)
  [[ $forward == "$reversed" ]] || fail "a barrier between launches of prompts is missing"
  echo "  launches without a barrier between them, in reverse order: equal"
}

# validated NAME COMMAND...: runs it under the validation layers; what they say is appended to $work/said.
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
  local layers='' layer=$build/tests/vulkan reader fault
  mkfifo "$work/messages"
  exec 3<>"$work/messages"  # every process opens it anew, and nothing that one of them said is overwritten
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
  validated prompt "$switchyard" perplexity --backend vulkan -f "$text" --windows 1
  validated kit "${judge[@]}" --suite negotiation,abi,device,errors,copies,threads,replay,sampling,profile --limit-s 300
  echo "  $(said 'ERROR|WARN|PERF') messages in $(grep -c 'Khronos Validation Layer Active' "$work/said") processes"
  (($(said 'ERROR|WARN|PERF') == 0)) || fail "the validation layers object: $(grep -m 3 -E '\((ERROR|WARN|PERF) / ' "$work/said")"
  # Would they have spoken?
  if [[ -f $layer/faults.json ]]; then
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
