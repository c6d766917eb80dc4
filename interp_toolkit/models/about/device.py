"""Which device a name means, and whether it can be used here."""

from __future__ import annotations

import torch

from interp_toolkit.errors import InputError


def find_device(name: str | torch.device) -> torch.device:
    """The device of that name; "auto" is a GPU if there is one.

    Raises InputError when there is no such device, or none that computes.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"{name!r} is no device: give auto, cpu or cuda") from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise InputError("this machine has no usable CUDA device: give --device cpu or auto")
    try:
        torch.zeros(1, device=place).item()  # `meta` has no numbers; others may not be there
    except Exception as error:  # each backend has its own
        raise InputError(f"the device {name} cannot be used here: give auto or cpu") from error
    return place
