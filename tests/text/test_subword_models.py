"""WordPiece, BPE and Unigram: training, files, special tokens, word marks, offsets; errors for unusable pipelines."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from support.errors import raises
from support.toy import DIFFICULT_TEXTS, LANGUAGES, TEXT, write_language
from tokenizers import normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram, WordPiece
from tokenizers.trainers import BpeTrainer, UnigramTrainer, WordPieceTrainer

from electra.errors import TokenizerError, UsageError
from electra.text.cached_encoder import LineEncoder
from electra.text.corpus import Corpus
from electra.text.coverage import CoverageCounter
from electra.text.subwords.training import TRAINERS, TokenizerConfig, train
from electra.text.subwords.word_marks import read_bytes
from electra.text.tokenizer import SPECIAL_TOKENS, Tokenizer, load_tokenizer

transformers = pytest.importorskip("transformers")
KINDS: dict[str, dict[str, Any]] = {
    "wordpiece": {"model": "wordpiece", "pretokenized": True},
    "bpe": {"model": "bpe", "cased": True},
    "bpe-pretokenized": {"model": "bpe", "pretokenized": True},
    "unigram": {"model": "unigram"},
    "unigram-bytes": {"model": "unigram", "byte_fallback": True, "cased": True, "reserved": 3},
}
"""Options of tokenizers that are not BERT's."""
LINES = [*DIFFICULT_TEXTS, *TEXT.split("\n"), *(words for words, _ in LANGUAGES.values())]
NAMES = "a [MASK] b [CLS] <mask> </s><pad>[PAD] [unused0] c"


