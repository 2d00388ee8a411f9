#!/usr/bin/env bash
# From a fresh clone to a trained model, its predictions, and a comparison of attentions: about five minutes
# on two cores, at most ten where they are half as fast.
#
# usage: bash scripts/quickstart.sh [NAME]      writes runs/NAME and runs/NAME-compare; NAME is quickstart
#
# What is finished is kept, and what was stopped continues, when the same command is run again.
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
compare_steps=600
step() { printf '\n[%s/5] %s\n' "$1" "$2"; }
tell_how_to_continue() {
    local status=$?
    [ "$status" = 0 ] || echo "Stopped before the end. What is finished is kept: bash scripts/quickstart.sh $name continues" >&2
}
trap tell_how_to_continue EXIT

# The budget. benchmarks/results/quickstart.json has 39 ms for a step of softmax on two cores, and in
# benchmarks/results/compare_gap_xtb.json the four attentions take 0.95 times as long as softmax on average. So
# 1,800 steps take 70 s and the comparison of four times 600 steps 90 s. A machine half as fast needs 320 s; that
# leaves 280 of 600 s for the installation and the rest. Steps are counted instead of minutes, because minutes
# give each attention as many steps as the other work of the machine permits.

step 1 "The environment: one to two minutes the first time, a second later"
prepare_environment
molslice="$root/.venv/bin/molslice"

step 2 "Training on data/gap_xtb (HOMO-LUMO gaps of 14,407 molecules, in eV), 1,800 steps: one to three minutes"
if [ -f "$run/summary.json" ]; then
    echo "Found the finished run $run and kept it; remove it, or give another name, to train again"
elif [ -e "$run/config.yaml" ]; then
    echo "Found the run $run, stopped before its end; it continues"
    "$molslice" train --resume --out "$run"
else
    "$molslice" train --config "$config" --out "$run"
fi

step 3 "The error, beside the baselines fitted on the same molecules: a few seconds"
"$python" scripts/quickstart_report.py errors "$run"

step 4 "Predictions for well-known molecules: a few seconds"
"$python" scripts/quickstart_report.py molecules "$run"

step 5 "Four attentions, $compare_steps steps each, parameters against error: one and a half to four minutes"
if [ -f "$compare/table.md" ]; then
    echo "Found the finished comparison $compare and kept it; remove it, or give another name, to train again"
    cat "$compare/table.md"
else
    [ ! -e "$compare/plan.json" ] || echo "Found the comparison $compare, stopped before its end; it continues"
    "$molslice" compare --config "$config" --attention "$attentions" --training.max_steps "$compare_steps" --out "$compare"
fi

cat <<END

Done.
  run folder  $root/$run
  table       $root/$compare/table.md (and table.csv)
  plot        $root/$compare/compare.png (and compare.svg)
Next:  source .venv/bin/activate && molslice predict $run --smiles "CCO" "c1ccccc1"
END
