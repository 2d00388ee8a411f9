#!/usr/bin/env bash
# Install molslice, train a model, predict, and compare attentions. This takes about five minutes on two cores,
# and at most ten on cores that are half as fast.
#
# usage: bash scripts/quickstart.sh [NAME]      writes runs/NAME and runs/NAME-compare (default: quickstart)
#
# The same command continues after an interruption. Finished steps are not repeated.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
source "$root/scripts/environment.sh"
cd "$root"

case "${1:-}" in
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
esac
name="${1:-quickstart}"
run="runs/$name"
compare="runs/$name-compare"
config=configs/molecule/quickstart.yaml
attentions=softmax,slice_sort,flow,singular
compare_steps=360
step() { printf '\n[%s/5] %s\n' "$1" "$2"; }
tell_how_to_continue() {
    local status=$?
    [ "$status" = 0 ] || echo "Interrupted. Finished steps are kept: bash scripts/quickstart.sh $name continues" >&2
}
trap tell_how_to_continue EXIT

# Time budget: in benchmarks/results/quickstart.json a step of softmax takes 37 ms on two cores. In
# benchmarks/results/compare_gap_xtb.json the four attentions take 0.95 times as long as softmax on average. So
# 1,800 steps take 67 s, and the comparison of four times 360 steps takes 51 s. A machine that is half as fast
# needs 236 s, which leaves 364 of 600 s for the installation and the reports. The budget is in steps and not in
# minutes, so that other load on the machine does not change the results.

step 1 "Preparing the environment: one to two minutes the first time, then a second"
prepare_environment
molslice="$root/.venv/bin/molslice"

step 2 "Training on data/gap_xtb (HOMO-LUMO gaps of 14,407 molecules, in eV) for 1,800 steps: one to three minutes"
if [ -f "$run/summary.json" ]; then
    echo "Found the finished run $run and kept it; to train again, remove it or choose another name"
elif [ -e "$run/config.yaml" ]; then
    echo "Continuing the interrupted run $run"
    "$molslice" train --resume --out "$run"
else
    "$molslice" train --config "$config" --out "$run"
fi

step 3 "Comparing the error with baselines fitted on the same molecules: a few seconds"
"$python" scripts/quickstart_report.py errors "$run"

step 4 "Predicting well-known molecules: a few seconds"
"$python" scripts/quickstart_report.py molecules "$run"

step 5 "Comparing four attentions, $compare_steps steps each: one and a half to four minutes"
if [ -f "$compare/table.md" ]; then
    echo "Found the finished comparison $compare and kept it; to train again, remove it or choose another name"
    cat "$compare/table.md"
else
    [ ! -e "$compare/plan.json" ] || echo "Continuing the interrupted comparison $compare"
    "$molslice" compare --config "$config" --attention "$attentions" --training.max_steps "$compare_steps" --out "$compare"
fi

cat <<END

Done.
  run folder  $root/$run
  table       $root/$compare/table.md (and table.csv)
  plot        $root/$compare/compare.png (and compare.svg)
Next:  source .venv/bin/activate && molslice predict $run --smiles "CCO" "c1ccccc1"
END
