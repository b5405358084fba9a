"""A lease that a thief of a writer's credentials renews for ever: a start waits as long as it was told, and compiles."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import replace

from glowplug.cache import layout
from glowplug.cache.lease import Holder
from glowplug.store import open_store
from tests.run import stand_ins
from tests.run.program import Program


@contextmanager
def held_for_ever(store, envelope):
    """Somebody who compiles nothing, and says ten times a second that it is at work."""
    ends = threading.Event()
    beats = []

    def renew():
        holder = Holder(id="thief", host="\x1b[2Jthief", ttl_s=60.0)
        while not ends.wait(0.1):
            store.put(layout.lease_key(envelope), replace(holder, sequence=len(beats)).document)
            beats.append(time.monotonic())

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield beats
    finally:
        ends.set()
        thread.join()


def test_a_lease_that_never_ends_costs_a_start_no_more_than_its_own_wait(tmp_path):
    program, command = Program(tmp_path), stand_ins.compiler(tmp_path).words
    program.run(*command)
    [latest] = program.store.glob("v1/*/latest")
    envelope = latest.parent.name
    latest.unlink()
    program.forget()
    with held_for_ever(open_store(f"file://{program.store}", env={}), envelope) as beats:
        begun = time.monotonic()
        ended = program.run(*command, options=["--wait", "2s"])
        took = time.monotonic() - begun
        assert len(beats) > 10
    assert (ended.code, b"compiled 4 loaded 0" in ended.out) == (0, True)
    assert took > 2  # the lease was seen, and waited for
    assert took < 20
    assert "\x1b" not in ended.err
