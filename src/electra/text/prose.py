"""Extract prose from Python modules and documentation files, without importing them."""

import ast
import inspect
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

MIN_STRING_CHARS = 300
"""Minimum length of documentation in strings other than docstrings (torch and pydoc use such strings)."""
MIN_WORDS = 6
MIN_PROSE = 0.8
"""Minimum share of words that consist of letters, without punctuation."""
MIN_FUNCTION_WORDS = 0.15
"""Minimum share of `FUNCTION_WORDS`: about 0.4 in English, near 0 in lists, tables, code and other languages."""
ENGLISH = """
a an and are as at be been but by can do does for from has have if in into is it its may must no not of on
only or should so such than that the their them then there these they this to was we when where which will
with you your
"""
FUNCTION_WORDS = frozenset(ENGLISH.split())

FENCE = re.compile(r"^\s*(```|~~~)")
UNDERLINE = re.compile(r"^\s*([=\-~^\"'*#+])\1{2,}\s*$")
ENTRY = re.compile(
    r"^(:\w+[^:]*:"  # :param name:
    r"|@\w+\s+\w+:?"  # @param name
    r"|\*{0,2}`{0,2}\w+`{0,2}\*{0,2} ?\([^()]*(\([^()]*\)[^()]*)*\)\s?(:|--|–)"  # name (type):
    r"|[a-z_]\w*:\s"  # name: text
    r"|[\w*, .]{1,30}\s:\s)\s*"  # name : type
)
NUMPY_ENTRY = re.compile(r"^[\w*, .]+ : ")
LITERAL = (".. code", ".. math", ".. testcode", ".. plot", ".. seealso", ".. image", ".. figure")
BULLET = re.compile(r"^(?:[-*+•]|\(?\d{1,2}[.)]|#+)\s+")
MARKUP = (
    (re.compile(r"!?\[([^\[\]]*)\]\([^()]*\)"), r"\1"),  # [text](address), ![text](address)
    (re.compile(r":(?:\w+:)?\w+:`[~!]?([^`<>]*?)(?:\s*<[^`<>]*>)?`"), r"\1"),  # :class:`text <target>`
    (re.compile(r"`([^`<>]*?)\s*<[^`<>]*>`_{0,2}"), r"\1"),  # `text <address>`_
    (re.compile(r"`{1,2}([^`]*)`{1,2}_?"), r"\1"),
    (re.compile(r"(?<!\w)(\*{1,2}|_{2})(\S(?:[^*_]*\S)?)\1(?!\w)"), r"\2"),
    (re.compile(r"\\([*_|`])"), r"\1"),
    (re.compile(r"<[^<>]*>|\|\w+\||\[\d+\]_?"), ""),
    (re.compile(r"\s+"), " "),
)
WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*[.,;:!?)\"'”]*$")


def read_paragraphs(path: Path) -> list[str]:
    """Read the paragraphs of prose of one file; empty if the file cannot be read or parsed."""
    try:
        text = path.read_text("utf-8")
        documents = list(find_documentation(text)) if path.suffix == ".py" else [text]
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    if path.name == "METADATA":
        documents = [text.partition("\n\n")[2]]  # after the header
    return [paragraph for document in documents for paragraph in clean(document)]


def find_documentation(source: str) -> Iterator[str]:
    """Yield the docstrings, and long strings outside functions, of a module in source order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about other packages' code
        tree = ast.parse(source)
    yield from _find_strings(tree, in_function=False)


def _find_strings(node: ast.AST, in_function: bool) -> Iterator[str]:
    """Visit statements only: visiting all expressions takes several times as long as parsing."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        in_function = True
        yield ast.get_docstring(node, clean=False) or ""
    for field in ("body", "handlers", "orelse", "finalbody"):
        for statement in getattr(node, field, ()):
            if not isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign)):
                yield from _find_strings(statement, in_function)
            elif not in_function:
                yield from _find_constants(statement)


def _find_constants(statement: ast.Expr | ast.Assign | ast.AnnAssign) -> Iterator[str]:
    """Yield a string that is a statement (docstring of a module, class or attribute), or long strings in a statement."""
    alone = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    for node in ast.walk(statement):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and (alone or len(node.value) >= MIN_STRING_CHARS)
        ):
            yield node.value


def clean(document: str) -> Iterator[str]:
    """Yield the paragraphs of prose in reStructuredText, Markdown or plain text, unwrapped and without markup."""
    for block in split_blocks(inspect.cleandoc(document)):
        text = ENTRY.sub("", BULLET.sub("", block))
        for pattern, replacement in MARKUP:
            text = pattern.sub(replacement, text)
        text = text.strip()
        if is_prose(text):
            yield text


def split_blocks(document: str) -> Iterator[str]:
    """Yield paragraphs as single lines, without headings, code, doctests and tables.

    A paragraph ends at a blank line, before a list item or parameter entry, and where the indentation changes, except after
    a first line that begins such an item or does not end a sentence.
    """
    run: list[str] = []
    indent = 0
    for line in [*_blank_code(document.split("\n")), ""]:
        stripped = line.strip()
        if UNDERLINE.match(line):
            run = []  # a heading
            continue
        if not stripped or stripped.startswith(("|", "+-", "..")):
            yield from _join(run)
            run = []
            continue
        depth = len(line) - len(line.lstrip())
        hangs = len(run) == 1 and depth > indent and (_is_item(run[0]) or not run[0].endswith((".", ":")))
        if _is_item(stripped) or (depth != indent and not hangs):
            yield from _join(run)
            run = []
        indent = depth
        if not (NUMPY_ENTRY.match(stripped) and not stripped.endswith(".")):  # name : type, before its text
            run.append(stripped)


def _blank_code(lines: Iterable[str]) -> Iterator[str]:
    """Replace lines in fences, in doctests and indented below `::` or a directive by blank lines."""
    fenced = doctest = False
    outer: int | None = None  # indentation of the line before a literal block
    for line in lines:
        stripped = line.strip()
        depth = len(line) - len(line.lstrip())
        if FENCE.match(line):
            fenced = not fenced
            yield ""
            continue
        if not stripped:
            doctest = False
        elif outer is not None and depth <= outer:
            outer = None
        doctest = doctest or stripped.startswith(">>>")
        if fenced or doctest or outer is not None:
            yield ""
            continue
        if stripped.startswith(LITERAL) or stripped.endswith("::"):
            outer = depth
        yield line.rstrip().removesuffix(":") if stripped.endswith("::") else line


def _join(lines: list[str]) -> Iterator[str]:
    if lines:
        yield " ".join(lines)


def _is_item(line: str) -> bool:
    return bool(BULLET.match(line) or ENTRY.match(line))


def is_prose(text: str) -> bool:
    words = text.split()
    if len(words) < MIN_WORDS or not (text[0].isalpha() or text[0] in "\"'(“"):
        return False
    prose = sum(1 for word in words if WORD.match(word.lstrip("(\"'“")))
    function_words = sum(1 for word in words if word.lower() in FUNCTION_WORDS)
    return prose >= MIN_PROSE * len(words) and function_words >= MIN_FUNCTION_WORDS * len(words)
