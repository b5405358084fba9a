"""A rank: attaches to a socket, takes every tensor, and prints a digest of each. Behaves as its last argument says."""

import hashlib
import json
import os
import signal
import sys

from glowplug.weights.buffer import client


def say(**document):
    print(json.dumps(document), flush=True)


def main():
    path, rank, ranks, behaviour = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
    attachment = client.attach(path, rank=rank, ranks=ranks, timeout_s=behaviour.get("timeout_s", 20))
    say(attached=attachment.mode)
    if behaviour.get("hold_at_once"):
        sys.stdin.readline()
    digests, skipped, kept = {}, 0, []
    for item in attachment.tensors:
        if item.number == behaviour.get("die_at"):
            os.kill(os.getpid(), signal.SIGKILL)
        if item.number == behaviour.get("hold_at"):
            say(holds=item.number)
            sys.stdin.readline()
        if behaviour.get("skip") and item.number % behaviour["skip"] != rank:
            skipped += 1
            continue
        view = attachment.wait(item)
        digests[item.name] = hashlib.sha256(view).hexdigest()
        if behaviour.get("scribble"):
            view[:] = b"\xff" * len(view)
        if behaviour.get("keep"):
            kept.append((item.name, view))
        attachment.release(item)
    if behaviour.get("hold_at_end"):
        say(holds=-1)
        sys.stdin.readline()
    attachment.finish(skipped=skipped)
    if kept:
        assert digests == {name: hashlib.sha256(view).hexdigest() for name, view in kept}, "a view did not outlive the attachment"
    descriptors = len(os.listdir("/proc/self/fd"))
    say(digests=digests, skipped=skipped, descriptors=descriptors)


try:
    main()
except (client.BufferLost, client.BufferGone, client.LoadFailed) as error:
    say(error=type(error).__name__, message=str(error), hint=getattr(error, "hint", ""))
