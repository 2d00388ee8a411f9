# Creates .venv and installs molslice into it. quickstart.sh and test.sh source this file.
#
# prepare_environment [EXTRA]   sets $python to the interpreter of the environment. A stamp file in .venv stores
# a hash of pyproject.toml and constraints.txt; molslice is installed again if they change.

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    echo "molslice needs Python 3.11 or newer; found: $(python3 --version 2>&1 || true)." >&2
    echo "Install one, or set its path: PYTHON=/path/to/python3.11 bash $0" >&2
    return 1
}

fingerprint() {
    "$python" - "$root/pyproject.toml" "$root/constraints.txt" "$root" <<'PY'
import hashlib, pathlib, sys
*files, root = sys.argv[1:]
parts = [pathlib.Path(file).read_bytes() for file in files] + [root.encode(), sys.version.encode()]
print(hashlib.sha256(b"\0".join(parts)).hexdigest())
PY
}

prepare_environment() {
    local extra="${1:-}" base
    local target="$root${extra:+[$extra]}"
    local stamp="$root/.venv/molslice${extra:+-$extra}.stamp"
    python="$root/.venv/bin/python"
    if ! "$python" -c 'import pip' 2>/dev/null; then
        base="$(find_python)"
        echo "Creating the environment $root/.venv with $("$base" --version)"
        "$base" -m venv --clear "$root/.venv" || {
            echo "cannot create $root/.venv; on Debian and Ubuntu, try: apt install python3-venv" >&2
            return 1
        }
    fi
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(fingerprint)" ]; then
        echo "Found the environment $root/.venv; it is up to date"
        return
    fi
    echo "Installing molslice${extra:+ with the extra $extra} into $root/.venv with the versions in constraints.txt; this takes one to two minutes"
    "$python" -m pip install --quiet --disable-pip-version-check -c "$root/constraints.txt" -e "$target"
    fingerprint > "$stamp"
    # An installation with an extra includes the plain installation.
    [ -z "$extra" ] || fingerprint > "$root/.venv/molslice.stamp"
}
