# Shared by the set-up scripts: messages, and Debian's packages where we may install them.
# Sourced, never run. Messages go to stderr, because some of the scripts print a path to stdout.

say() { printf 'setup: %s\n' "$*" >&2; }

die() {
    say "$*"
    exit 1
}

# Succeeds when packages can be installed without asking anybody.
can_apt() { [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; }

# apt_install PACKAGE...: quiet unless it fails.
apt_install() {
    local log status=0
    say "installing $* with apt-get"
    log=$(mktemp)
    {
        DEBIAN_FRONTEND=noninteractive apt-get update -qq &&
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
    } </dev/null >"$log" 2>&1 || status=$?
    if [ "$status" -ne 0 ]; then
        tail -n 5 "$log" >&2
        say "apt-get could not install $*"
    fi
    rm -f "$log"
    return "$status"
}
