"""Data sets of texts: classification, retrieval and language modeling, from words, subwords or bytes.

`base.py` is the base class of classified texts. `documents.py` holds texts and labels, `lexicon.py`
vocabularies, `tokenizing.py` turns texts into token ids.
May import: what `molslice.data` may; tokenizers and datasets inside functions.
To add one: a file with a class that derives from `TextDataset`.
"""
