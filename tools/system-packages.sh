#!/usr/bin/env bash
# The three programs that no Python package brings: bubblewrap (the jail), g++ (kernels on the CPU) and chromium (tests
# of the pages). Installs what is missing where it may; otherwise names it and goes on.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tools/lib.sh
. "$here/lib.sh"
refused="$here/../.tools/apt-refused"

missing=()
command -v bwrap >/dev/null 2>&1 || missing+=(bubblewrap)
command -v g++ >/dev/null 2>&1 || missing+=(g++)
command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 || missing+=(chromium)
[ "${#missing[@]}" -gt 0 ] || exit 0

# What apt-get could not install once is not tried again on every run: it may take minutes to fail.
if can_apt && [ "$(cat "$refused" 2>/dev/null || true)" != "${missing[*]}" ]; then
    if apt_install "${missing[@]}"; then exit 0; fi
    mkdir -p "$(dirname "$refused")"
    printf '%s' "${missing[*]}" >"$refused"
fi
for package in "${missing[@]}"; do
    case $package in
        bubblewrap) why="without it candidates can be judged only with --isolation none" ;;
        g++) why="without it C++ kernels do not build, and the demo cannot run" ;;
        chromium) why="without it the browser tests cannot run" ;;
    esac
    say "missing: $package ($why). Install it with your system's package manager."
done
if [ -e "$refused" ]; then say "to let set-up try apt-get again: rm .tools/apt-refused"; fi
