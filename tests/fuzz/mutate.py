"""Damage at random: bytes, JSON trees and tensors made odd, each from a generator of its own."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

WORDS = (
    b"-1", b"0", b"1e999", b"NaN", b"null", b"true", b"\"", b"'", b"{", b"}", b"[", b"]", b",",
    b"\x00", b"\xff\xfe", b"\x1b[31m", b"\r\n", b"\xe2\x80\xae", b"9" * 400, b"[" * 3_000,
    b"{\"a\":" * 2_000, b"\xff" * 8, b"\x7f\xff\xff\xff\xff\xff\xff\xff", b"../" * 20, b"&a *a",
    b"</script><script>alert(1)</script>",
)  # fmt: skip

MARKUP = "</script><script>alert(1)</script>"


def damaged(data: bytes, rng: random.Random) -> bytes:
    """A file's bytes with one to four faults."""
    found = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(found) + 1)
        to = min(len(found), at + rng.choice((1, 2, 8, 64, 512)))
        match rng.randrange(7):
            case 0 if found:
                found[at % len(found)] ^= 1 << rng.randrange(8)
            case 1:
                del found[at:to]
            case 2:
                found[at:at] = found[at:to]
            case 3:
                found[at:at] = rng.choice(WORDS)
            case 4:
                found[at:to] = rng.randbytes(to - at)
            case 5:
                del found[at:]
            case _:
                found[at:to] = rng.choice(WORDS)
    return bytes(found)


def deep(levels: int) -> Any:
    """A list in a list in a list."""
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


ODD: tuple[Callable[[random.Random], Any], ...] = (
    lambda rng: None,
    lambda rng: rng.choice((True, False)),
    lambda rng: rng.choice((0, -1, 1, 2, 7, 255, 2**31, 2**63, -(2**63), 10**40, 10**320)),
    lambda rng: rng.choice((0.5, -0.0, 1e-320, 1e308, float("nan"), float("inf"))),
    lambda rng: rng.choice(
        ("", "x", "\x00", "\n", "\x1b]0;x\x07", "a" * 5_000, "../..", "\ud800", MARKUP)
    ),
    lambda rng: rng.choice(([], {}, [[]], {"": ""}, [None], [1, "a", None], {"a": {"b": []}})),
    lambda rng: [rng.randrange(-3, 60) for _ in range(rng.choice((1, 3, 200)))],
    lambda rng: deep(rng.choice((5, 60))),
    lambda rng: {str(n): n for n in range(rng.choice((1, 30)))},
)


def grown_odd(value: Any, rng: random.Random, odd: tuple[Callable[..., Any], ...] = ODD) -> Any:
    """A tree of plain data with one node, or a few, made odd, dropped, renamed or doubled."""
    found = value
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        found = _changed(found, rng, odd)
    return found


def _changed(value: Any, rng: random.Random, odd: tuple[Callable[..., Any], ...]) -> Any:
    if isinstance(value, Mapping) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        rest = dict(value)
        match rng.randrange(9):
            case 0:
                del rest[key]
            case 1:
                rest[f"{key}{rng.choice(('', '_', '.0', 's'))}x"] = rest.pop(key)
            case 2:
                rest[rng.choice(("extra", "", "0", "a.b", "blocks.9.x"))] = rng.choice(odd)(rng)
            case _:
                rest[key] = _changed(rest[key], rng, odd)
        return rest
    if isinstance(value, list) and value and rng.random() < 0.85:
        at = rng.randrange(len(value))
        match rng.randrange(6):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return value[: at + 1] + value[at:]
            case _:
                return [*value[:at], _changed(value[at], rng, odd), *value[at + 1 :]]
    if isinstance(value, Tensor):
        return odd_tensor(value, rng)
    return rng.choice(odd)(rng)


def odd_tensor(tensor: Tensor, rng: random.Random) -> Any:
    """A tensor of another shape, type, layout or device than is expected, or none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch, on layouts in beta
        return rng.choice(TENSORS)(tensor)


TENSORS: tuple[Callable[[Tensor], Any], ...] = (
    lambda t: t.double(),
    lambda t: t.half(),
    lambda t: t.to(torch.int8),
    lambda t: t.to(torch.complex64),
    lambda t: t > 0,
    lambda t: t * float("nan"),
    lambda t: torch.full_like(t, 3e38) if t.is_floating_point() else t,
    lambda t: t.to_sparse(),
    lambda t: t.to("meta"),
    lambda t: torch.quantize_per_tensor(t.float(), 0.1, 0, torch.qint8),
    lambda t: t.flatten(),
    lambda t: t[None],
    lambda t: t[:0] if t.ndim else t,
    lambda t: t[..., :1] if t.ndim else t,
    lambda t: torch.cat([t, t]) if t.ndim else t,
    lambda t: t.transpose(0, -1) if t.ndim else t,
    lambda t: torch.tensor(1.0),
    lambda t: torch.zeros(1).expand(70_000, 70_000),
    lambda t: torch.zeros((3, 0, 2)),
    lambda t: t.numpy(),
    lambda t: t.tolist(),
    lambda t: {"weight": t},
)
