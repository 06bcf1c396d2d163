# Shared by ci/demo and ci/test: a virtual environment in .venv with what the caller asks for.

say() { printf '%s\n' "$*" >&2; }

find_python() {
    for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11; do
        [ -n "$candidate" ] || continue
        command -v "$candidate" >/dev/null 2>&1 || continue
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s' "$candidate"
            return 0
        fi
    done
    say "Python 3.11 or later is missing: install it, or name it with PYTHON=/path/to/python."
    return 1
}

# make_venv EXTRAS: install the package with these extras, unless the same has been installed before.
make_venv() {
    local python stamp wanted
    python=$(find_python) || return 1
    if [ ! -x .venv/bin/python ]; then
        "$python" -m venv .venv || {
            say "Cannot create .venv: the venv module is missing (Debian: apt-get install python3-venv)."
            return 1
        }
    fi
    stamp=.venv/installed$1
    wanted=$(cksum <pyproject.toml)
    if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
        say "Installing slackwater$1 into .venv ..."
        .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".$1" || {
            say "Installing failed: see the message of pip above; the package index must be reachable."
            return 1
        }
        printf '%s' "$wanted" >"$stamp"
    fi
}

need_java() {
    local java version
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    if ! command -v "$java" >/dev/null 2>&1; then
        say "Java is missing: the Spark runners need Java 17 or later (Debian: apt-get install openjdk-17-jre-headless)."
        return 1
    fi
    version=$("$java" -version 2>&1 | sed -n '1s/.*version "\([0-9]*\).*/\1/p')
    if [ "${version:-0}" -lt 17 ]; then
        say "Java $version is too old: the Spark runners need Java 17 or later."
        return 1
    fi
}
