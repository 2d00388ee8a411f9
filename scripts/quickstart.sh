#!/usr/bin/env bash
# From a fresh clone to a trained model, its predictions, and a comparison of attentions: at most ten minutes
# on two cores.
#
# usage: bash scripts/quickstart.sh [NAME]      writes runs/NAME and runs/NAME-compare; NAME is quickstart
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
source "$root/scripts/environment.sh"
cd "$root"

case "${1:-}" in
    -h | --help) sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
esac
name="${1:-quickstart}"
run="runs/$name"
compare="runs/$name-compare"
config=configs/molecule/quickstart.yaml
step() { printf '\n[%s/5] %s\n' "$1" "$2"; }

step 1 "The environment"
prepare_environment
molslice="$root/.venv/bin/molslice"

step 2 "Training on data/gap_xtb, about three minutes: HOMO-LUMO gaps of 14,407 molecules, in eV"
if [ -f "$run/summary.json" ]; then
    echo "Found the finished run $run and kept it; remove it, or give another name, to train again"
elif [ -e "$run/config.yaml" ]; then
    echo "Found the run $run, stopped before its end; it goes on"
    "$molslice" train --resume --out "$run"
else
    "$molslice" train --config "$config" --out "$run"
fi

step 3 "The error, beside the baselines fitted on the same molecules"
"$python" scripts/quickstart_report.py errors "$run"

step 4 "Predictions for molecules that one knows by name"
"$python" scripts/quickstart_report.py molecules "$run"

step 5 "Four attentions, 45 seconds each: parameters against error"
"$molslice" compare --config "$config" --attention softmax,slice_sort,flow,singular --minutes 0.75 --out "$compare"

cat <<END

Done.
  run folder  $root/$run
  table       $root/$compare/table.md (and table.csv)
  plot        $root/$compare/compare.png (and compare.svg)
Next:  source .venv/bin/activate && molslice predict $run --smiles "CCO" "c1ccccc1"
END
