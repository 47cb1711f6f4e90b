"""Changes of files: bytes, file types, values. Each function changes a file in place and describes the change."""

import gzip
import itertools
import json
import os
import pickle
import re
import shutil
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from fuzz.trees import damage_tree, spelled


def damage_bytes(path: Path, draw: Random) -> str:
    """Truncate, flip, overwrite or insert bytes."""
    data = bytearray(path.read_bytes())
    place = draw.randrange(len(data) + 1)
    kind = draw.choice(
        ["cut", "empty", "flip", "overwrite", "insert", "zeros", "append", "repeat", "line", "random", "mark", "swap"]
    )
    match kind:
        case "cut":
            del data[place:]
        case "empty":
            data.clear()
        case "flip":
            for _ in range(draw.choice([1, 3, 30])):
                data[draw.randrange(len(data)) if data else 0 : 0] = b"" if data else b"\0"
                if data:
                    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        case "overwrite":
            data[place : place + 16] = draw.randbytes(16)
        case "insert":
            data[place:place] = draw.choice(
                [
                    b"\xff\xfe",
                    b"\0" * 9,
                    b"\xed\xa0\x80",
                    b"\n\n",
                    b"\r",
                    b'"',
                    b"\x1b[31m",
                    b"\t\t",
                    "\u2028\u202e".encode(),
                ]
            )
        case "zeros":
            data[:] = bytes(draw.choice([1, 100, 100_000]))
        case "append":
            data += draw.randbytes(50)
        case "repeat":
            data += bytes(data)
        case "line":
            data[place:place] = b"a " * draw.choice([50_000, 6_000_000])
        case "random":
            data[:] = draw.randbytes(draw.choice([1, 8, 1000]))
        case "mark":
            data[:0] = b"\xef\xbb\xbf"
        case "swap":
            data.reverse()
    path.write_bytes(data)
    return f"{path.name}: bytes: {kind} at {place}"


def damage_node(path: Path, draw: Random) -> str:
    """Replace a file by nothing, a folder, a pipe, a device, a socket or a link, or make it unreadable."""
    kind = draw.choice(
        ["missing", "folder", "pipe", "zero", "null", "socket", "dangling", "loop", "unreadable", "huge"]
    )
    if kind == "unreadable":
        path.chmod(0)
        return f"{path.name}: no permissions"
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "zero" | "null":
            path.symlink_to(f"/dev/{kind}")
        case "socket":
            with socket.socket(socket.AF_UNIX) as one:
                before = Path.cwd()
                os.chdir(path.parent)  # the length of a socket's path is limited
                one.bind(path.name)
                os.chdir(before)
        case "dangling":
            path.symlink_to("nowhere")
        case "loop":
            path.symlink_to(path.name)
        case "huge":
            with path.open("wb") as file:
                file.truncate(1 << 30)
    return f"{path.name}: is {kind}"


def damage_json(path: Path, draw: Random) -> str:
    """Change a value, key or line of a JSON or JSONL file."""
    lines = path.read_text().splitlines()
    is_lines = path.suffix == ".jsonl"
    number = draw.randrange(len(lines)) if is_lines else 0
    tree = json.loads(lines[number] if is_lines else "\n".join(lines))
    tree, what = damage_tree(tree, draw)
    text = spelled(tree)
    if draw.random() < 0.1 and (keys := re.findall(r'("\w+"): ', text)):
        text = text.replace("{", "{" + f"{draw.choice(keys)}: 1, ", 1)
        what += ", a key twice"
    if is_lines:
        lines[number] = text
    path.write_text("\n".join(lines) + "\n" if is_lines else text, errors="surrogatepass")
    return f"{path.name}: {what}"


def damage_yaml(path: Path, draw: Random) -> str:
    """Change a value of a YAML file, or add aliases, tags or keys of other types."""
    import yaml

    if draw.random() < 0.5:
        tree, what = damage_tree(yaml.safe_load(path.read_text()), draw)
        path.write_text(spelled(tree), errors="surrogatepass")
        return f"{path.name}: {what}"
    names = "abcdefghijklmnop"
    bomb = f"a: &a [{', '.join(['x'] * 9)}]\n" + "".join(
        f"{y}: &{y} [{', '.join([f'*{x}'] * 9)}]\n" for x, y in itertools.pairwise(names)
    )
    line = draw.choice(
        [bomb, "x: &x [*x]\n", "3: 4\n", "null: 1\n", "1.5: {2: 3}\n", "? [a, b]\n: c\n", "yes: no\n", "seed: 2001-99-99\n", "seed: 0x_\n",
         "seed: 1:59:59\n", "steps: " + "1:59" * 3000 + "\n", "seed: .nan\n", "hours: .inf\n", "a: " + "[" * 9000, "seed: 5\nseed: 6\n", "<<: *a\n", "<<: 5\n",
         "a: !!python/object/apply:os.mkdir ['executed']\n", "model: {class_path: canary.Canary}\n", "model.class_path: canary.Canary\n",
         "model: canary.Canary\n", "optimizer: canary.py\n", "a: !!binary x\n", "a: !!timestamp x\n", "seed: !!int x\n", "text: '\\0'\n", 'text: ["\\0"]\n',
         'text: ["\\ud800"]\n', "text: /dev/zero\n", "---\n---\n", "%YAML 9\n", "\t\n", "a: |\n b\n", "=: 1\n", "seed: '*a'\n", "preset: [tiny]\n"]
    )  # fmt: skip
    content = path.read_text()
    path.write_text(line + content if draw.random() < 0.5 else content + line)
    return f"{path.name}: {line[:60]!r}"


