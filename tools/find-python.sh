#!/usr/bin/env bash
# Print the path of a Python that the project can use: 3.12 or newer, with its C headers (kernels are built
# against them). Prints nothing when there is none. A name on PATH proves nothing (pyenv's shims exist and
# fail), so each one is run.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tools/lib.sh
. "$here/lib.sh"

# The interpreter behind a name, if it runs and is new enough.
resolve() {
    "$1" -c 'import sys; sys.version_info >= (3, 12) or sys.exit(1); print(sys.executable)' 2>/dev/null </dev/null
}

has_headers() {
    "$1" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))'
}

candidates() {
    if [ -n "${PYTHON:-}" ]; then printf '%s\n' "$PYTHON"; fi
    printf '%s\n' python3.13 python3.12 python3.14 python3
    local versions="${PYENV_ROOT:-${HOME:-/root}/.pyenv}/versions"
    # pyenv that is installed but not activated; newest first.
    if [ -d "$versions" ]; then find "$versions" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort -rV | sed "s|.*|$versions/&/bin/python3|"; fi
}

headless=""
while IFS= read -r name; do
    if ! path=$(resolve "$name"); then
        if [ "$name" = "${PYTHON:-}" ]; then say "PYTHON=$name does not run or is older than 3.12: looking further"; fi
        continue
    fi
    if has_headers "$path"; then
        printf '%s\n' "$path"
        exit 0
    fi
    say "$path has no Python.h: looking further"
    headless=${headless:-$path}
done < <(candidates)

[ -n "$headless" ] || exit 0
package="python$("$headless" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-dev"
if can_apt && apt_install "$package" && has_headers "$headless"; then
    printf '%s\n' "$headless"
    exit 0
fi
say "using $headless, which has no Python.h: C++ and Triton kernels will not build until $package is installed"
printf '%s\n' "$headless"
