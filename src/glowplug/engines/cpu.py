"""The processor as compilers see it.

``-march=native`` code runs on every processor with the same instruction sets, and dies with SIGILL on one that lacks some. So the
envelope holds the instruction sets and neither the model nor the clock. Only ``/proc`` is read.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glowplug.cache.envelope import Json

_HEAD_BYTES = 16 * 1024  # the first processor; reading all of /proc/cpuinfo takes milliseconds for each hundred cores
_LINE = re.compile(r"^(flags|Features|isa)\s*:\s*(.*)$", re.MULTILINE)
# Instruction sets that GCC or LLVM may use under -march=native (gcc/config/i386/driver-i386.cc), as Linux names them. The other
# flags (mitigations, timers, virtualisation) differ between kernels and hypervisors of equal processors.
_X86 = re.compile(
    r"(sse|ssse|avx|amx|xop|xsave|sha|sm[34]$)\w*"
    r"|mmx|pni|fma4?|bmi[12]|tbm|abm|lzcnt|popcnt|f16c|movbe|v?aes|v?pclmulqdq|gfni|adx|cx16|lahf_lm|fsgsbase|rdrand|rdseed|rdpid|3dnowprefetch"
    r"|clflushopt|clwb|movdiri|movdir64b|cmpccxadd|serialize|prefetchi|waitpkg"
)


def cpu_component(root: str = "/") -> Json:
    """Architecture and instruction sets, for the envelope.

    Args:
        root: where ``proc`` lies; a test's own tree.
    """
    machine = os.uname().machine
    try:
        with open(os.path.join(root, "proc/cpuinfo"), encoding="ascii", errors="replace") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return {"machine": machine, "isa": "unknown"}
    match = _LINE.search(head)
    if match is None:
        return {"machine": machine, "isa": "unknown"}
    names = set(match[2].split())
    if match[1] == "flags":
        names = {name for name in names if _X86.fullmatch(name)}
    return {"machine": machine, "isa": sorted(names)}


def cpu_threads() -> int:
    """Processors this process may run on. C++ code that Inductor generates is specialised on the number of threads."""
    return len(os.sched_getaffinity(0))
