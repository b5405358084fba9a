"""Designs of deployments, for all tests of this folder. Whatever is not said is as in the README's example."""

import dataclasses
import functools

import pytest

from glowplug.deploy.design import settle
from glowplug.deploy.make import objects
from glowplug.deploy.wish import Wish
from glowplug.plan.model import Model
from glowplug.units import parse_size

GPU = {
    "target": "gpu",
    "model": "s3://models/qwen3-32b",
    "weights": "65GB",
    "instance": "p4d.24xlarge",
    "store": "s3://caches/glowplug",
    "glowplug_image": "registry.example.com/glowplug:1",
}
NEURON = {
    **GPU,
    "target": "neuron",
    "model": "s3://models/TinyLlama-1.1B-Chat-v1.0",
    "weights": "2.2GB",
    "instance": "trn1.2xlarge",
}


def design_of(**given):
    return _design_of(tuple(sorted(given.items())))


@functools.cache
def _design_of(items):
    given = dict(items)
    base = NEURON if given.get("target") == "neuron" else GPU
    wish = dataclasses.replace(Wish(), **{**base, **given})
    size = parse_size(wish.weights, name="--weights") if wish.weights else 1
    return settle(wish, Model(name=wish.model, weight_bytes=size))


@pytest.fixture
def design():
    return design_of


@pytest.fixture
def made():
    """Objects by kind."""

    def make(**given):
        by_kind = {}
        for each in objects(design_of(**given)):
            by_kind.setdefault(each["kind"], []).append(each)
        return by_kind

    return make
