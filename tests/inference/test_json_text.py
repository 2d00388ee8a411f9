import json
from pathlib import Path

import numpy as np

from molslice.inference.json_text import to_json


def test_what_json_cannot_say_becomes_what_it_can():
    value = {
        "path": Path("a/b"),
        "numbers": (1, 2.5, float("nan"), float("inf"), np.float64("-inf"), np.int64(3), np.bool_(True)),
        "array": np.array([[1.5, np.nan]], dtype=np.float32),
        "scalar array": np.array(2),
        "words": ["ü", None, True],
        7: "key",
    }
    assert json.loads(to_json(value)) == {
        "path": "a/b",
        "numbers": [1, 2.5, None, None, None, 3, True],
        "array": [[1.5, None]],
        "scalar array": 2,
        "words": ["ü", None, True],
        "7": "key",
    }


def test_a_float32_keeps_its_own_digits():
    assert '"value": 2.7554944\n' in to_json({"value": np.float32(2.7554944)})