def damage_parquet(path: Path, draw: Random) -> str:
    """Change the columns of a Parquet file."""
    table = pq.read_table(path)
    kind = draw.choice(
        [
            "twice",
            "rows",
            "columns",
            "numbers",
            "null",
            "lists",
            "structs",
            "binary",
            "names",
            "dictionary",
            "nulls",
            "long",
        ]
    )
    name = draw.choice(table.column_names)
    size = table.num_rows
    column = {
        "numbers": pa.array(range(size)),
        "null": pa.nulls(size),
        "lists": pa.array([["a"]] * size),
        "structs": pa.array([{"a": 1}] * size),
        "binary": pa.array([b"\xff\xfe"] * size),
        "dictionary": pa.array(["a b c"] * size).dictionary_encode(),
        "nulls": pa.array([None, *["a b"] * (size - 1)]),
        "long": pa.array(["a b " * 3_000_000, *["a b"] * (size - 1)]),
    }.get(kind)
    at = table.column_names.index(name)
    match kind:
        case "twice":
            table = pa.Table.from_arrays([*table.columns, table[name]], names=[*table.column_names, name])
        case "rows":
            table = table.slice(0, 0)
        case "columns":
            table = table.drop_columns([name])
        case "names":
            table = table.rename_columns([draw.choice(["", "a\x1b[31m\nb", each]) for each in table.column_names])
        case _:
            table = table.set_column(at, name, column)
    if kind == "binary" and draw.random() < 0.5:  # text that is not UTF-8, which Arrow does not check
        table = table.set_column(at, name, pa.Array.from_buffers(pa.string(), size, column.buffers()))
    pq.write_table(table, path)
    return f"{path.name}: column {name}: {kind}"


def damage_tensors(path: Path, draw: Random) -> str:
    """Change the header of a safetensors file, or the values of a tensor."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    kind = draw.choice(["header", "header", "size", "values", "nan"])
    if kind == "header":
        header, what = damage_tree(json.loads(data[8 : 8 + size]), draw)
        text = spelled(header).encode(errors="surrogatepass")
        path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])
        return f"{path.name}: header: {what}"
    if kind == "size":
        path.write_bytes(struct.pack("<Q", draw.choice([0, 1, size - 1, size + 1, 2**40, 2**63])) + data[8:])
    else:
        body = (
            b"\xff\xff\xff\x7f" * ((len(data) - 8 - size) // 4)
            if kind == "nan"
            else draw.randbytes(len(data) - 8 - size)
        )
        path.write_bytes(data[: 8 + size] + body)
    return f"{path.name}: {kind}"


class Payload:
    """Creates the folder "executed" when it is unpickled."""

    def __reduce__(self) -> tuple[Callable, tuple[str]]:
        return os.mkdir, ("executed",)


def plant_pickle(path: Path, draw: Random) -> str:
    """Replace a file by a pickle that would run code, or write one beside it."""
    content = pickle.dumps({"weight": Payload()} if draw.random() < 0.5 else Payload())
    place = draw.choice([path, path.with_name("pytorch_model.bin"), path.with_name("training_args.bin")])
    if place != path and draw.random() < 0.7:
        path.unlink()
    place.write_bytes(content)
    return f"{place.name}: a pickle in place of {path.name}"


def damage_packed(path: Path, draw: Random) -> str:
    """Change the content of a compressed file, or replace it by a decompression bomb."""
    pack, unpack = {
        ".gz": (gzip.compress, gzip.decompress),
        ".zst": (zstandard.ZstdCompressor().compress, zstandard.ZstdDecompressor().decompress),
    }[path.suffix]
    if draw.random() < 0.2:
        path.write_bytes(pack(draw.choice([b"\0", b" ", b"a"]) * draw.choice([5_000_000, 50_000_000])))
        return f"{path.name}: a bomb"
    inner = path.with_name(path.stem)
    inner.write_bytes(unpack(path.read_bytes()))
    what = damage(inner, draw, whole=False)
    if inner.is_file():
        path.write_bytes(pack(inner.read_bytes()))
        inner.unlink()
    return f"{what}, compressed"


STRUCTURED: dict[str, Callable[[Path, Random], str]] = {
    ".json": damage_json, ".jsonl": damage_json, ".yaml": damage_yaml, ".parquet": damage_parquet, ".safetensors": damage_tensors,
    ".gz": damage_packed, ".zst": damage_packed,
}  # fmt: skip


def damage(path: Path, draw: Random, whole: bool = True) -> str:
    """Change a file in one of the ways for its type; with `whole`, the file may also be removed or replaced."""
    structured = STRUCTURED.get(path.suffix)
    chance = draw.random()
    if whole and chance < 0.12:
        return damage_node(path, draw)
    if structured and chance < 0.72 and path.stat().st_size:
        return structured(path, draw)
    return damage_bytes(path, draw)
