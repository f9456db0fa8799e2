"""Pictures of inputs as data URIs, without an imaging library: a PNG is a header and a deflated block."""

from __future__ import annotations

import base64
import struct
import zlib

import torch
from torch import Tensor

WAVE = (48, 96)  # pixels of a drawn wave


def is_picture(inputs: Tensor) -> bool:
    """Whether an input can be shown: one or three channels of pixels."""
    return inputs.ndim == 3 and inputs.shape[0] in (1, 3)


def is_wave(inputs: Tensor) -> bool:
    """Whether an input is a wave: one or two channels of many samples."""
    return inputs.ndim == 2 and inputs.shape[0] in (1, 2) and inputs.shape[1] >= WAVE[1]


def wave_picture(wave: Tensor) -> Tensor:
    """A wave drawn as from its least to its greatest value in each column of a gray picture."""
    height, width = WAVE
    values = wave.float().mean(0)
    values = (values / values.abs().max().clamp(min=1e-9) + 1) / 2 * (height - 1)
    parts = values[: len(values) // width * width].view(width, -1)
    low, high = parts.amin(1).round(), parts.amax(1).round()
    place = torch.arange(height - 1, -1, -1).unsqueeze(1)
    return torch.where((place >= low) & (place <= high), 40, 255).to(torch.uint8).unsqueeze(0)


def png(image: Tensor) -> bytes:
    """A PNG of (channels, height, width): uint8 as it is, floats stretched from their least to their greatest."""
    if image.dtype != torch.uint8:
        low, high = float(image.min()), float(image.max())
        image = ((image.float() - low) * (255 / (high - low or 1.0))).round().to(torch.uint8)
    channels, height, width = image.shape
    rows = image.permute(1, 2, 0).reshape(height, width * channels).contiguous().cpu().numpy()
    plain = b"".join(b"\0" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(plain, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in parts)


def data_uri(image: Tensor) -> str:
    """The picture as an address that holds it."""
    return "data:image/png;base64," + base64.b64encode(png(image)).decode("ascii")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
