#!/usr/bin/env bash
# Make the project ready to run in .venv. Safe to repeat: a second run finds its stamp and is done in a moment.
#   PYTHON=/path/to/python make setup      to choose the interpreter of a new .venv
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=tools/lib.sh
. tools/lib.sh
# Importing torch takes twice as long without compiled bytecode.
unset PYTHONDONTWRITEBYTECODE
# Another project's environment must not be mistaken for ours.
unset VIRTUAL_ENV PYTHONHOME PYTHONPATH

mkdir -p .tools
if command -v flock >/dev/null 2>&1; then
    exec 9>.tools/setup.lock
    flock 9
fi
tools/system-packages.sh

# What the environment was made from. The folder counts: scripts in .venv and the editable install name it.
stamp() {
    { cat requirements.txt pyproject.toml && pwd && .venv/bin/python -c 'import sys; print(sys.version, sys.base_prefix)'; } | sha256sum
}

if [ -x .venv/bin/python ] && [ "$(stamp 2>/dev/null || true)" = "$(cat .venv/.setup-stamp 2>/dev/null || echo none)" ]; then
    exit 0
fi

started=$SECONDS
python=""
if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1; then python=$(tools/find-python.sh); fi
uv=$(tools/find-uv.sh "$python")
if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1; then
    rm -rf .venv
    if [ -z "$python" ]; then
        say "no Python 3.12 or newer was found: uv fetches one"
        "$uv" python install --quiet 3.12 </dev/null || die "uv could not fetch Python: install Python 3.12 or newer with its headers and run this again"
        python=3.12
    fi
    say "making .venv with $("$uv" python find "$python" 2>/dev/null || echo "$python")"
    "$uv" venv --quiet --python "$python" .venv </dev/null
fi
say "installing the pinned requirements (about a minute or two the first time)"
"$uv" pip install --quiet --python .venv/bin/python --compile-bytecode -r requirements.txt </dev/null
"$uv" pip install --quiet --python .venv/bin/python --no-deps --editable . </dev/null
stamp >.venv/.setup-stamp
say "ready in $((SECONDS - started)) s: .venv/bin/kernel-agent"
