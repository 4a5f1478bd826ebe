#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Fails when a source file does not say its licence in its first five lines, or says another than its folder's.
set -eu
cd "$(dirname "$0")/.."

kernel=GPL-2.0-only
ours='MIT OR Apache-2.0'
core='GPL-2.0-only OR MIT'
wrong=0
checked=0
for file in $(git ls-files -co --exclude-standard -- core crates deploy examples ci fuzz kernel lab packaging traces | grep -E '\.(rs|c|h|S|sh|py|in|yml|yaml|go|tpl)$'); do
    [ -f "$file" ] || continue
    case $file in
        core/*) want=$core ;;
        kernel/*) want=$kernel ;;
        *) want=$ours ;;
    esac
    checked=$((checked + 1))
    if ! head -n 5 "$file" | grep -qF "SPDX-License-Identifier: $want"; then
        echo "$file: no line 'SPDX-License-Identifier: $want' among its first five; add it" >&2
        wrong=$((wrong + 1))
    fi
done
if [ "$checked" -eq 0 ]; then
    echo "no source file found: run this in a checkout" >&2
    exit 1
fi
echo "$checked files, $wrong without their licence"
[ "$wrong" -eq 0 ]
