"""Index files of TensorFlow checkpoints: where each tensor is, by name.

The file is a LevelDB table (https://github.com/google/leveldb/blob/main/doc/table_format.md). Its values are protocol buffer
messages, BundleHeaderProto under the empty name and BundleEntryProto under each other one (tensor_bundle.proto of TensorFlow).
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from electra.errors import ModelError
from electra.external import require_extra
from electra.schema import read_bytes

INDEX_BYTES = 16 << 20
"""Maximum size; the index of ELECTRA-Large with the optimizer's state has about 100 KB."""
MAX_NAMES, MAX_NAME_BYTES, MAX_SHARDS, MAX_DIMENSIONS = 100_000, 1_024, 10_000, 8
MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
"""Last bytes of a LevelDB table."""
FOOTER_BYTES = 48
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types of protocol buffers."""


@dataclass(frozen=True)
class Entry:
    """Where a tensor is."""

    dtype: int
    """Number in TensorFlow's enum DataType."""
    shape: tuple[int, ...]
    shard: int
    """Number of the data file."""
    offset: int
    size: int
    """In bytes, as is `offset`."""
    checksum: int
    """Masked CRC-32C of the bytes."""
    is_partitioned: bool
    """Whether the tensor is in several slices, each with an entry of its own."""


@dataclass(frozen=True)
class Index:
    """Content of an index file."""

    num_shards: int
    entries: dict[str, Entry]


class Reader:
    """Reads from the front of bytes; a `ValueError` where they end too early."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, number: int) -> bytes:
        """Read a number of bytes."""
        if number > len(self.data) - self.at:
            raise ValueError("it is truncated")
        self.at += number
        return self.data[self.at - number : self.at]

    def varint(self) -> int:
        """Read an integer of seven bits per byte, the lowest first."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("a number has more than 10 bytes")


def read_index(file: Path) -> Index:
    """Read an index file.

    Raises:
        ModelError: it is missing, truncated, damaged, compressed, or of another format.
        UsageError: the extra `tf` is not installed.
    """
    require_extra("tf", f"{file}: a TensorFlow checkpoint")
    data = read_bytes(file, ModelError, INDEX_BYTES)
    if len(data) < FOOTER_BYTES or not data.endswith(MAGIC):
        raise ModelError("not-index", f"{file}: not the index of a TensorFlow checkpoint, or truncated")
    try:
        entries = dict(iterate_table(data))
        if "" not in entries:
            raise ValueError("it has no header")
        num_shards = parse_header(entries.pop(""))
        # Names of slices begin with NUL.
        tensors = {name: parse_entry(each) for name, each in entries.items() if not name.startswith("\0")}
    except ValueError as problem:
        raise ModelError("damaged", f"{file}: damaged: {problem}") from None
    return Index(num_shards, tensors)


def iterate_table(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the names and values of a table. Raises a `ValueError` unless they are sorted."""
    footer = Reader(data[-FOOTER_BYTES:])
    for _ in range(2):  # the block of filters
        footer.varint()
    last, number = b"", 0
    for _, handle in iterate_block(data, footer.varint(), footer.varint()):
        block = Reader(handle)
        for name, value in iterate_block(data, block.varint(), block.varint()):
            if number and name <= last:
                raise ValueError("names are repeated or not sorted")
            if number >= MAX_NAMES:
                raise ValueError(f"it has more than {MAX_NAMES:,} names")
            last, number = name, number + 1
            # Only the names of slices can have bytes that are not UTF-8.
            yield name.decode(errors="replace"), value


def iterate_block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block, of which each key has a prefix in common with the one before."""
    stored = Reader(data)
    stored.take(offset)
    content, compression, checksum = stored.take(size), stored.take(1), int.from_bytes(stored.take(4), "little")
    if compute_checksum(content + compression) != checksum:
        raise ValueError(f"the checksum of the block at byte {offset:,} differs")
    if compression != b"\0":
        raise ValueError("its blocks are compressed, which TensorFlow does not do")
    if len(content) < 4:
        raise ValueError("it is truncated")
    num_restarts = int.from_bytes(content[-4:], "little")
    reader = Reader(content[: max(0, len(content) - 4 - 4 * num_restarts)])
    key = b""
    while reader.at < len(reader.data):
        shared, rest, length = reader.varint(), reader.varint(), reader.varint()
        if shared > len(key) or shared + rest > MAX_NAME_BYTES:
            raise ValueError(f"a name is malformed or longer than {MAX_NAME_BYTES:,} bytes")
        key = key[:shared] + reader.take(rest)
        yield key, reader.take(length)


def compute_checksum(data: bytes) -> int:
    """Compute the masked CRC-32C of LevelDB and TensorFlow."""
    import google_crc32c  # an extra

    value = google_crc32c.value(data)
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def parse_message(data: bytes) -> dict[int, list[int | bytes]]:
    """Parse a protocol buffer message without its schema: number of a field -> its values."""
    reader, fields = Reader(data), defaultdict[int, list[int | bytes]](list)
    while reader.at < len(data):
        key = reader.varint()
        match key & 7:
            case wire if wire == VARINT:
                value: int | bytes = reader.varint()
            case wire if wire == BYTES:
                value = reader.take(reader.varint())
            case wire if wire in (FIXED32, FIXED64):
                value = int.from_bytes(reader.take(4 if wire == FIXED32 else 8), "little")
            case wire:
                raise ValueError(f"a message has the wire type {wire}")
        fields[key >> 3].append(value)
    return fields


def get_int(message: dict[int, list[int | bytes]], field: int, default: int = 0) -> int:
    """Return the value of a numeric field."""
    value = message.get(field, [default])[-1]
    if not isinstance(value, int):
        raise ValueError(f"field {field} of a message is not a number")
    return value


def get_messages(message: dict[int, list[int | bytes]], field: int) -> list[dict[int, list[int | bytes]]]:
    """Return the values of a field that are messages."""
    values = message.get(field, [])
    return [parse_message(value) for value in values if isinstance(value, bytes)]


def parse_header(data: bytes) -> int:
    """Parse a BundleHeaderProto; return the number of data files."""
    message = parse_message(data)
    num_shards = get_int(message, 1)
    if not 1 <= num_shards <= MAX_SHARDS:
        raise ValueError(f"it has {num_shards:,} data files")
    if get_int(message, 2):
        raise ValueError("its numbers are big-endian, only little-endian ones are supported")
    return num_shards


def parse_entry(data: bytes) -> Entry:
    """Parse a BundleEntryProto."""
    message = parse_message(data)
    shapes = get_messages(message, 2)
    sizes = [get_int(dimension, 1) for shape in shapes for dimension in get_messages(shape, 2)]
    if len(sizes) > MAX_DIMENSIONS:
        raise ValueError(f"a tensor has {len(sizes):,} dimensions")
    dtype, shard, offset, size, checksum = (get_int(message, field) for field in (1, 3, 4, 5, 6))
    return Entry(dtype, tuple(sizes), shard, offset, size, checksum, is_partitioned=7 in message)
