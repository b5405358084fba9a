"""Published starts, what of each was given to the planner, and what it says. ``docs/plan.md`` shows the same table.

``lines()`` prints the rows of that table: ``python tests/plan/published_cases.py`` (from the checkout) writes them out.
"""

from __future__ import annotations

from typing import NamedTuple

from plan_models import model, plan, question, sized

from glowplug.plan.compiling import guide_s
from glowplug.plan.fetch import fetch
from glowplug.plan.model import Model
from glowplug.plan.starting import IMAGE_BYTES_PER_S
from glowplug.plan.working import Notebook

DISK = 550_000_000  # one speed for all models of the same machine: 6.4, 15.2 and 29.5 GB took 11.8, 28.3 and 52.0 s
OUTSIDE = {"node", "image pull", "container", "restore", "ready"}
INIT = {"compile", "profiling", "graph capture"}


class Case(NamedTuple):
    """One published figure."""

    what: str
    source: str
    given: str
    published_s: float
    predicted_s: float
    is_within: bool = True
    """It is a claim that the prediction is within 25 %."""

    @property
    def off(self) -> float:
        return self.predicted_s / self.published_s - 1


def seconds(made, scenario, *, only=None, without=frozenset()):
    terms = made.start(scenario).terms
    return sum(t.seconds for t in terms if (t.phase in only if only else t.phase not in OUTSIDE | without))


def from_disk(name, *, bandwidth=DISK, **asked):
    return plan(name, gpu="h100", loader="runai", bandwidth=bandwidth, phases={"imports": 8.67}, **asked)


def of_s3(size_bytes, instance):
    given = question(instance, loader="runai")
    return fetch(given, sized(size_bytes), None, distributed=True, measured=None, notebook=Notebook()).seconds


def cases():
    for name, published in (("qwen2.5-0.5b", 32.3), ("llama-3.2-3b", 48.3), ("qwen2.5-7b", 67.2), ("qwen2.5-14b", 98.3)):
        made = from_disk(name, bandwidth=10**10 if published < 40 else DISK)
        rate = "page cache" if published < 40 else "disk at 550 MB/s"
        yield Case(f"{name}, cold, wall", "arXiv 2606.07362", f"imports 8.67 s, {rate}", published, seconds(made, "cold"))
        compiled = {32.3: 18.06, 48.3: 21.47, 67.2: 23.23, 98.3: 28.99}[published]
        yield Case(f"{name}, compiling (in the fit)", "arXiv 2606.07362", "", compiled, seconds(made, "cold", only={"compile"}))
    older = plan(
        "llama-2-7b", gpu="a100-80gb", loader="runai", bandwidth=1_800_000_000, vllm_version=(0, 10), phases={"imports": 10.2}
    )
    yield Case(
        "Llama-2-7B on an A100, warm, wall", "arXiv 2606.07362", "imports 10.2 s, disk at 1.8 GB/s", 43.3, seconds(older, "warm")
    )
    bench = plan("qwen3-32b", gpu="h200", bandwidth=10**11, vllm_version=(0, 14))
    where = "vLLM PR #32191"
    after = frozenset({"imports"})
    yield Case("Qwen3-32B, cold, after imports", where, "page cache", 68.47, seconds(bench, "cold", without=after))
    yield Case("Qwen3-32B, cold, compiling", where, "", 30.69, seconds(bench, "cold", only={"compile"}))
    yield Case("Qwen3-32B, warm, after imports", where, "page cache, vLLM 0.14", 43.91, seconds(bench, "warm", without=after))
    for size, published in ((60, 53.0), (140, 60.0), (640, 80.0)):
        yield Case(f"{size} GB, compiling (the guide's table)", "EKS guide", "", published, guide_s(size * 10**9))
    p5 = plan(67 * 10**9, "p5.48xlarge", loader="runai")
    yield Case(
        "67 GB on p5.48xlarge, cold, engine init", "EKS guide", "taken for the engine's init", 65.0, seconds(p5, "cold", only=INIT)
    )
    yield Case("67 GB on p5.48xlarge, warm, engine init", "EKS guide", "the same", 16.0, seconds(p5, "warm", only=INIT))
    yield Case("15 GB from S3, g5.12xlarge", "Run:ai benchmark", "(in the fit)", 4.88, of_s3(15 * 10**9, "g5.12xlarge"))
    yield Case("134 GB from S3, 100 Gbit/s", "marin #7136", "", 14.29, of_s3(int(124.96 * 2**30), "p5.48xlarge"))
    yield Case("10.76 GB of image", "karpenter-blueprints PR #32", "(in the fit)", 138.0, 10.76e9 / IMAGE_BYTES_PER_S)
    yield Case("5.60 GB of image", "kaito #2325", "(in the fit)", 101.0, 5.60e9 / IMAGE_BYTES_PER_S)
    yield Case("15 GB of image", "AWS, second-hand: 4 to 6 min", "", 240.0, 15e9 / IMAGE_BYTES_PER_S)
    kaito = Model(name="", weight_bytes=int(51.75 * 2**30), architecture=model("qwen3-32b").architecture)
    asked = {"image_bytes": 5_600_000_000, "loader": "runai", "bandwidth": 900_000_000, "batch": 1}
    whole = plan(kaito, gpu="a100-80gb", phases={"node": 410.0, "imports": 95.0}, **asked)
    yield Case(
        "27B on an A100, from nothing, less its own 100 s", "kaito #2325", "node 410 s, imports 95 s, its 900 MB/s", 866.0,
        whole.start("cold").total_s,
    )  # fmt: skip
    yield Case("the same, compiling and warm-up", "kaito #2325", "", 195.0, seconds(whole, "cold", only=INIT), is_within=False)
    rtx = plan(
        "qwen3-30b-a3b-fp8", gpu="l40s", loader="runai", bandwidth=1_300_000_000, phases={"imports": 16.0, "profiling": 210.0}
    )
    where = "vLLM #44881"
    yield Case("35B MoE on an RTX 5090, wall", where, "imports 16 s, profiling 210 s, its 1.3 GB/s", 277.0, seconds(rtx, "cold"))
    yield Case("the same, compiling (in the fit)", where, "", 43.0, seconds(rtx, "cold", only={"compile"}))
    hit = {"gpu": "l4", "loader": "runai", "bandwidth": 10**10, "vllm_version": (0, 9), "batch": 1}
    given = plan("llama-3.2-3b", phases={"graph capture": 17.0}, **hit)
    yield Case("3B, cache hit", "vLLM #20264", "capture 17 s", 59.0, seconds(given, "restart"))
    yield Case("the same", "vLLM #20264", "", 59.0, seconds(plan("llama-3.2-3b", **hit), "restart"), is_within=False)
    l40s = plan("llama-3.1-8b", gpu="l40s", loader="runai", bandwidth=263_000_000, phases={"imports": 94.0})
    where = "tensorfuse.io"
    yield Case("8B on an L40S, cold, wall", where, "imports 94 s, its 263 MB/s", 294.0, seconds(l40s, "cold"), is_within=False)
    yield Case("the same, compiling", where, "", 52.0, seconds(l40s, "cold", only={"compile"}), is_within=False)


def lines():
    for case in cases():
        mark = "" if case.is_within else " **no**"
        yield (
            f"| {case.what} | {case.source} | {case.given or 'nothing'} | {case.published_s:.1f} s | {case.predicted_s:.1f} s | "
            f"{case.off:+.0%}{mark} |"
        )


if __name__ == "__main__":
    print("\n".join(lines()))
