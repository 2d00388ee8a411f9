"""Models of sequences of tokens: classification, language, policies, and images in four stages.

One file is one model; `molslice.model` describes how to add one.
"""
