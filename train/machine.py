"""What a run was made on: the hardware and the program versions, as plain values."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

CPU_INFO = Path("/proc/cpuinfo")


def versions() -> dict[str, str]:
    """Of what decides about numbers."""
    return {
        "labelwright": version("labelwright"),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }


def machine(device: torch.device) -> dict[str, Any]:
    """The hardware that speeds depend on; its name and place are nobody's business."""
    on_gpu = device.type == "cuda"
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if on_gpu else device.type,
    }


def is_amd() -> bool:
    """Whether the processor is known to be one of AMD's."""
    return _cpu_info("vendor_id") == "AuthenticAMD"


def _processor() -> str:
    """The processor as Linux names it, elsewhere its architecture alone."""
    return _cpu_info("model name") or platform.machine()


def _cpu_info(field: str) -> str:
    """What Linux says of the first processor; empty elsewhere."""
    if CPU_INFO.is_file():
        for line in CPU_INFO.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == field:
                return value.strip()
    return ""
