"""Chemistry: SMILES in, compact integer arrays out.

What lives here: `smiles.py`, text to RDKit's molecule or the reason why not; `featurize.py`, a SMILES to the
arrays of a molecule; `vocabulary.py`, OGB's vocabularies as lookup tables; `canonical.py`, SMILES and atom
order that do not depend on the spelling; `descriptors.py`, RDKit's descriptors and Morgan counts;
`scaffold.py`, the frameworks by which a split keeps similar molecules together; `connectivity.py`, the
skeletons by which forms of one molecule are recognized; `depict.py`, the positions of atoms in a drawing.
May import: rdkit (nobody else may), `molslice.ops`, `molslice.types`, numpy. To add a feature: give it a size
in `molslice.ops.vocabulary`, a table in `vocabulary.py`, a column in `featurize.py`, and raise
`FEATURIZER_VERSION`. Why so: training from a prepared store and predicting from a prepared batch need no
rdkit, therefore this page itself imports none.
"""

FEATURIZER_VERSION = 2
"""Raised whenever the arrays or the reason of any row change, so that older prepared stores are not used."""
