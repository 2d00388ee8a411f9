"""Data sets of texts: classification, retrieval and language modeling, from words, subwords or bytes.

Modules beside the data sets:
    base: The base class of classified texts.
    documents: Texts with their labels.
    tokenizing: Converts texts to token ids.
    lexicon: The vocabulary of a language model.

Imports: the same as `molslice.data`, and tokenizers and datasets inside functions.

To add a data set, write a file with a class that derives from `TextDataset`.
"""
