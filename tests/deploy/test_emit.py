"""YAML with comments: whatever is built is parsed back as it was, and each comment stands before what it is about."""

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from glowplug.deploy.commented import note, plain
from glowplug.deploy.emit import heading, to_stream, to_yaml

TEXTS = st.text(st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="\ufeff\u2028\u2029\x85"), max_size=30)
COMMENTS = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=200)
KEYS = st.one_of(TEXTS, st.builds(note, TEXTS, COMMENTS))
NODES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), TEXTS, st.builds(note, TEXTS, COMMENTS)),
    lambda children: st.one_of(st.lists(children, max_size=4), st.dictionaries(KEYS, children, max_size=4)),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(KEYS, NODES, min_size=1, max_size=4))
def test_what_is_written_is_read_back(node):
    assert yaml.safe_load(to_yaml(node)) == plain(node)


def test_a_comment_stands_before_its_key_and_before_its_items_dash():
    node = {
        note("replicas", "One is enough."): 1,
        "args": [note("--port", "Of the server."), "8000"],
        "volumes": [{note("name", "Memory,", "not disk."): "shm", note("medium", "Counts."): "Memory"}],
    }
    assert to_yaml(node) == (
        "# One is enough.\n"
        "replicas: 1\n"
        "args:\n"
        "# Of the server.\n"
        "- --port\n"
        "- '8000'\n"
        "volumes:\n"
        "# Memory,\n"
        "# not disk.\n"
        "- name: shm\n"
        "  # Counts.\n"
        "  medium: Memory\n"
    )


def test_long_comments_are_wrapped_and_commands_in_a_heading_are_not():
    assert to_yaml({note("a", "word " * 60): 1}).count("\n# ") >= 2
    long = "  kubectl " + "x" * 200
    assert heading(f"Before it is applied:\n{long}") == f"# Before it is applied:\n# {long}\n"


def test_scripts_keep_their_lines_and_long_words_are_not_folded():
    text = to_yaml({"script": "set -e\necho done\n", "query": "sum(" + "x" * 300 + ")"})
    assert text.startswith("script: |\n  set -e\n  echo done\n")
    assert text.count("\n") == 4


def test_documents_of_a_stream_are_separate():
    assert list(yaml.safe_load_all(to_stream([("first", {"a": 1}), ("", {"b": 2})]))) == [{"a": 1}, {"b": 2}]
