#!/usr/bin/env bash
# Run all checks: format, lint, types, import layers, documentation, tests. Creates the environment if it is missing.
#
# usage: bash scripts/test.sh [PYTEST ARGUMENTS]      for example tests/attention
#        bash scripts/test.sh --all                   also the tests marked slow, which CI runs
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
source "$root/scripts/environment.sh"
cd "$root"
prepare_environment dev
bin="$root/.venv/bin"

runs_slow=false
if [ "${1:-}" = --all ]; then
    runs_slow=true
    shift
fi

# Triton is not in the environment: every program that imports PyTorch's compiler would load it, and its
# version 3.9 reports leaked objects on standard error.
test_kernels() {
    local folder="$root/.venv/triton-3.9.0" files
    if [ "$(uname -s)" != Linux ]; then
        echo "skipped: Triton is for Linux"
        return
    fi
    if [ ! -d "$folder" ]; then
        "$python" -m pip install --quiet --disable-pip-version-check --no-deps \
            --target "$folder.part" triton==3.9.0 || return 1
        mv "$folder.part" "$folder"
    fi
    mapfile -t files < <(grep -rl triton_devices tests --include='test_*.py')
    PYTHONPATH="$folder" TRITON_INTERPRET=1 TRITON_CACHE_DIR="$root/.venv/triton-cache" OMP_NUM_THREADS=1 \
        "$python" -m pytest -n "${MOLSLICE_TEST_WORKERS:-2}" -m slow "${files[@]}" tests/ops/test_kernels_compile.py
}

failed=()
check() {
    local title="$1"
    shift
    printf '\n== %s\n' "$title"
    "$@" || failed+=("$title")
}

check format "$bin/ruff" format --check .
check lint "$bin/ruff" check .
check types "$bin/basedpyright"
check "import layers" "$bin/lint-imports"
NO_MKDOCS_2_WARNING=1 check documentation "$bin/mkdocs" build --quiet --strict
# Two workers with one thread each: more threads would compete for the same cores.
OMP_NUM_THREADS=1 check tests "$python" -m pytest -n "${MOLSLICE_TEST_WORKERS:-2}" "$@"
if $runs_slow; then
    slow=(-m "slow and not exhaustive")
    OMP_NUM_THREADS=1 check "slow tests" "$python" -m pytest -n "${MOLSLICE_TEST_WORKERS:-2}" --dist loadfile "${slow[@]}" \
        --ignore tests/cluster
    OMP_NUM_THREADS=1 check "tests on a cluster" "$python" -m pytest "${slow[@]}" tests/cluster
    check "GPU kernels, interpreted and compiled" test_kernels
fi
if [ $# -eq 0 ]; then
    if "$python" -c 'from tests.browser import CHROMIUM; raise SystemExit(CHROMIUM is None)'; then
        OMP_NUM_THREADS=1 check "pages in a browser" "$python" -m pytest -m browser tests/serve tests/report
    else
        printf '\n== pages in a browser: skipped, no Chromium is installed (on Debian: apt install chromium)\n'
    fi
fi

if [ ${#failed[@]} -gt 0 ]; then
    printf '\nFailed: %s\n' "$(IFS=,; echo "${failed[*]}")" >&2
    exit 1
fi
printf '\nAll checks passed\n'
