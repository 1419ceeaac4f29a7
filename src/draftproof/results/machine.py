"""The machine a result was measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil

from draftproof.records import Machine


def read_machine() -> Machine:
    """Describe the machine this runs on."""
    import torch
    import transformers

    return Machine(
        cpu=_cpu_name(),
        cores=psutil.cpu_count(logical=False) or os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        torch=torch.__version__,
        transformers=transformers.__version__,
        threads=torch.get_num_threads(),
    )


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
