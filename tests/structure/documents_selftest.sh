#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows that documents.sh accepts correct documents, and finds each kind of fault.
set -euo pipefail
check=$(cd "$(dirname "$0")" && pwd)/documents.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

# Stands in for the program: one command, `run`, with one option.
cat >"$tree/switchyard" <<'PROGRAM'
#!/bin/sh
case $1 in
  --help) printf 'Options:\n  --version\n\nSubcommands:\n  run    Continue a prompt\n' ;;
  *) printf 'Options:\n  --temp FLOAT\n' ;;
esac
PROGRAM
chmod +x "$tree/switchyard"

# expect CODE FILE TEXT: documents.sh ends with CODE on a tree that holds TEXT in FILE.
expect() {
  local want=$1 file=$2 text=$3 got=0
  rm -rf "$tree/root"
  mkdir -p "$tree/root/core/base" "$tree/root/docs/evidence" "$tree/root/$(dirname "$file")"
  touch "$tree/root/core/base/os.h"
  printf '# Other\n\n## A heading, twice\n' >"$tree/root/OTHER.md"
  printf 'cmd_test-cuda() {\n' >"$tree/root/dev"
  printf '%s\n' "$text" >"$tree/root/$file"
  [[ $file != docs/evidence/a.md ]] || printf '[a](a.md)\n' >"$tree/root/docs/evidence/README.md"
  "$check" "$tree/root" "$tree/switchyard" >"$tree/said" 2>&1 || got=$?
  if [[ $got != "$want" ]]; then
    echo "expected exit code $want, got $got, for $file holding: $text"
    cat "$tree/said"
    failures=$((failures + 1))
  fi
}

long=$(printf 'word %.0s' {1..30})
expect 0 docs/a.md 'See [the other](../OTHER.md#a-heading-twice), `core/base/os.h`, `os.h`, `--temp` and `switchyard run --temp 1`.'
expect 0 docs/a.md "| $long |"
expect 0 docs/a.md "$(printf '```\n%s\n$ switchyard run --temp 1 "--bogus"\n```' "$long")"
expect 0 docs/evidence/a.md "$(printf '```\nswitchyard run --bogus\n```')"
expect 0 docs/a.md '`./dev test-cuda`'
expect 1 docs/a.md 'See [the other](OTHER.md).'
expect 1 docs/a.md 'See [the other](../OTHER.md#no-heading).'
expect 1 docs/a.md '`core/base/gone.h`'
expect 1 docs/a.md '`gone.cpp`'
expect 1 docs/a.md "$long"
expect 1 docs/a.md '`--bogus`'
expect 1 docs/a.md '`switchyard run --bogus`'
expect 1 docs/a.md "$(printf '```\nswitchyard run \\\n  --bogus 1\n```')"
expect 1 docs/a.md '`switchyard bogus`'
expect 1 docs/a.md '`./dev bogus`'
expect 1 docs/evidence/a.md "$(printf '```\n@OUTPUT@\n```')"
expect 1 docs/evidence/a.md "$(printf 'x\n%.0s' {1..151})"
expect 1 docs/evidence/b.md 'It is in no list.'
((failures == 0))
