"""Tokenizers against those of transformers on unusual strings; training, saving and loading; errors for invalid files."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.errors import raises
from support.places import DATA
from support.toy import DIFFICULT_TEXTS, TEXT

from electra.errors import StorageError, TextError, TokenizerError, UsageError
from electra.text import vocabulary
from electra.text.corpus import Corpus
from electra.text.tokenizer import SPECIAL_TOKENS, Normalization, Tokenizer, load_tokenizer
from electra.text.vocabulary import build_alphabet, sample_corpus, train_tokenizer

SHARED = DATA
BERT_VOCABULARY = SHARED / "vocab.txt"
needs_bert = pytest.mark.skipif(not BERT_VOCABULARY.is_file(), reason=f"{BERT_VOCABULARY} is absent")


@pytest.mark.slow
@needs_bert
@pytest.mark.parametrize("cased", [False, True])
@pytest.mark.parametrize("strip_accents", [None, False, True])
def test_ids_equal_those_of_transformers(tmp_path: Path, cased: bool, strip_accents: bool | None) -> None:
    transformers = pytest.importorskip("transformers")
    (tmp_path / "vocab.txt").write_bytes(BERT_VOCABULARY.read_bytes())
    config = {"do_lower_case": not cased, "strip_accents": strip_accents}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    ours = load_tokenizer(tmp_path)
    assert ours.vocab_size == 30522
    assert our_special_ids(ours) == (0, 100, 101, 102, 103) == theirs_special_ids(theirs)
    assert (ours.pipeline.lowercase, ours.pipeline.strip_accents) == (
        not cased,
        not cased if strip_accents is None else strip_accents,
    )
    lines = DIFFICULT_TEXTS + samples()
    assert ours.encode_lines(lines) == theirs(lines, add_special_tokens=False)["input_ids"]


def samples() -> list[str]:
    import zstandard

    lines = []
    for path in sorted(SHARED.glob("multilingual/*.zst")):
        with path.open("rb") as file:
            lines += zstandard.ZstdDecompressor().stream_reader(file).read(100_000).decode(errors="ignore").split("\n")
    return [line for line in lines if not any(len(word) > 99 for word in line.split())]


def our_special_ids(tokenizer: Tokenizer) -> tuple[int, ...]:
    pad, *others = tokenizer.special_ids
    return pad, tokenizer.unk_id, *others


def theirs_special_ids(tokenizer) -> tuple[int, ...]:
    return tuple(tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)))


def test_offsets_refer_to_the_original_text(trained: Tokenizer) -> None:
    lines = [*DIFFICULT_TEXTS, *TEXT.split("\n")]
    encoded = trained.encode_with_offsets(lines)
    assert [ids for ids, _ in encoded] == trained.encode_lines(lines)
    for line, (_, offsets) in zip(lines, encoded, strict=True):
        assert all(0 <= start < end <= len(line) for start, end in offsets)
        assert offsets == sorted(offsets)

    line = "The  LAZY\tcafé, Größe\u00ad Übermut\x07 e\u0301x"
    ((ids, offsets),) = trained.encode_with_offsets([line])
    words: list[str] = []
    for token, (start, end) in zip(trained.tokens(ids), offsets, strict=True):
        if token.startswith("##"):
            words[-1] += line[start:end]
        else:
            words.append(line[start:end])
    expected = ["The", "LAZY", "café", ",", "Größe", "Übermut", "e\u0301x"]
    assert words[:-1] == expected[:-1]
    assert words[-1].replace("\u0301", "") == "ex"  # a removed accent may be outside the offsets


@needs_bert
def test_words_of_up_to_200_characters_are_split_as_in_berts_code() -> None:
    ours = load_tokenizer(BERT_VOCABULARY)
    within, over = ours.encode_lines(["b" * 200, "b" * 201])
    assert len(within) > 1
    assert over == [ours.unk_id]


@needs_bert
def test_special_tokens_in_text_are_ordinary_words() -> None:
    ours = load_tokenizer(BERT_VOCABULARY)
    for token in SPECIAL_TOKENS:
        (ids,) = ours.encode_lines([f"a {token} b"])
        assert ours.tokens(ids)[1] == "["
        assert ours.tokens(ids)[-2] == "]"
        assert not set(ids) & set(our_special_ids(ours))


@pytest.mark.parametrize("model_config", [True, False])
def test_transformers_loads_a_saved_tokenizer(trained: Tokenizer, tmp_path: Path, model_config: bool) -> None:
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "saved"
    trained.save(folder)
    if model_config:
        (folder / "config.json").write_text(json.dumps({"model_type": "electra"}))
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert len(theirs) == trained.vocab_size
    assert theirs_special_ids(theirs) == our_special_ids(trained) == (0, 1, 2, 3, 4)
    assert (theirs.pad_token_id, theirs.mask_token_id, theirs.padding_side) == (0, 4, "right")
    lines = [*DIFFICULT_TEXTS, *TEXT.split("\n"), "b" * 150 + " b"]
    ours = trained.encode_lines(lines)
    assert theirs(lines, add_special_tokens=False)["input_ids"] == ours

    cls, sep, mask = trained.cls_id, trained.sep_id, trained.mask_id
    pair = theirs("the dog", "the [MASK] runs")
    a, rest, b = trained.encode_lines(["the dog", "the", "runs"])
    assert pair["input_ids"] == [cls, *a, sep, *rest, mask, *b, sep]
    assert pair["token_type_ids"] == [0] * (len(a) + 2) + [1] * (len(rest) + len(b) + 2)
    batch = theirs(["the dog runs", "dog"], padding=True)
    assert batch["input_ids"][1][-1] == trained.pad_id
    assert batch["attention_mask"][1][-1] == 0
    assert theirs.decode(theirs("the lazy dog")["input_ids"], skip_special_tokens=True) == "the lazy dog"


def test_saving_and_loading_preserves_the_tokenizer(trained: Tokenizer, tmp_path: Path) -> None:
    folder = tmp_path / "new/folder"
    trained.save(folder)
    for path in (folder, folder / "tokenizer.json", folder / "vocab.txt", str(folder)):
        loaded = load_tokenizer(path)
        assert loaded == trained
        assert loaded.fingerprint == trained.fingerprint
    (folder / "tokenizer.json").unlink()
    assert load_tokenizer(folder) == trained
    assert sorted(path.name for path in folder.iterdir()) == ["tokenizer_config.json", "vocab.txt"]


def test_fingerprint_depends_on_vocabulary_and_settings(trained: Tokenizer) -> None:
    swapped = (*trained.vocabulary[:-2], trained.vocabulary[-1], trained.vocabulary[-2])
    others = [replace(trained, vocabulary=swapped), replace(trained, vocabulary=trained.vocabulary[:-1])]
    for change in (
        {"lowercase": not trained.pipeline.lowercase},
        {"strip_accents": not trained.pipeline.strip_accents},
        {"split_chinese": False},
        {"max_word_chars": 100},
    ):
        others.append(replace(trained, pipeline=replace(trained.pipeline, **change)))
    assert len({tokenizer.fingerprint for tokenizer in [trained, *others]}) == 7


@needs_bert
def test_truncation_and_padding_in_a_tokenizer_file_are_ignored(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    (tmp_path / "vocab.txt").write_bytes(BERT_VOCABULARY.read_bytes())
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path, tokenize_chinese_chars=False)
    theirs(["one", "one and two"], padding="max_length", truncation=True, max_length=8)  # kept in the file
    theirs.save_pretrained(tmp_path / "theirs")
    assert json.loads((tmp_path / "theirs/tokenizer.json").read_text())["truncation"] is not None
    ours = load_tokenizer(tmp_path / "theirs")
    line = "中文 is not split and " + "the line is long " * 20
    assert ours.pipeline == Normalization(split_chinese=False, max_word_chars=100)
    assert ours.encode_lines([line, "a"]) == theirs([line, "a"], add_special_tokens=False)["input_ids"]


def test_normalization_of_the_trained_vocabulary(corpus: Corpus) -> None:
    uncased = train_tokenizer(corpus, 200)
    accents = train_tokenizer(corpus, 200, keep_accents=True)
    cased = train_tokenizer(corpus, 200, cased=True)
    for tokenizer, letters in ((uncased, ""), (accents, "öüïé"), (cased, "öÜïéTG")):
        found = {char for token in tokenizer.vocabulary[5:] for char in token}
        assert {char for char in found if not char.isascii() or char.isupper()} >= set(letters)
        assert bool(found & set("öÜïé")) == bool(letters)
    assert uncased.encode_lines(["GRÖSSE Café"]) == uncased.encode_lines(["grosse cafe"])
    assert accents.encode_lines(["CAFÉ"]) == accents.encode_lines(["café"]) != accents.encode_lines(["cafe"])
    assert cased.encode_lines(["The"]) != cased.encode_lines(["the"])


def test_vocabulary_has_all_letters_in_both_positions_and_frequent_words(trained: Tokenizer) -> None:
    assert trained.vocabulary[:5] == SPECIAL_TOKENS
    assert {"the", "dog", "fox", "quick", "##s"} <= set(trained.vocabulary)
    letters = {token for token in trained.vocabulary if len(token) == 1 and token.isalpha()}
    assert {f"##{letter}" for letter in letters} <= set(trained.vocabulary)
    assert len(set(trained.vocabulary)) == trained.vocab_size <= 200
    assert trained.unk_id not in trained.encode_lines(["zyxwv qqq, ;;."])[0]


TRAIN = """
import sys
from electra.text.corpus import Corpus
from electra.text.vocabulary import train_tokenizer
print(train_tokenizer(Corpus((sys.argv[1],)), 300).fingerprint)
"""


@pytest.mark.slow
def test_training_is_deterministic_across_processes(tmp_path: Path) -> None:
    """The trainer of the library alone is not: it iterates over hash tables, whose seed differs in every process."""
    words = [chr(0x4E00 + number % 300) + chr(97 + number % 26) + chr(0xE0 + number % 20) for number in range(1000)]
    path = tmp_path / "ties.txt"
    path.write_text(" ".join(words) + TEXT, "utf-8")
    command = [sys.executable, "-c", TRAIN, str(path)]
    prints = {subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(3)}
    assert len(prints) == 1
    assert prints == {train_tokenizer(Corpus((str(path),)), 300).fingerprint + "\n"}


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason=f"{SHARED} is absent")
def test_chinese_characters_are_in_the_vocabulary(tmp_path: Path) -> None:
    sample = tmp_path / "zh.txt"
    import zstandard

    with (SHARED / "multilingual/zhwiki.txt.zst").open("rb") as file:
        sample.write_bytes(zstandard.ZstdDecompressor().stream_reader(file).read(1_000_000).rsplit(b"\n", 1)[0])
    tokenizer = train_tokenizer(Corpus((str(sample),)), 20000)
    ids = [id for piece in Corpus((str(sample),)) for line in tokenizer.encode_lines(piece.lines) for id in line]
    assert ids.count(tokenizer.unk_id) < 0.001 * len(ids)
    assert not any(token.startswith("##一") for token in tokenizer.vocabulary)


def test_alphabet_is_counted_after_normalization(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = ["Éé e! \u0301中中中\x00".encode(), b"ab"]
    assert build_alphabet(sample, Normalization().build_normalizer(), 100) == (
        ["e", "中", "!", "a", "b"],
        ["e", "a", "b"],
    )
    assert build_alphabet(sample, Normalization(False, False).build_normalizer(), 100)[0] == [
        "中",
        "!",
        "a",
        "b",
        "e",
        "É",
        "é",
        "\u0301",
    ]
    assert build_alphabet(sample, Normalization().build_normalizer(), 2) == (["e", "中"], ["e"])
    monkeypatch.setattr(vocabulary, "COVERAGE", 0.6)
    assert build_alphabet(sample, Normalization().build_normalizer(), 100)[0] == ["e", "中"]


def test_normalization_by_character_equals_that_of_the_library() -> None:
    """`build_alphabet` normalizes each distinct character, not the whole text."""
    for normalization in (Normalization(), Normalization(True, False), Normalization(False, False)):
        text = "".join(DIFFICULT_TEXTS) + TEXT
        whole = normalization.build_normalizer().normalize_str(text)
        expected = {char for char in whole if not char.isspace()}
        assert set(build_alphabet([text.encode()], normalization.build_normalizer(), 10**6)[0]) == expected


def test_sample_is_even_bounded_and_deterministic(tmp_path: Path) -> None:
    path = tmp_path / "numbers.txt"
    path.write_text("\n\n".join(f"document {number:05}" for number in range(10_000)))
    corpus = Corpus((str(path),))
    progress: list[int] = []
    sample = sample_corpus(corpus, limit=20_000, on_progress=progress.append)
    assert progress[-1] == corpus.total_bytes()
    assert len(progress) == 10_000
    assert 8_000 < sum(map(len, sample)) <= 20_000
    assert sample == sample_corpus(corpus, limit=20_000)
    numbers = [int(text.split()[1]) for text in sample]
    assert numbers == sorted(set(numbers))
    quarters = [sum(1 for number in numbers if number // 2500 == quarter) for quarter in range(4)]
    assert min(quarters) > 0.7 * max(quarters)
    assert len(sample_corpus(corpus, limit=10**6)) == 10_000
    assert len(sample_corpus(corpus, limit=5)) == 1


def test_only_the_beginning_of_a_corpus_of_unknown_size_is_sampled(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "train.jsonl").write_text("".join(f'{{"text": "document {number:05}"}}\n' for number in range(100)))
    monkeypatch.setattr(vocabulary, "HUB_BYTES", 140)
    assert len(sample_corpus(Corpus((f"hf://{folder}",)))) == 10


def test_training_on_empty_text_fails(tmp_path: Path) -> None:
    path = tmp_path / "blank.txt"
    path.write_text("\n \n")
    with raises(TextError, "no-text", path):
        train_tokenizer(Corpus((str(path),)), 1000)
    with raises(UsageError, "out-of-range", 10, 64):
        train_tokenizer(Corpus((str(path),)), 10)


def test_vocabulary_is_smaller_if_the_text_has_few_words(corpus: Corpus) -> None:
    assert train_tokenizer(corpus, 100).vocab_size == 100
    assert train_tokenizer(corpus, 64).vocab_size == 64
    assert 100 < train_tokenizer(corpus, 100_000).vocab_size < 300


def saved(folder: Path, **changes: object) -> Path:
    """Save a tokenizer and replace parts of its tokenizer.json; `model__vocab` is the entry `vocab` of `model`."""
    Tokenizer((*SPECIAL_TOKENS, "a"), Normalization()).save(folder)
    content = json.loads((folder / "tokenizer.json").read_text())
    for names, value in changes.items():
        *path, last = names.split("__")
        place = content
        for name in path:
            place = place[name]
        place[last] = value
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("changes", "code", "values"),
    [
        (
            {"model": {"type": "WordLevel", "vocab": {}}},
            "unknown-tokenizer",
            ["WordLevel", "WordPiece, BPE or Unigram"],
        ),
        ({"model": None}, "unknown-tokenizer", ["None"]),
        ({"model": []}, "unknown-tokenizer", ["None"]),
        ({"model__vocab": ["a"]}, "wrong-type", []),
        ({"model__vocab": {"a": "b"}}, "wrong-type", []),
        ({"normalizer": {"type": "Norm"}}, "damaged", []),
        ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(["}}}, "damaged", []),
        ({"model__continuing_subword_prefix": ""}, "no-word-marks", ["##"]),
        ({"model__vocab": {"[PAD]": 0, "[UNK]": 2}, "added_tokens": []}, "wrong-ids", [0, 1]),
        ({"model__vocab": {token: 2 * id for id, token in enumerate(SPECIAL_TOKENS)}}, "wrong-ids", [0, 4]),
        (
            {"model__vocab": {"[PAD]": 0, "[UNK]": 1}, "added_tokens": []},
            "missing-tokens",
            ["[CLS]", "[SEP]", "[MASK]"],
        ),
        ({"added_tokens": [{"content": "new"}]}, "missing-field", ["id"]),
        ({"added_tokens": [{"content": "new", "id": 10**12}]}, "wrong-value", ["id"]),
    ],
    ids=str,
)
def test_invalid_tokenizer_json_is_rejected(
    tmp_path: Path, changes: dict[str, object], code: str, values: list[object]
) -> None:
    folder = saved(tmp_path, **changes)
    with raises(TokenizerError, code, folder / "tokenizer.json", *values):
        load_tokenizer(folder)


def test_invalid_tokenizer_files_are_rejected(tmp_path: Path) -> None:
    def check(path: Path, code: str, *values: object) -> None:
        with raises(TokenizerError, code, *values):
            load_tokenizer(path)

    check(tmp_path / "absent", "missing", tmp_path / "absent")
    check(tmp_path, "no-tokenizer", tmp_path, "tokenizer.json", "vocab.txt")
    file = tmp_path / "vocab.txt"
    file.write_text("\n".join([*SPECIAL_TOKENS[:4], "a"]))
    check(tmp_path, "missing-tokens", file, " [MASK];")
    file.write_text("\n".join([*SPECIAL_TOKENS, "a", "b", "a"]))
    check(file, "repeated-token", f"{file}:8", "'a'", 6)
    file.write_bytes(b"caf\xe9\n")
    check(file, "not-utf8", file, 3)
    file.write_bytes("\r\n".join([*SPECIAL_TOKENS, "a\u2028b", ""]).encode())
    assert load_tokenizer(file).vocabulary == (*SPECIAL_TOKENS, "a\u2028b")
    (tmp_path / "tokenizer_config.json").write_text('{\n"do_lower_case": flase}')
    check(file, "not-json", tmp_path / "tokenizer_config.json:2")
    (tmp_path / "tokenizer.json").write_text("[]")
    check(tmp_path, "wrong-type", tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer.json").write_text("{\n\n")
    check(tmp_path, "not-json", tmp_path / "tokenizer.json:3")


def test_saving_to_the_path_of_a_file_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with raises(StorageError, "unwritable", tmp_path / "file/vocab.txt"):
        Tokenizer((*SPECIAL_TOKENS, "a"), Normalization()).save(tmp_path / "file")
