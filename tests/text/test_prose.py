"""Extraction of prose from documentation in several kinds of markup, and the built-in corpus made of it."""

import subprocess
from pathlib import Path

import pytest
from support.errors import notices

from electra.text import builtin
from electra.text.corpus import Corpus
from electra.text.prose import clean, find_documentation, read_paragraphs, split_blocks

MODULE = (
    '''"""The module's docstring says what it is for,
over two lines of the source."""

TOPICS = {"assert": r"""Assert statements are a convenient way to insert debugging assertions into a program.
'''
    + "It is a long string and so it is part of the documentation of this module. " * 5
    + '''"""}
SHORT = "a short string is an error message and not documentation"
BROKEN = "\\d"

class Thing:
    """A thing that is documented by this one line of text."""

    size: int
    """How large the thing is, in units of the smallest thing."""

    def method(self):
        """A method of the thing that does what it says."""
        "A second string in a function is not documentation but a mistake, however long it is. '''
    + "x " * 200
    + '''"

        async def inner():
            """A function within a function has its own docstring too."""

try:
    pass
except ImportError:
    def fallback():
        """What to call where the import is not possible."""
'''
)


def test_documentation_is_found_in_the_order_of_the_source_without_warnings() -> None:
    found = [text for text in find_documentation(MODULE) if text]
    assert [text.split()[0:3] for text in found] == [
        ["The", "module's", "docstring"],
        ["Assert", "statements", "are"],
        ["A", "thing", "that"],
        ["How", "large", "the"],
        ["A", "method", "of"],
        ["A", "function", "within"],
        ["What", "to", "call"],
    ]


NUMPY_STYLE = """
    Return the sum of all the elements that are in the array,
    over the axis that is given.

    Parameters
    ----------
    a : array_like
        The elements to sum, which can be of any type that
        has an addition.
    axis : None or int, optional

    Examples
    --------
    >>> np.sum([0.5, 1.5])
    this output of the doctest is not to be read as prose

    After the example there is text that is prose again.
    """

GOOGLE_STYLE = """
    Args:
        name (str): The name of the thing that is to be made,
            which may be long.
        depth: How deep to go into the tree that is below
            the root of it.
    :param size: the size of the thing that is to be made
    """

MARKDOWN = """
# A heading is not prose of the text

See [the guide](https://example.org/guide_to_it.html) for what `this` is and **how** it is to be used.

```python
this is code and not the text of the document
```

| a table | of the | things that are in it |

1. The first of the items is this one
   and it goes on here.
- The second of the items is that one.

0.5 1.5 2.5 3.5 4.5 5.5 6.5 the of and
Numpy Scipy Torch Pandas Pyarrow Rich Tokenizers Safetensors
"""

RST = """
Use :class:`Thing <pkg.Thing>` or ``it`` as in the `manual <https://example.org>`_ like this::

    here is the code that is shown to the reader of it

.. code-block:: python

   and here is some more of the code that is shown

This is the text that is again at the margin.
"""


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (
            NUMPY_STYLE,
            [
                "Return the sum of all the elements that are in the array, over the axis that is given.",
                "The elements to sum, which can be of any type that has an addition.",
                "After the example there is text that is prose again.",
            ],
        ),
        (
            GOOGLE_STYLE,
            [
                "The name of the thing that is to be made, which may be long.",
                "How deep to go into the tree that is below the root of it.",
                "the size of the thing that is to be made",
            ],
        ),
        (
            MARKDOWN,
            [
                "A heading is not prose of the text",  # a heading that is a sentence cannot be told from one
                "See the guide for what this is and how it is to be used.",
                "The first of the items is this one and it goes on here.",
                "The second of the items is that one.",
            ],
        ),
        (
            RST,
            [
                "Use Thing or it as in the manual like this:",
                "This is the text that is again at the margin.",
            ],
        ),
    ],
    ids=["numpy", "google", "markdown", "rst"],
)
def test_markup_is_removed(document: str, expected: list[str]) -> None:
    assert list(clean(document)) == expected


def test_heading_with_an_underline_is_dropped() -> None:
    assert list(split_blocks("What is this for\n================\nIt is text.")) == ["It is text."]


def test_metadata_header_and_broken_files_have_no_prose(tmp_path: Path) -> None:
    metadata = tmp_path / "METADATA"
    metadata.write_text("Summary: this is the header of the file and not text\n\nThis is the text of the description.")
    assert read_paragraphs(metadata) == ["This is the text of the description."]
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:")
    latin = tmp_path / "latin.py"
    latin.write_bytes(b'"""It is a docstring in the encoding of the West: \xe9"""')
    assert read_paragraphs(broken) == read_paragraphs(latin) == read_paragraphs(tmp_path / "absent.py") == []


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small installation in place of the interpreter's, and an empty cache."""
    folder = tmp_path / "lib"
    for name in ("a", "b", "c", "tests", ".hidden", "electra"):
        (folder / name).mkdir(parents=True)
        (folder / name / "module.py").write_text(MODULE.replace("a convenient way", f"a convenient way ({name})"))
    (folder / "readme.md").write_text("This is text of the readme that stands by itself. " * 5)
    monkeypatch.setattr(builtin.sysconfig, "get_path", lambda name: str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    builtin.get_builtin_text.cache_clear()
    yield folder
    builtin.get_builtin_text.cache_clear()


@pytest.mark.slow
def test_builtin_corpus_has_no_repetitions_and_is_cached(installation: Path, monkeypatch) -> None:
    corpus = Corpus(("builtin",))
    documents = [piece.lines for piece in corpus]
    assert len(documents) == 4  # three packages and the readme; no tests, hidden folders or electra itself
    assert documents[0][0].startswith("The module's docstring says what it is for, over two lines")
    assert [len(lines) for lines in documents] == [7, 1, 1, 1], "paragraphs of all modules are in the first one only"
    assert "(b)" in documents[1][0]
    assert corpus.describe() == [("builtin", corpus.total_bytes())]
    first = builtin.get_builtin_text().read_bytes()

    builtin.get_builtin_text.cache_clear()
    monkeypatch.setattr(builtin, "extract_prose", lambda files: pytest.fail("extracted again"))
    assert builtin.get_builtin_text().read_bytes() == first
    monkeypatch.setattr(builtin, "VERSION", -1)
    builtin.get_builtin_text.cache_clear()
    with pytest.raises(pytest.fail.Exception, match="extracted again"):
        builtin.get_builtin_text()


def test_builtin_works_without_a_cache_directory(installation: Path, tmp_path: Path, monkeypatch, caplog) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(list(Corpus(("builtin",)))) == 4
    (line,) = notices(caplog, "no-cache")
    assert str(tmp_path / "file/electra") in line


def test_extraction_does_not_depend_on_the_number_of_processes(installation: Path, monkeypatch) -> None:
    files = list(builtin.find_documentation_files())
    texts = []
    for cores in (1, 3):
        monkeypatch.setattr(builtin.os, "sched_getaffinity", lambda pid, cores=cores: set(range(cores)))
        texts.append(builtin.extract_prose(files))
    assert texts[0] == texts[1]


def test_standard_library_has_prose(tmp_path: Path) -> None:
    import pathlib

    paragraphs = read_paragraphs(
        Path(pathlib.__file__) if pathlib.__file__.endswith("pathlib.py") else Path(subprocess.__file__)
    )
    assert sum(map(len, paragraphs)) > 1000
