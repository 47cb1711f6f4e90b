"""Changes of nested values: JSON, YAML, the headers of safetensors files."""

import copy
import json
from random import Random
from typing import Any

RAW = {"@digits@": "9" * 5000, "@deep@": "[" * 3000 + "]" * 3000, "@open@": "[" * 50_000, "@nan@": "NaN", "@inf@": "-Infinity",
       "@large@": "1e999", "@half@": r'"\ud800"', "@digits30@": "9" * 30}  # fmt: skip
"""Raw JSON that replaces the values that are its keys."""
VALUES: list[Any] = [None, True, -1, 0, 1, 3, 10**7, 10**9, 2**31, 2**63, 0.5, 1e308, "", " ", "x", "1", "x" * 70_000, "a\x1b[31m\nb", "\0", [],
                     {}, [None], [[]], {"a": 1}, {"": {}}, ["a", 1], "../../etc", "/dev/zero", *RAW]  # fmt: skip


def damage_tree(tree: Any, draw: Random) -> tuple[Any, str]:
    """Change one node of nested lists and dictionaries: another value, another key, removed, duplicated."""
    tree = copy.deepcopy(tree)
    places: list[tuple[Any, Any]] = [([tree], 0)]
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        keys = list(node) if isinstance(node, dict) else range(min(len(node), 50)) if isinstance(node, list) else []
        places += [(node, key) for key in keys]
        nodes += [node[key] for key in keys]
    holder, key = places[0] if draw.random() < 0.03 else draw.choice(places[1:] or places)
    kind = draw.choice(["value", "value", "value", "gone", "key", "wrapped", "text", "more"])
    value = draw.choice(VALUES)
    match kind:
        case "gone" if holder is not places[0][0]:
            del holder[key]
        case "key" if isinstance(holder, dict):
            holder[draw.choice(["x", "", "a\x1b[31m\nb", "class_path", "@half@", "x" * 5000])] = holder.pop(key)
        case "wrapped":
            holder[key] = draw.choice([[holder[key]], {"a": holder[key]}])
        case "text":
            holder[key] = str(holder[key])
        case "more" if isinstance(holder, list) and holder is not places[0][0]:
            holder.insert(key, draw.choice([value, holder[key]]))
        case _:
            holder[key] = value
    if holder is places[0][0]:
        tree = holder[0]
    return tree, f"{kind} at {ascii(str(key))[:40]}: {ascii(value)[:40]}"


def spelled(tree: Any) -> str:
    """Format a tree as JSON, with the raw values."""
    text = json.dumps(tree)
    for mark, raw in RAW.items():
        text = text.replace(f'"{mark}"', raw)
    return text
