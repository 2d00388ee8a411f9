import pytest

from molslice.files.parsing import parse_json, parse_yaml, read_json_object
from molslice.types import MolsliceError


def test_merge_keys_and_aliases_are_expanded():
    text = "base: &base {a: 1, b: 2}\nown: {<<: *base, b: 3}\nboth: {<<: [*base, {c: 4}]}\nsame: *base"
    value = parse_yaml(text, "x")
    assert value["own"] == {"a": 1, "b": 3}
    assert value["both"] == {"a": 1, "b": 2, "c": 4}
    assert value["same"] == value["base"] == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("text", "value"),
    [("2024-13-45", "2024-13-45"), ("2024-01-02", "2024-01-02"), ("=", "="), ("1e-4", "1e-4"), ("", None)],
)
def test_dates_and_signs_are_text(text, value):
    assert parse_yaml(text, "x") == value


BOMB = "a0: &a0 [1, 2]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12))
MERGES = "a0: &a0 {k: 1}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}\n" for i in range(1, 12)
)
CHAIN = "a0: &a0 []\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 2000))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BOMB, "more than 100,000 values"),
        (MERGES, "more than 100,000 values"),
        (CHAIN, "more than 50 levels"),
        ("[" * 5000, "more than 50 levels"),
        ("- " * 5000, "more than 50 levels"),
        ("a: &a [*a]", "a value that contains it, line 1"),
        ("a: &a {<<: *a}", "a value that contains it"),
        ("a: 1\nb: 2\n'a': 3", "key 'a' is given twice, line 3"),
        ("{[a]: 1}", "unhashable"),
        ("a: !!timestamp 2024-13-45", "could not determine a constructor"),
        ("a: !!python/object:os.system x", "could not determine a constructor"),
        ("!!int abc", "invalid literal"),
        ("10000000000000000000000", "more than 64 bits"),
        ("0x" + "f" * 5000, "more than 64 bits"),
        ("9" * 5000, "4300"),
        ("a\x00b", "special characters"),
        ("[a", "expected ',' or ']'"),
    ],
)
def test_hostile_yaml_is_refused_in_words(text, reason):
    with pytest.raises(MolsliceError, match=r"cannot read here as YAML: ") as caught:
        parse_yaml(text, "here")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 60 + "]" * 60, "{", "9" * 5000, b"\xff"])
def test_hostile_json_is_refused_in_words(text):
    with pytest.raises(MolsliceError, match="cannot read here as JSON: "):
        parse_json(text, "here")


def test_json_is_read():
    assert parse_json('{"a": [1, null]}', "x") == {"a": [1, None]}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[1]", "it does not hold a JSON object"),
        (b"{", "Expecting property name"),
        (b'{"a": ' + b"[" * 60 + b"]" * 60 + b"}", "more than 50 levels"),
        (b'{"a": ' + b"[" * 100_000, "recursion"),
        (b'{"a": "\xff"}', "can't decode byte 0xff"),
    ],
)
def test_a_file_without_a_json_object_is_named(tmp_path, content, reason):
    file = tmp_path / "summary.json"
    file.write_bytes(content)
    with pytest.raises(MolsliceError, match=f"^cannot read .*summary.json: .*{reason}"):
        read_json_object(file)
