"""The causes behind differences: what is likely an accident comes first, and what follows from a cause stays with it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glowplug.cache.envelope import Envelope, canonical_json, compare
from glowplug.cache.explain.causes import causes, distance, is_near
from glowplug.cache.explain.classify import kind_of
from glowplug.cache.explain.known import Known
from glowplug.cache.explain.text import one_line, shortened, two_lines, values

BASE = {
    "engine": {"name": "vllm", "version": "0.32.0", "record": "aa"},
    "arguments": {"max-model-len": 256},
    "packages": {"torch": "2.13.0", "triton": "3.9.0", "numpy": "2.0", "builds": {"torch": {"record": "bb"}}},
    "python": {"version": "3.12.1", "abi": "cp312"},
    "paths": {"engine": "/venv/vllm", "torch": "/venv/torch", "cache": "/cache"},
    "accelerator": {"kind": "nvidia", "models": {"H100": 8}, "count": 8, "driver": "1"},
    "cpu": {"machine": "x86_64", "isa": ["avx2"]},
    "model": {"reference": "org/llama", "commit": "c" * 40},
    "environment": {},
}


def changed(**groups):
    return Envelope({name: {**content, **groups.get(name, {})} for name, content in BASE.items()})


def named(**groups):
    return [cause.path for cause in causes(changed(**groups), Envelope(BASE))]


def kind(path, ours, theirs=None):
    return kind_of(path, ours, theirs).name


@pytest.mark.parametrize(
    ("name", "ours", "theirs", "expected"),
    [
        ("A_HOST", "10.0.0.1", "10.0.0.2", "address"),
        ("A", "fd00::17", None, "address"),
        ("A", "http://10.0.0.1:80/", "http://10.0.0.2:80/", "address"),
        ("A", "10.0.0.1,10.0.0.2", "10.0.0.3", "address"),
        ("A", "1.2.3", "1.2.4", "setting"),
        ("A_PORT", "5600", "5601", "port"),
        ("A_PORT", "on", "off", "setting"),
        ("SUPPORT_LEVEL", "1", "2", "setting"),
        ("A_DP_RANK", "0", "1", "ordinal"),
        ("A_BUNDLE_INDICES", "0,1", "2,3", "ordinal"),
        ("A", "123e4567-e89b-12d3-a456-426614174000", None, "identity"),
        ("POD", "llm-6d4b75cb6d-hwkqz", "llm-6d4b75cb6d-x2x5z", "pod name"),
        ("A", "llm-0", "llm-1", "pod name"),
        ("A", "llm-0", "chat-1", "setting"),
        ("A", "ip-10-0-3-17.ec2.internal", None, "host name"),
        ("A_NODE", "gpu-large", "gpu-small", "host name"),
        ("A_IMAGE_TAG", "v1", "v2", "build"),
        ("CMAKE_BUILD_TYPE", "Debug", "Release", "setting"),
        ("A_FOLDER", "/home/a/x", "/root/x", "home folder"),
        ("A_FOLDER", "/data/a", "/data/b", "path"),
        ("A", "/data/a:/data/b", "/data/c", "path"),
        ("A", "s3://one/m", "s3://two/m", "bucket"),
        ("A", "s3://one/m", "s3://two/n", "URL"),
        ("OMP_NUM_THREADS", "8", "16", "threads"),
        ("A", "1", "0", "setting"),
        ("A", "1", None, "setting"),
    ],
)
def test_a_variable_is_known_by_its_name_and_by_the_shape_of_its_value(name, ours, theirs, expected):
    assert kind(f"environment.{name}", ours, theirs) == expected
    assert kind(f"environment.{name}", theirs, ours) == expected


@pytest.mark.parametrize(
    ("path", "ours", "theirs", "expected"),
    [
        ("packages.torch", "2.13.0", "2.13.1", "patch version"),
        ("packages.torch", "2.13.0+cu130", "2.13.1", "patch version"),
        ("packages.torch", "2.13.0", "2.14.0", "version"),
        ("packages.torch", "2.13.0", None, "version"),
        ("engine.edited", "a", "b", "edited code"),
        ("packages.builds.torch.edited", "a", "b", "edited code"),
        ("engine.record", "a", "b", "rebuilt package"),
        ("model.commit", None, "c" * 40, "unknown commit"),
        ("model.commit", "d" * 40, "c" * 40, "commit"),
        ("model.reference", "/a/llama", "/b/llama", "model folder"),
        ("model.reference", "org/a", "org/b", "model"),
        ("model.files.config.json", "a", "b", "model content"),
        ("cpu.threads", 8, 16, "threads"),
        ("arguments.dtype", "half", "float", "option"),
        ("arguments.tool-path", "/a", "/b", "path"),
        ("a group of another version", 1, 2, "component"),
    ],
)
def test_a_component_is_known_by_its_path(path, ours, theirs, expected):
    assert kind(path, ours, theirs) == expected


def test_what_follows_from_a_cause_is_kept_with_it():
    [torch] = causes(
        changed(packages={"torch": "2.13.1", "triton": "3.9.1", "builds": {"torch": {"record": "cc"}}}), Envelope(BASE)
    )
    assert (torch.path, [item.path for item in torch.followers]) == (
        "packages.torch",
        ["packages.builds.torch.record", "packages.triton"],
    )
    assert named(python={"version": "3.13.0", "abi": "cp313"}, paths={"engine": "/v/3.13/vllm"}) == ["python.version"]
    assert named(paths={"engine": "/v/vllm", "torch": "/v/torch", "cache": "/c"}) == ["paths.cache", "paths.engine"]
    assert named(engine={"version": "0.33.0", "record": "bb"}, packages={"torch": "2.14.0", "numpy": "2.1"}) == ["engine.version"]


def test_accelerators_are_named_whole_and_take_driver_and_processor_with_them():
    ours = changed(accelerator={"models": {"A100": 4, "H100": 4}, "driver": "2"}, cpu={"isa": ["avx512f"]})
    [gpu] = causes(ours, Envelope(BASE))
    assert (gpu.path, gpu.ours, gpu.theirs) == ("accelerator.models", '"4 x A100, 4 x H100"', '"8 x H100"')
    assert [item.path for item in gpu.followers] == ["accelerator.driver", "cpu.isa"]
    assert named(accelerator={"driver": "2"}, cpu={"isa": ["avx512f"]}) == ["accelerator.driver", "cpu.isa"]


def test_an_option_that_only_one_command_has_is_named():
    def command(*words):
        return Envelope({"arguments": {"words": list(words)}})

    assert [
        (cause.path, cause.kind, cause.ours, cause.theirs)
        for cause in causes(command("serve", "--model", "m", "--port", "8001"), command("serve", "--model", "m"))
    ] == [("arguments.words.--port", "port", '"8001"', None)]
    paths = [cause.path for cause in causes(command("a", "--x", "--y=1"), command("a", "--y=2"))]
    assert sorted(paths) == ["arguments.words.--x", "arguments.words.--y"]
    assert [cause.path for cause in causes(command("a", "b", "a"), command("a", "b"))] == ["arguments.words.2"]


def test_the_same_files_under_another_name_are_the_same_model():
    def model(path, digest="x"):
        content = {"files": {"config.json": digest}, "weights": {"digest": "w"}}
        return Envelope({"engine": {"name": "vllm"}, "model": {"reference": path, **content}})

    [cause] = causes(model("/a/model-one"), model("/b/model-two"))
    assert (cause.kind, cause.in_words) == ("model folder", "likely an accident")
    [cause] = causes(model("/a/model-one", "y"), model("/b/model-two"))
    assert cause.kind == "model"


def test_the_words_of_a_command_are_told_apart_by_their_options():
    ours, theirs = (
        Envelope({"arguments": {"words": ["--rdzv", address, "--lr=1e-4", f"--port={port}", step, "x"]}})
        for address, port, step in (("10.0.0.1:29500", 80, "a"), ("10.0.0.2:29500", 81, "b"))
    )
    assert [(cause.path, cause.kind, cause.ours) for cause in causes(ours, theirs)] == [
        ("arguments.words.--rdzv", "address", '"10.0.0.1:29500"'),
        ("arguments.words.--port", "port", '"80"'),
        ("arguments.words.4", "option", '"a"'),
    ]


def test_what_an_adapter_knows_goes_before_what_a_value_looks_like():
    known = {"environment.X": Known("a number of great weight", "never change it", 0.99)}
    first, second = causes(changed(environment={"X": "1", "A_HOST": "10.0.0.1"}), Envelope(BASE), known)
    assert (first.path, first.what, first.fix, first.likelihood) == ("environment.X", *vars_of(known["environment.X"]))
    assert second.path == "environment.A_HOST"


def vars_of(fact):
    return fact.what, fact.fix, fact.likelihood


def test_near_is_what_is_meant_to_be_the_same_deployment():
    def near(**groups):
        return is_near(causes(changed(**groups), Envelope(BASE)))

    assert near(environment={"A_HOST": "10.0.0.1", "POD": "a-0"}, paths={"cache": "/c"}, arguments={"max-model-len": 1})
    assert near(accelerator={"models": {"A100": 8}}, engine={"version": "0.33.0"})
    assert near(environment={f"A_{letter}": "1" for letter in "abcdefghijklmnop"})
    assert not near(model={"reference": "org/other"})
    assert not near(engine={"name": "sglang"})


# --- properties

leaves = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=12)
trees = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3), max_leaves=6
)
GROUPS = [
    "engine",
    "python",
    "packages",
    "accelerator",
    "cpu",
    "parallelism",
    "model",
    "arguments",
    "environment",
    "paths",
    "other",
]
NAMES = ["name", "version", "models", "kind", "isa", "words", "reference", "torch", "cache", "A_PORT", "builds", "commit"]
envelopes = st.dictionaries(
    st.sampled_from(GROUPS), st.dictionaries(st.sampled_from(NAMES), trees, max_size=4) | trees, max_size=6
).map(Envelope)


@given(envelopes, envelopes)
def test_there_are_causes_in_order_if_and_only_if_the_envelopes_differ_and_every_difference_is_in_one(ours, theirs):
    found = causes(ours, theirs)
    assert bool(found) == (canonical_json(dict(ours.components)) != canonical_json(dict(theirs.components)))
    told = {path for cause in found for path in (cause.path, *(item.path for item in cause.followers))}
    for difference in compare(ours, theirs):
        assert any(path == difference.path or path.startswith(("accelerator.models", "arguments.words")) for path in told)
    # The order is by likelihood, and the distance the same from both sides.
    assert [cause.likelihood for cause in found] == sorted((cause.likelihood for cause in found), reverse=True)
    assert distance(found) == pytest.approx(distance(causes(theirs, ours)))
    assert (distance(found) > 0) == bool(found)
    # What is shown is short and printable.
    for cause in found:
        assert all(line.isprintable() and len(line) < 300 for line in (one_line(cause), *values(cause)))
        assert all(len(value) <= 20 for value in values(cause, 20))


@given(st.text(), st.integers(10, 80))
def test_a_shortened_text_is_printable_and_keeps_both_ends(text, columns):
    short = shortened(text, columns)
    assert short.isprintable()
    assert len(short) <= columns
    if text.isprintable() and len(text) > columns:
        assert short[0] == text[0]
        assert short[-1] == text[-1]


# --- text


def test_of_two_lists_only_what_differs_is_shown():
    [cause] = causes(changed(cpu={"isa": ["avx2", "avx512f", "amx"]}), Envelope(BASE))
    assert values(cause) == ("with avx512f, amx", "without avx512f, amx")
    [cause] = causes(changed(cpu={"isa": ["sse"]}), Envelope(BASE))
    assert values(cause) == ("with sse", "with avx2")


def test_a_number_and_a_text_that_look_the_same_are_shown_as_they_are():
    [cause] = causes(changed(arguments={"max-model-len": "256"}), Envelope(BASE))
    assert values(cause) == ('"256"', "256")


def test_two_lines_say_what_differs_and_what_to_do():
    found = causes(changed(environment={"A_HOST": "10.0.0.1"}, arguments={"max-model-len": 1}), Envelope(BASE))
    first, second = two_lines(found)
    assert first == "nearest cache in the store differs in environment.A_HOST (here 10.0.0.1, there nothing) and 1 more"
    assert second == "an address, of a pod or a node, likely an accident: unset it, or give it the same value in every pod"


def test_json_values_are_parsed_once_and_whole():
    [cause] = causes(changed(arguments={"max-model-len": {"deep": [1, {"a": "b"}]}}), Envelope(BASE))
    assert json.loads(cause.ours) == [1, {"a": "b"}]
