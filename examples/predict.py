"""Predict HOMO-LUMO gaps with the model that ships with molslice."""

from molslice import load_model

model = load_model("gap-xtb")
smiles = ["CCO", "c1ccccc1", "CN1C=NC2=C1C(=O)N(C(=O)N2C)C", "CC("]
predictions = model.predict_with_errors(smiles)
for text, (value,), error in zip(smiles, predictions.values, predictions.errors, strict=True):
    print(f"{text:30} {value:6.2f} eV" if error is None else f"{text:30} {error}")
