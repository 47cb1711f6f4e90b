"""Prose out of Python modules and documentation files, without importing them.

Run as a script, it reads a JSON list of paths and writes, for each, a JSON list of paragraphs on a line of its own.
Only the standard library is imported, so that many processes of it start fast.
"""

import ast
import inspect
import json
import re
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

MIN_STRING_CHARS = 300
"""A string that is no docstring is documentation if it is longer (torch and pydoc keep theirs in such)."""
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
MIN_WORDS = 6
MIN_PROSE = 0.9
"""Share of words that are made of letters, punctuation aside."""
MIN_FUNCTION_WORDS = 0.15
"""English has about 40 in 100 words; lists, tables, code and other languages have next to none of these."""
FUNCTION_WORDS = frozenset(
    "a an and are as at be been but by can do does for from has have if in into is it its may must no not of on only or "
    "should so such than that the their them then there these they this to was we when where which will with you your".split()
)

FENCE = re.compile(r"^\s*(```|~~~)")
UNDERLINE = re.compile(r"^\s*([=\-~^\"'*#+])\1{2,}\s*$")
ENTRY = re.compile(
    r"^(:\w+[^:]*:|@\w+\s+\w+:?|\*{0,2}`{0,2}\w+`{0,2}\*{0,2} ?\([^()]*(\([^()]*\)[^()]*)*\)\s?(:|--|–)|[\w*, .]{1,30}\s:\s)\s*"
)
NUMPY_ENTRY = re.compile(r"^[\w*, .]+ : ")
BULLET = re.compile(r"^(?:[-*+•]|\(?\d{1,2}[.)]|#+)\s+")
MARKUP = (
    (re.compile(r"!?\[([^\[\]]*)\]\([^()]*\)"), r"\1"),  # [text](address), the image of it too
    (re.compile(r":(?:\w+:)?\w+:`[~!]?([^`<>]*?)(?:\s*<[^`<>]*>)?`"), r"\1"),  # :class:`text <target>`
    (re.compile(r"`([^`<>]*?)\s*<[^`<>]*>`_{0,2}"), r"\1"),  # `text <address>`_
    (re.compile(r"`{1,2}([^`]*)`{1,2}_?"), r"\1"),
    (re.compile(r"(?<!\w)(\*{1,2}|_{2})(\S(?:[^*_]*\S)?)\1(?!\w)"), r"\2"),
    (re.compile(r"\\([*_|`])"), r"\1"),
    (re.compile(r"<[^<>]*>|\|\w+\||\[\d+\]_?"), ""),
    (re.compile(r"\s+"), " "),
)
WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*[.,;:!?)\"'”]*$")


def paragraphs_of(path: Path) -> list[str]:
    """The prose of one file, a paragraph each, in its order; none where the file cannot be read or parsed."""
    try:
        text = path.read_text("utf-8")
        documents = list(documentation(text)) if path.suffix == ".py" else [text]
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    if path.name == "METADATA":
        documents = [text.partition("\n\n")[2]]  # behind the header
    return [paragraph for document in documents for paragraph in clean(document)]


def documentation(source: str) -> Iterator[str]:
    """Docstrings, and long strings outside of functions, of a module in the order of its source."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of others' code
        tree = ast.parse(source)
    yield from _strings(tree, in_function=False)


def _strings(node: ast.AST, in_function: bool) -> Iterator[str]:
    """Statement by statement: walking all expressions takes several times as long as parsing."""
    if isinstance(node, DOCUMENTED) and (docstring := ast.get_docstring(node, clean=False)):
        yield docstring
    in_function = in_function or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    for field in ("body", "handlers", "orelse", "finalbody"):
        for statement in getattr(node, field, ()):
            if not isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign)):
                yield from _strings(statement, in_function)
            elif not in_function:
                yield from _long_strings(statement)


def _long_strings(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) >= MIN_STRING_CHARS:
            yield node.value


def clean(document: str) -> Iterator[str]:
    """Paragraphs of reStructuredText, Markdown or plain text that are prose, each unwrapped and without markup."""
    for block in blocks(inspect.cleandoc(document)):
        text = block
        text = BULLET.sub("", text)
        text = ENTRY.sub("", text)
        for pattern, replacement in MARKUP:
            text = pattern.sub(replacement, text)
        text = text.strip()
        if is_prose(text):
            yield text


def blocks(document: str) -> Iterator[str]:
    """Runs of lines that belong together, joined; no headings, code, doctests or tables.

    A run ends at a blank line, at a list item, and where the indentation changes (after the first line of a list item or
    of a parameter's entry, the indentation may grow).
    """
    lines: list[str] = []
    indent = 0
    fenced = False
    literal: int | None = None  # lines indented by more than this are code
    for line in [*document.split("\n"), ""]:
        stripped = line.strip()
        if FENCE.match(line):
            fenced = not fenced
        depth = len(line) - len(line.lstrip())
        if literal is not None and stripped and depth <= literal:
            literal = None
        dropped = fenced or literal is not None or bool(FENCE.match(line))
        if UNDERLINE.match(line):
            lines, dropped = lines[:-1], True  # and with it the heading
        if not stripped or dropped or stripped.startswith((">>>", "... ", "|", "+-", "..")):
            yield from _joined(lines)
            lines = []
            if stripped.startswith((".. code", ".. math", ".. testcode", ".. plot", ".. seealso", ".. image", ".. figure")):
                literal = depth
            elif stripped.startswith(">>>"):
                literal = depth - 1  # until the blank line
            if not stripped and literal is not None and literal == depth - 1:
                literal = None
            continue
        starts = bool(BULLET.match(stripped) or ENTRY.match(stripped))
        if lines and (starts or (depth != indent and not (len(lines) == 1 and depth > indent and _opens(lines[0])))):
            yield from _joined(lines)
            lines = []
        indent = depth
        if NUMPY_ENTRY.match(stripped) and not stripped.endswith("."):
            continue  # name : type, whose description follows
        lines.append(stripped)
        if stripped.endswith("::"):
            literal = depth
            lines[-1] = stripped.removesuffix(":")


def _joined(lines: list[str]) -> Iterator[str]:
    if lines:
        yield " ".join(lines)


def _opens(line: str) -> bool:
    return bool(BULLET.match(line) or ENTRY.match(line))


def is_prose(text: str) -> bool:
    words = text.split()
    if len(words) < MIN_WORDS or not (text[0].isalpha() or text[0] in "\"'(“"):
        return False
    prose = sum(1 for word in words if WORD.match(word.lstrip("(\"'“")))
    function_words = sum(1 for word in words if word.lower() in FUNCTION_WORDS)
    return prose >= MIN_PROSE * len(words) and function_words >= MIN_FUNCTION_WORDS * len(words)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # end without a traceback
    for path in json.load(sys.stdin):
        print(json.dumps(paragraphs_of(Path(path))))


if __name__ == "__main__":
    main()
