#!/usr/bin/env bash
# Run all checks: format, lint, types, import layers, documentation, tests. Creates the environment if it is missing.
#
# usage: bash scripts/test.sh [PYTEST ARGUMENTS]      for example -m slow, or tests/attention
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
source "$root/scripts/environment.sh"
cd "$root"
prepare_environment dev
bin="$root/.venv/bin"

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
if [ $# -eq 0 ]; then
    # They are marked slow: Ray starts processes that import everything again.
    OMP_NUM_THREADS=1 check "tests on a cluster" "$python" -m pytest -m slow tests/cluster
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
