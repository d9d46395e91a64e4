"""Fields of a few bits in bytes and 32-bit words, least significant first."""

import numpy as np
import torch
from torch import Tensor

BYTE = 8


def unpack_fields(words: Tensor, bits: int, count: int) -> Tensor:
    """uint8 [rows, count] of integers [rows, words]: field i is in bits i·bits and up of its row."""
    data = words.contiguous().view(torch.uint8)
    if BYTE % bits == 0:
        shifts = torch.arange(0, BYTE, bits, dtype=torch.uint8)
        fields = (data.unsqueeze(-1) >> shifts).bitwise_and_((1 << bits) - 1)
        return fields.view(len(data), -1)[:, :count].contiguous()
    ones = np.unpackbits(data.numpy(), axis=1, bitorder="little")[:, : count * bits]
    places = np.left_shift(1, np.arange(bits)).astype(np.uint8)
    return torch.from_numpy((ones.reshape(len(data), count, bits) * places).sum(-1, dtype=np.uint8))


def words_of(count: int, bits: int) -> int:
    """32-bit words that `count` fields take."""
    return -(-count * bits // 32)


def high_nibble_first(data: Tensor) -> Tensor:
    """uint8 [..., 2n] of bytes [..., n]."""
    return torch.stack((data >> 4, data & 15), -1).flatten(-2)


def low_nibble_first(data: Tensor) -> Tensor:
    """uint8 [..., 2n] of bytes [..., n]."""
    return torch.stack((data & 15, data >> 4), -1).flatten(-2)


def pack_fields(fields: Tensor, bits: int) -> Tensor:
    """Undo `unpack_fields` for fields of 1, 2, 4 or 8 bits: uint8 [rows, count] to int32 [rows, words]."""
    per_word, rows = 32 // bits, len(fields)
    padded = torch.nn.functional.pad(fields, (0, -fields.shape[1] % per_word))
    parts = padded.reshape(rows, -1, BYTE // bits)
    data = parts[:, :, 0].clone()
    for place in range(1, BYTE // bits):
        data |= parts[:, :, place] << (place * bits)
    return data.contiguous().view(torch.int32)


def pack_nibbles(codes: Tensor) -> Tensor:
    """Undo `low_nibble_first`."""
    return codes[..., 0::2] | codes[..., 1::2] << 4
