"""Checkpoints of the original TensorFlow code: names and transposed kernels by rule from Hugging Face's; a writer."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor


def tf_to_hf(variables: Mapping[str, np.ndarray], network: str) -> dict[str, Tensor]:
    """Variables of an original TensorFlow checkpoint under Hugging Face's names.

    `network` is "electra" (the discriminator) or "generator"; the generator's embeddings are the discriminator's.
    Optimizer slots and the other network are left out. Kernels are stored [in, out] there, so they are transposed.
    """
    head = "discriminator_predictions" if network == "electra" else "generator_predictions"
    weights = {}
    for name, value in variables.items():
        scope, *path = name.split("/")
        shared = (
            scope == "electra" and path[0] == "embeddings" and "generator/embeddings/word_embeddings" not in variables
        )
        if path[-1] in ("adam_m", "adam_v") or not (scope in (network, head) or shared):
            continue
        weights[tf_name_to_hf(name)] = torch.from_numpy(value.T.copy() if path[-1] == "kernel" else value)
    return weights


def tf_name_to_hf(name: str) -> str:
    """One variable's name: `electra/encoder/layer_0/output/dense/kernel` -> `electra.encoder.layer.0.output.dense.weight`."""
    if name == "generator_predictions/output_bias":
        return "generator_lm_head.bias"
    name = name.removeprefix("generator/") if name.startswith("generator/") else name.removeprefix("electra/")
    parts = ["dense_prediction" if part == "dense_1" else part.replace("layer_", "layer.") for part in name.split("/")]
    last = {"kernel": "weight", "gamma": "weight", "beta": "bias", "bias": "bias"}.get(parts[-1])
    parts = [*parts, "weight"] if last is None else [*parts[:-1], last]
    return ".".join(parts if parts[0].endswith("_predictions") else ["electra", *parts])


def hf_to_tf(weights: Mapping[str, Tensor], network: str) -> dict[str, np.ndarray]:
    """Variables of a network from its weights under Hugging Face's names; `network` as in `tf_to_hf`."""
    return {hf_name_to_tf(name, network): turn(name, tensor).numpy() for name, tensor in weights.items()}


def hf_name_to_tf(name: str, network: str) -> str:
    """One weight's name: the inverse of `tf_name_to_hf`."""
    if name == "generator_lm_head.bias":
        return "generator_predictions/output_bias"
    name = name.replace("layer.", "layer_").replace("dense_prediction", "dense_1")
    *parts, last = name.split(".")
    names = {"weight": "gamma", "bias": "beta"} if parts[-1] == "LayerNorm" else {"weight": "kernel", "bias": "bias"}
    path = [*parts, *([] if parts[-1].endswith("_embeddings") else [names[last]])]
    return "/".join([network if path[0] == "electra" else path[0], *path[1:]])


def turn(name: str, tensor: Tensor) -> Tensor:
    """Transpose a kernel."""
    is_kernel = name.endswith(".weight") and tensor.dim() == 2 and "_embeddings.weight" not in name
    return (tensor.T if is_kernel else tensor).contiguous()


TYPES = {"float32": 1, "int32": 3, "int64": 9, "bfloat16": 14, "float16": 19}
CRC_TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CRC_TABLE.append(byte)


def crc32c(data: bytes) -> int:
    """The masked CRC-32C of LevelDB, bit by bit from its polynomial."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value: int) -> bytes:
    return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])


def message(fields: Mapping[int, Any]) -> bytes:
    """A protocol buffer message; field 6 is a fixed32, a list is a message in each of several fields."""
    out = b""
    for number, value in fields.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, bytes):
                out += varint(number << 3 | 2) + varint(len(each)) + each
            elif number == 6:
                out += varint(number << 3 | 5) + each.to_bytes(4, "little")
            else:
                out += varint(number << 3) + varint(each)
    return out


def block(items: list[tuple[bytes, bytes]], compression: bytes = b"\0") -> bytes:
    """A block of a LevelDB table, with a restart at every third key."""
    out, restarts, last = b"", [], b""
    for number, (key, value) in enumerate(items):
        shared = 0
        if number % 3 == 0:
            restarts.append(len(out))
        else:
            shared = next(
                (i for i, (a, b) in enumerate(zip(key, last, strict=False)) if a != b), min(len(key), len(last))
            )
        out += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        last = key
    for restart in restarts or [0]:
        out += restart.to_bytes(4, "little")
    out += max(1, len(restarts)).to_bytes(4, "little") + compression
    return out + crc32c(out).to_bytes(4, "little")


def write_checkpoint(
    prefix: Path,
    variables: Mapping[str, np.ndarray | Tensor],
    shards: int = 1,
    change: Callable[[str, dict[int, Any]], object] = lambda name, fields: None,
    compression: bytes = b"\0",
    order: Callable[[list[tuple[bytes, bytes]]], list[tuple[bytes, bytes]]] = sorted,
) -> Path:
    """Write a TensorFlow checkpoint; `change` edits the fields of an entry, or under the empty name of the header.

    Fields of an entry: 1 type, 2 shape, 3 shard, 4 offset, 5 size, 6 checksum; of the header: 1 shards, 2 endianness.
    """
    header: dict[int, Any] = {1: shards, 3: message({1: 1})}
    change("", header)
    items, data = [(b"", message(header))], [b"" for _ in range(shards)]
    for number, name in enumerate(sorted(variables)):
        tensor = torch.as_tensor(variables[name]).contiguous()
        content = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
        shard = number % shards
        fields: dict[int, Any] = {
            1: TYPES[str(tensor.dtype).removeprefix("torch.")],
            2: message({2: [message({1: size}) for size in tensor.shape]}),
            3: shard,
            4: len(data[shard]),
            5: len(content),
            6: crc32c(content),
        }
        change(name, fields)
        data[shard] += content
        items.append((name.encode(), message(fields)))
    items = order(items)
    out, handles = b"", []
    for start in range(0, len(items), 10):
        part = block(items[start : start + 10], compression)
        handles.append((items[min(start + 9, len(items) - 1)][0], varint(len(out)) + varint(len(part) - 5)))
        out += part
    places = b""
    for part in (block([]), block(handles)):
        places += varint(len(out)) + varint(len(part) - 5)
        out += part
    out += places.ljust(40, b"\0") + (0xDB4775248B80FB57).to_bytes(8, "little")
    prefix.parent.mkdir(parents=True, exist_ok=True)
    prefix.with_name(f"{prefix.name}.index").write_bytes(out)
    for shard, content in enumerate(data):
        prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{shards:05d}").write_bytes(content)
    return prefix
