"""YAML from anybody: the right values with their lines, and one clear error for whatever can't be read."""

from __future__ import annotations

import json
import math

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from glowplug.doctor import documents as module
from glowplug.doctor.documents import Map, Unreadable, documents
from glowplug.doctor.objects import line_of


def one(text):
    (document,) = documents(text)
    return document


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**18), 10**18),
    # Without the line breaks that PyYAML writes without quotes, and so reads as blanks.
    st.text(alphabet=st.characters(exclude_categories=["Cs", "Nd"], exclude_characters="\x85\u2028\u2029"), max_size=20),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet="abcXYZ-./", min_size=1, max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(["kind", "spec", "a.b/c"]), VALUES, min_size=1))
def test_values_are_those_that_were_written(value):
    keys_kept = json.loads(json.dumps(value))
    assert one(yaml.safe_dump(value, allow_unicode=True)) == keys_kept


@pytest.mark.parametrize(
    ("written", "value"),
    [("1", 1), ("'1'", "1"), ("yes", True), ("off", False), ("0x10", 16), ("010", 8), ("1.5", 1.5), ("1e3", 1000.0), (".5", 0.5),
     ("~", None), ("", None), ("null", None), ("80Gi", "80Gi"), ("1:30", "1:30"), ("2026-01-01", "2026-01-01"), ("-", "-"),
     ("!!str 5", "5"), ("y", "y"), ("9" * 50, "9" * 50), ("+7", 7), ("=", "=")],
)  # fmt: skip
def test_scalars_are_what_kubernetes_takes_them_for(written, value):
    found = one(f"a: {written}" if written != "-" else "a: '-'")["a"]
    assert found == value
    assert type(found) is type(value)


def test_every_value_knows_its_line():
    body = one("# comment\nkind: Pod\nspec:\n  containers:\n  - name: a\n    image: b\n  -\n    name: c\n")
    assert line_of(body, ()) == 2
    assert line_of(body, ("spec", "containers", 0, "image")) == 6
    assert line_of(body, ("spec", "containers", 1, "name")) == 8
    assert line_of(body, ("spec", "containers", 1, "missing", "deeper")) == 8


def test_documents_follow_each_other_and_empty_ones_are_left_out():
    assert list(documents("a: 1\n---\n---\n# nothing\n---\nb: 2\n...\n")) == [{"a": 1}, {"b": 2}]


def test_aliases_and_merges_are_spelt_out():
    body = one("base: &b {x: 1, y: 2}\nmade: {<<: *b, y: 3}\nboth: {<<: [*b, {z: 4}]}\nsame: *b")
    assert body["made"] == {"x": 1, "y": 3}
    assert body["both"] == {"x": 1, "y": 2, "z": 4}
    assert body["same"] is body["base"]


def test_json_is_read_with_lines():
    body = one(json.dumps({"kind": "Pod", "spec": {"a": [1, {"b": "\u00e9\t"}]}}, indent=2))
    assert body["spec"]["a"][1]["b"] == "\u00e9\t"
    assert line_of(body, ("spec", "a", 1, "b")) == 7


def laughs(levels):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a: 1\nb: c: d\n", 2, "mapping values are not allowed"),
        ("a: 1\n\tb: 2\n", 2, "tab"),
        ("a: 'x\n", 2, "unexpected end of stream"),
        ("a: [1, 2\nb: 3", 2, ""),
        ("[" * 50_000, 1, "nest"),
        ("- " * 50_000, 1, "nest"),
        ("{a: " * 50_000, 1, "nest"),
        ("a: &x [*x]", 1, "itself"),
        ("a: *nowhere", 1, "no anchor"),
        (laughs(12), 6, "aliases"),
        ("a: \x00b", 1, "not allowed"),
        ("a: 1\nb: \x1b[31m", 2, "not allowed"),
        ("{{ .Values.x }}: 1", 1, "key"),
        ("? [a, b]\n: 1", 1, "key"),
    ],
    ids=range(14),
)
def test_what_cant_be_read_is_said_with_its_line(text, line, says):
    with pytest.raises(Unreadable) as error:
        list(documents(text))
    assert error.value.line == line
    assert says in error.value.problem
    assert "\n" not in error.value.problem
    assert error.value.hint


def test_what_came_before_an_error_is_given():
    stream = documents("a: 1\n---\nb: [\n")
    assert next(stream) == {"a": 1}
    with pytest.raises(Unreadable):
        next(stream)


def test_multiplied_aliases_cost_no_memory():
    body = one(laughs(5))
    assert body.size > 10**5 > 1000 > sum(len(level) for level in body.values())


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="abc:{}[]&*!|>'\"#%@-?, \n\t0.~<=", max_size=60))
def test_any_text_is_values_or_one_error(text):
    try:
        for document in documents(text):
            assert isinstance(document, (dict, list, str, int, float, bool))
    except Unreadable as error:
        assert error.problem  # noqa: PT017  either is right


def test_it_works_without_libyaml(monkeypatch):
    monkeypatch.setattr(module, "_Loader", yaml.SafeLoader)
    body = one("kind: Pod\nspec: {a: [1, x], b: &y 2.5, c: *y}\n")
    assert body == {"kind": "Pod", "spec": {"a": [1, "x"], "b": 2.5, "c": 2.5}}
    assert isinstance(body, Map)
    assert math.isclose(body["spec"]["c"], 2.5)
    with pytest.raises(Unreadable) as error:
        one("a: 1\nb: c: d\n")
    assert error.value.line == 2
