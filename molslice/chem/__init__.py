"""chem."""
