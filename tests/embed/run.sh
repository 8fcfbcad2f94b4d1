#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# docs/embed, built against an installation, prints the same text as the switchyard program.
#   run.sh BUILD
set -euo pipefail
build=$(cd "${1:?usage: run.sh BUILD}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >/dev/null
cmake -S "$work/prefix/share/switchyard/embed" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/build" >/dev/null
unset SWITCHYARD_BACKEND SWITCHYARD_BACKEND_PATH
model=$work/prefix/share/switchyard/models/demo.swy
told=$("$work/build/story" "$model" "Once upon a time")
wanted=$("$work/prefix/bin/switchyard" run -m "$model" --temp 0 -n 100 "Once upon a time" 2>/dev/null)
[[ -n $told && $told == "$wanted" ]] || {
  printf 'the program says\n%s\nand switchyard run\n%s\n' "$told" "$wanted"
  exit 1
}
# No symbol of core, or of a library that core uses, is visible.
foreign=$(nm -D --defined-only -C "$work/prefix/lib/libswitchyard.so" | awk '{print substr($0, 20)}' |
  grep -vE '^(typeinfo|vtable).*|switchyard::(Engine|TextSession|TextStream|Result|Status)|^std::|^void std::' || true)
[[ -z $foreign ]] || {
  echo "libswitchyard.so also shows:"
  head -20 <<<"$foreign"
  exit 1
}
echo "a program built against the installation tells what switchyard run tells"
