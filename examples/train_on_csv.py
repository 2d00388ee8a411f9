"""Train a small model on a CSV file for a few steps, evaluate it, and load it again."""

import csv
import tempfile
from pathlib import Path

from molslice import build_dataset, evaluate, load_config, load_model, train

FRAGMENTS = ("C", "CC", "C(C)", "O", "N", "C(=O)", "c1ccccc1", "C(F)", "CS")
CONFIG = """
data: {name: csv, path: PATH, target_columns: heteroatoms, split: random}
model: {num_layers: 2, dim: 32, ffn_dim: 64, num_heads: 4}
optimizer: {lr: 3.0e-3}
training: {max_steps: 60, batch_size: 64}
trainer: {accelerator: cpu}
"""

with tempfile.TemporaryDirectory() as folder:
    table, config = Path(folder, "molecules.csv"), Path(folder, "config.yaml")
    with table.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["smiles", "heteroatoms"])
        for a in FRAGMENTS:
            for b in FRAGMENTS:
                for c in FRAGMENTS:
                    smiles = f"C{a}C{b}C{c}C"
                    rows.writerow([smiles, sum(smiles.count(letter) for letter in "ONFS")])
    config.write_text(CONFIG.replace("PATH", str(table)))

    summary = train(load_config(config), Path(folder, "run"), quiet=True)
    model = load_model(Path(folder, "run"))
    dataset = build_dataset("csv", {"path": str(table), "target_columns": "heteroatoms"})
    error = evaluate(model, dataset, progress=False)["targets"][0]
    print("splits:", {name: len(rows) for name, rows in dataset.splits.items()})
    print("test error below 0.5 heteroatoms:", error["mae"] < 0.5)
    print("OCCN has 2 heteroatoms, predicted:", round(float(model.predict(["OCCN"])[0])))
