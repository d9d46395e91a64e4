"""Layers as other tools store them, written the slow obvious way from codes, zero points and scales, after the public
descriptions of each layout. Codes are [neurons, inputs], scales and zero points [neurons, groups]."""

import json

import torch

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def packed_words(fields, bits):
    """int32 words of each row, one field after another from the lowest bit up, across words."""
    rows = []
    for row in fields.tolist():
        number = sum(field << (bits * place) for place, field in enumerate(row))
        count = -(-len(row) * bits // 32)
        words = [number >> (32 * word) & 0xFFFFFFFF for word in range(count)]
        rows.append([word - (1 << 32) if word >= 1 << 31 else word for word in words])
    return torch.tensor(rows, dtype=torch.int32)


def gptq(codes, zeros, scales, bits, owners=None, version=1):
    inputs = codes.shape[1]
    group = -(-inputs // scales.shape[1])
    stored = (zeros - 1) % (1 << bits) if version == 1 else zeros
    return {
        "qweight": packed_words(codes, bits).t().contiguous(),
        "qzeros": packed_words(stored.t(), bits),
        "scales": scales.t().contiguous(),
        "g_idx": (torch.arange(inputs) // group if owners is None else owners).to(torch.int32),
    }


def awq(codes, zeros, scales):
    return {
        "qweight": packed_words(interleaved(codes.t()), 4),
        "qzeros": packed_words(interleaved(zeros.t()), 4),
        "scales": scales.t().contiguous(),
    }


def interleaved(fields):
    rows, count = fields.shape
    return fields.reshape(rows, count // 8, 8)[:, :, AWQ_ORDER].reshape(rows, count)


def pack_quantized(codes, scales, bits, zeros=None, **more):
    """`codes` and `zeros` count from the least code, as they are stored."""
    parts = {
        "weight_packed": packed_words(codes, bits),
        "weight_shape": torch.tensor(codes.shape),
        "weight_scale": scales,
    }
    points = {} if zeros is None else {"weight_zero_point": packed_words(zeros.t(), bits).t().contiguous()}
    return parts | points | more


def nibbles(codes, low_first=True):
    """uint8 [..., n/2]."""
    first, second = codes[..., 0::2], codes[..., 1::2]
    low, high = (first, second) if low_first else (second, first)
    return (low | high << 4).to(torch.uint8)


def bitsandbytes(codes, absmax, table, block, nested=None, offset=0.0, kind="nf4"):
    """absmax: float32 [blocks]; or codes of it, uint8, with `nested`: (table, scales, block)."""
    state = {"quant_type": kind, "blocksize": block, "dtype": "float16", "shape": list(codes.shape)}
    parts = {"weight": nibbles(codes.flatten(), low_first=False).view(-1, 1)}
    parts |= {"weight.absmax": absmax, "weight.quant_map": table}
    if nested is not None:
        values, scales, size = nested
        parts |= {"weight.nested_quant_map": values, "weight.nested_absmax": scales}
        state |= {"nested_blocksize": size, "nested_dtype": "float32", "nested_offset": offset}
    text = torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)
    return parts | {f"weight.quant_state.bitsandbytes__{kind}": text}
