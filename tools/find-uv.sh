#!/usr/bin/env bash
# Print the path of a working uv; when there is none, install it into .tools/uv, a small environment of its own
# (recent Debian and Ubuntu refuse pip outside one).
#   find-uv.sh [PYTHON]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tools/lib.sh
. "$here/lib.sh"
home="$here/../.tools/uv"

for uv in uv "$home/bin/uv"; do
    if "$uv" --version >/dev/null 2>&1 </dev/null; then
        command -v "$uv"
        exit 0
    fi
done

# Any Python 3 will do to install uv itself; uv then finds or fetches the one that the project needs.
python=""
for name in "${1:-}" python3 /usr/bin/python3; do
    if [ -n "$name" ] && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 8))' >/dev/null 2>&1 </dev/null; then
        python=$name
        break
    fi
done
if [ -z "$python" ]; then
    can_apt && apt_install python3 python3-venv || die "no Python 3 was found: install Python 3.12 or newer, or uv, and run this again"
    python=/usr/bin/python3
fi

make_environment() { rm -rf "$home" && "$python" -m venv "$home" >/dev/null 2>&1 </dev/null; }
say "installing uv into .tools/uv"
mkdir -p "$home"
if ! make_environment; then
    package="python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
    { can_apt && { apt_install "$package" || apt_install python3-venv; } && make_environment; } ||
        die "$python cannot make a virtual environment: install $package (or uv) and run this again"
fi
"$home/bin/python" -m pip install -qq --disable-pip-version-check uv >&2 </dev/null ||
    die "pip could not install uv (its message is above): install uv yourself, put it on PATH and run this again"
"$home/bin/uv" --version >/dev/null
printf '%s\n' "$home/bin/uv"