@pytest.fixture(scope="module")
def languages(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("languages")
    return Corpus(tuple(str(write_language(folder / f"{language}.txt", language)) for language in LANGUAGES))


@pytest.fixture(scope="module", params=KINDS)
def made(request: pytest.FixtureRequest, languages: Corpus) -> Tokenizer:
    return train(languages, TokenizerConfig(640, **KINDS[request.param]))


def train_byte_bpe(folder: Path) -> None:
    """Write a tokenizer with the names and parts of RoBERTa's."""
    backend = tokenizers.Tokenizer(BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(vocab_size=300, special_tokens=names, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator([TEXT], trainer)
    backend.enable_padding(length=50)
    save(backend, folder, {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "mask_token": "<mask>"})


def train_scored(folder: Path) -> None:
    """Write a tokenizer with the names and parts of XLM-R's, whose mask token is not in the model's vocabulary."""
    backend = tokenizers.Tokenizer(Unigram())
    backend.normalizer, backend.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    names = ["<s>", "<pad>", "</s>", "<unk>"]
    backend.train_from_iterator(
        [TEXT], UnigramTrainer(vocab_size=90, special_tokens=names, unk_token="<unk>", show_progress=False)
    )
    backend.add_special_tokens(["<mask>"])
    save(backend, folder, {})


def train_prefixed(folder: Path) -> None:
    """Write a WordPiece that is not BERT's: another prefix, other words, an added word."""
    backend = tokenizers.Tokenizer(WordPiece(unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    trainer = WordPieceTrainer(
        vocab_size=120, special_tokens=list(SPECIAL_TOKENS), continuing_subword_prefix="@@", show_progress=False
    )
    backend.train_from_iterator([TEXT], trainer)
    backend.add_tokens(["brown fox"])
    save(backend, folder, {})


def save(backend: Any, folder: Path, config: dict[str, Any]) -> None:
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def special_ids(tokenizer: Tokenizer) -> set[int]:
    return {*tokenizer.special_ids, -1 if tokenizer.unk_id is None else tokenizer.unk_id}


def check_like_transformers(ours: Tokenizer, folder: Path) -> None:
    """Compare a saved tokenizer with transformers': ids of lines and pairs, special tokens."""
    ours.save(folder, max_length=64)
    again = load_tokenizer(folder)
    assert again == ours
    assert again.fingerprint == ours.fingerprint
    (folder / "config.json").write_text(json.dumps({"model_type": "electra"}))
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert len(theirs) == ours.vocab_size
    assert (theirs.pad_token_id, theirs.cls_token_id, theirs.sep_token_id, theirs.mask_token_id) == ours.special_ids
    assert theirs.unk_token_id == ours.unk_id
    assert theirs(LINES, add_special_tokens=False)["input_ids"] == ours.encode_lines(LINES)
    (a,), (b,) = ours.encode_lines([LINES[0]]), ours.encode_lines([LINES[-1]])
    pair = theirs(LINES[0], LINES[-1])
    assert pair["input_ids"] == [ours.cls_id, *a, ours.sep_id, *b, ours.sep_id]
    assert pair["token_type_ids"] == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert ours.mask_id in theirs(f"a {theirs.mask_token} b")["input_ids"]


def test_transformers_loads_trained_tokenizers(made: Tokenizer, tmp_path: Path) -> None:
    assert [made.vocabulary[id] for id in range(5)] == list(SPECIAL_TOKENS)
    check_like_transformers(made, tmp_path)


@pytest.mark.parametrize("write", [train_byte_bpe, train_scored, train_prefixed])
def test_tokenizers_of_other_projects_are_read(write: Any, tmp_path: Path) -> None:
    write(tmp_path)
    stock = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    stock._tokenizer.no_padding()
    ours = load_tokenizer(tmp_path)
    lines = [line for line in LINES if "[" not in line]
    assert ours.encode_lines(lines) == stock(lines, add_special_tokens=False)["input_ids"]
    assert not special_ids(ours) & {id for ids in ours.encode_lines([NAMES]) for id in ids} - {ours.unk_id}
    (tmp_path / "saved").mkdir()
    check_like_transformers(ours, tmp_path / "saved")


def test_special_tokens_in_text_are_ordinary_text(made: Tokenizer) -> None:
    tokens = made.tokens(made.encode_lines([NAMES])[0])
    assert not set(tokens) & ({*SPECIAL_TOKENS, "[unused0]"} - {"[UNK]"})


def test_lines_are_encoded_alike_alone_and_together(made: Tokenizer) -> None:
    tokens, lengths = LineEncoder(made).encode(LINES)
    rows = made.encode_lines(LINES)
    assert lengths.tolist() == [len(row) for row in rows]
    assert tokens.tolist() == [id for row in rows for id in row]
    assert rows == [made.encode_lines([line])[0] for line in LINES]


def test_words_are_those_between_spaces(made: Tokenizer) -> None:
    """For words of letters, which no model splits before its vocabulary is used."""
    continues = set(made.continuation_ids)
    for language in ("ko", "de"):
        words = [word for word in LANGUAGES[language][0].split() if word.isalpha()]
        (ids,) = made.encode_lines([" ".join(words)])
        assert sum(id not in continues for id in ids) == len(words)
    assert not continues & set(made.special_ids)


def test_offsets_are_those_of_words_without_spaces(made: Tokenizer) -> None:
    continues = set(made.continuation_ids)
    line = "Größere  Häuser\tstehen nebeneinander"
    ((ids, offsets),) = made.encode_with_offsets([line])
    assert made.encode_lines([line]) == [ids]
    assert all(0 <= start < end <= len(line) for start, end in offsets)
    for token, (start, end) in zip(made.tokens(ids), offsets, strict=True):
        assert token in ("▁", "Ġ") or not line[start].isspace()
        assert not line[end - 1].isspace() or token in ("▁", "Ġ")
    starts = [start for id, (start, _) in zip(ids, offsets, strict=True) if id not in continues]
    assert [line[start:].split()[0] for start in starts] == line.split()


def test_only_models_without_bytes_have_unknown_characters(made: Tokenizer, request: pytest.FixtureRequest) -> None:
    (ids,) = made.encode_lines(["\U0001f600 한"])
    has_bytes = request.node.callspec.params["made"] in ("bpe", "bpe-pretokenized", "unigram-bytes")
    assert (made.unk_id in ids) == (not has_bytes)


def test_pretokenized_words_keep_punctuation_marks(languages: Corpus) -> None:
    text = "nebeneinander, 图书馆 a.b"
    for model, options in {"wordpiece": {}, "bpe": {}, "unigram": {}}.items():
        tokenizer = train(languages, TokenizerConfig(640, model, pretokenized=True, **options))
        continues = set(tokenizer.continuation_ids)
        (ids,) = tokenizer.encode_lines([text])
        assert sum(id not in continues for id in ids) == 3
    plain = train(languages, TokenizerConfig(640))
    assert sum(id not in set(plain.continuation_ids) for id in plain.encode_lines([text])[0]) == 8


def test_unigram_and_bpe_learn_words_of_text_without_spaces(languages: Corpus) -> None:
    for model in ("bpe", "unigram"):
        tokenizer = train(languages, TokenizerConfig(640, model))
        (ids,) = tokenizer.encode_lines(["图书馆"])
        assert len(ids) < (3 if model == "unigram" else 9)
    assert len(train(languages, TokenizerConfig(640)).encode_lines(["图书馆"])[0]) == 3


def test_sizes_are_multiples(languages: Corpus) -> None:
    reserved = train(languages, TokenizerConfig(350, "bpe", multiple_of=32, reserved=5))
    assert reserved.vocab_size == 352
    assert reserved.vocabulary[-5:] == tuple(f"[unused{index}]" for index in range(5))
    assert reserved.vocabulary[-6] != "[unused0]"
    assert train(languages, TokenizerConfig(100, multiple_of=1)).vocab_size == 100
    assert train(languages, TokenizerConfig(100, multiple_of=64)).vocab_size == 128
    few = train(languages, TokenizerConfig(multiple_of=64))  # 30,522
    assert few.vocab_size % 64 == 0
    assert few.vocab_size < 2_000
    assert TokenizerConfig().size == 30_522
    without = [token for token in few.vocabulary if not token.startswith("[unused")]
    assert few.vocab_size - len(without) < 64


def test_options_without_meaning_are_refused(languages: Corpus) -> None:
    for model in ("wordpiece", "bpe"):
        with raises(UsageError, "conflicting-options", "--byte-fallback", "unigram"):
            train(languages, TokenizerConfig(640, model, byte_fallback=True))
    for config in (TokenizerConfig(300, "bpe"), TokenizerConfig(640, reserved=600), TokenizerConfig(640, reserved=-1)):
        with raises(UsageError, "out-of-range"):
            train(languages, config)
    with raises(UsageError, "out-of-range", "--multiple-of"):
        train(languages, TokenizerConfig(640, multiple_of=0))
    with raises(UsageError, "unknown-choice", "bpe"):
        train(languages, TokenizerConfig(640, "bp"))


TRAIN = """
import json, sys
from electra.text.corpus import Corpus
from electra.text.subwords.training import TokenizerConfig, train
for options in json.loads(sys.argv[1]):
    print(train(Corpus((sys.argv[2],)), TokenizerConfig(640, **options)).fingerprint)
"""


@pytest.mark.slow
def test_training_is_deterministic_across_processes(tmp_path: Path) -> None:
    words = [chr(0x4E00 + number % 300) + chr(97 + number % 26) + chr(0xE0 + number % 20) for number in range(1000)]
    path = tmp_path / "ties.txt"
    path.write_text(" ".join(words) + TEXT + write_language(tmp_path / "ko.txt", "ko").read_text(), "utf-8")
    command = [sys.executable, "-c", TRAIN, json.dumps(list(KINDS.values())), str(path)]
    prints = {subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(4)}
    assert len(prints) == 1


def test_bytes_are_read_as_the_library_writes_them() -> None:
    text = "".join(map(chr, range(0x100))) + "한국어 中 \U0001f600"
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    assert read_bytes("".join(part for part, _ in split)) == text
    assert len(read_bytes(pre_tokenizers.ByteLevel(False, use_regex=False).pre_tokenize_str("한")[0][0][:2])) == 1


@pytest.mark.parametrize("model", TRAINERS)
def test_words_of_single_characters_are_counted(model: str, languages: Corpus) -> None:
    tokenizer = train(languages, TokenizerConfig(640, model))
    counter = CoverageCounter(tokenizer)
    (rare, frequent) = tokenizer.encode_lines(["xqzv qxvz", "kinder spielen"])
    assert counter.count(np.array(rare)).words == 2
    assert counter.count(np.array(rare)).spelled == (0 if tokenizer.unk_id in rare else 2)
    assert counter.count(np.array(frequent)).spelled == 0


def edit(folder: Path, **changes: Any) -> Path:
    """Replace parts of a tokenizer.json; `model__vocab` is the entry `vocab` of `model`."""
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
    ("kind", "changes", "code", "values"),
    [
        ("bpe", {"model__type": "WordLevel"}, "unknown-tokenizer", ["WordLevel", "BPE"]),
        ("bpe", {"model__type": ["BPE"]}, "unknown-tokenizer", []),
        ("bpe", {"model__vocab": [["a", 0.5]]}, "wrong-type", ["vocab"]),
        ("bpe", {"model__merges": [["never", "there"]]}, "damaged", []),
        ("bpe", {"model__merges": "x"}, "damaged", []),
        ("bpe", {"model__end_of_word_suffix": "</w>"}, "no-word-marks", []),
        ("bpe", {"normalizer": None, "pre_tokenizer": None}, "no-word-marks", []),
        ("bpe", {"pre_tokenizer__pretokenizers": [{"type": "ByteLevel"}, 5]}, "damaged", []),
        ("bpe", {"normalizer": {"type": "Replace", "pattern": {"Regex": "(["}, "content": ""}}, "damaged", []),
        ("bpe", {"added_tokens": [{"id": 9999, "content": "<mask>"}]}, "damaged", []),
        ("unigram", {"model__vocab": {"a": 0}}, "wrong-type", ["vocab"]),
        ("unigram", {"model__vocab": [["a"]]}, "damaged", []),
        ("unigram", {"model__unk_id": 10**9}, "damaged", []),
        ("unigram", {"model__unk_id": None}, "missing-tokens", ["unknown"]),
        ("unigram", {"model__vocab": [["a", -1.0], ["a", -2.0]], "added_tokens": []}, "wrong-ids", []),
        ("unigram", {"model__vocab": [["[UNK]", -1.0]], "model__unk_id": 0, "added_tokens": []}, "missing-tokens", []),
    ],
    ids=str,
)
def test_unusable_pipelines_are_refused(
    kind: str, changes: dict[str, Any], code: str, values: Sequence[object], languages: Corpus, tmp_path: Path
) -> None:
    train(languages, TokenizerConfig(640, **KINDS[kind])).save(tmp_path)
    with raises(TokenizerError, code, tmp_path / "tokenizer.json", *values) as raised:
        load_tokenizer(edit(tmp_path, **changes))
    assert len(str(raised.value)) < 500


def test_holes_in_ids_are_refused(languages: Corpus, tmp_path: Path) -> None:
    train(languages, TokenizerConfig(640, **KINDS["bpe"])).save(tmp_path)
    ids = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    with raises(TokenizerError, "wrong-ids", tmp_path / "tokenizer.json"):
        load_tokenizer(edit(tmp_path, model__vocab=ids | {max(ids, key=ids.__getitem__): 10**6}))
