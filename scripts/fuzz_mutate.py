"""Mutations that keep the structure of a file, so that the code behind its parser is reached.

libFuzzer changes bytes. In a JSON header that nearly always gives a text that is no JSON, which the parser
refuses at once. These mutations replace whole numbers and words of a text, and correct the stated length of
the header of a safetensors file.
"""

import random
import re

__all__ = ["mutate_tokens"]

TOKEN = re.compile(r"[A-Za-z_][\w.]*|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|\[[^\[\]]{0,200}\]")
WORDS = (
    *("null", "true", "false", "0", "1", "-1", "2", "3", "255", "65536", "4294967296", "9" * 30),
    *("0.5", "-0.0", "1e39", "1e999", "NaN", "-Infinity", "[]", "{}", "[0]", "[[]]", "x", "\x00", "\xe9"),
    *("F16", "BF16", "F64", "I64", "U8", "BOOL", "F8_E5M2", "regression", "classification", "multiclass"),
)
HEADER_BYTES = 8  # of the length before the header of a safetensors file
MOST = 4  # replacements at once


def mutate_tokens(content: bytes, seed: int) -> bytes:
    """Replace some numbers, words or lists of a text, or of the header of a safetensors file.

    Args:
        content: The file.
        seed: Seed of the choices.

    Returns:
        The changed file. It is the same if it contains no text.
    """
    generator = random.Random(seed)
    header = _header(content)
    start, end = header or (0, len(content))
    text = content[start:end].decode("latin-1")
    for _ in range(generator.randint(1, MOST)):
        tokens = list(TOKEN.finditer(text))
        if not tokens:
            return content
        old, other = generator.choice(tokens), generator.choice(tokens)
        new = generator.choice((*WORDS, other.group(), *_near(old.group())))
        text = text[: old.start()] + new + text[old.end() :]
    changed = text.encode("latin-1")
    length = len(changed).to_bytes(HEADER_BYTES, "little") if header else b""
    return length + changed + content[end:]


def _near(number: str) -> list[str]:
    """Return the neighbors of a whole number, several times: they often pass a check."""
    if not number.isdecimal() or len(number) > 18:
        return []
    return [str(int(number) + 1), str(max(0, int(number) - 1)), str(2 * int(number))] * 5


def _header(content: bytes) -> tuple[int, int] | None:
    """Return the place of the header of a safetensors file; None for another file."""
    length = int.from_bytes(content[:HEADER_BYTES], "little")
    if content[HEADER_BYTES : HEADER_BYTES + 1] != b"{" or HEADER_BYTES + length > len(content):
        return None
    return HEADER_BYTES, HEADER_BYTES + length
