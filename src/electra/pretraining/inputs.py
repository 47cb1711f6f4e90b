"""From what the user gave to prepared data and a tokenizer: text or data, a tokenizer given, taken over or trained."""

import logging
from pathlib import Path
from typing import Literal

from electra.console import format_count, reading_progress
from electra.data.manifest import MANIFEST, is_prepared
from electra.data.prepare import PrepareProgress, prepare
from electra.data.shards import PreparedData
from electra.errors import DataError, TextError, TokenizerError, UsageError
from electra.pretraining.config import PretrainConfig
from electra.pretraining.run_directory import RunDirectory
from electra.pretraining.warm_start import discriminator_directory
from electra.storage import LOCK, exclusive
from electra.text.corpus import Corpus, Documents
from electra.text.coverage import report_coverage
from electra.text.files import file_format
from electra.text.tokenizer import FILES, Tokenizer, load_tokenizer
from electra.text.vocabulary import train_tokenizer

log = logging.getLogger(__name__)


# Held-out tokens below which chance moves the third digit of an accuracy, and much more the recall of rare replacements.
FEW_TOKENS = 20_000

# Tokens of the mean document below which blank lines may be between paragraphs: Wikipedia articles have some hundred,
# paragraphs of novels 60.
SHORT_DOCUMENT = 100


def prepared_text(config: PretrainConfig, directory: RunDirectory) -> tuple[PreparedData, Tokenizer]:
    """Prepared data and its tokenizer, made from text where they are not there; the run gets a copy of the tokenizer.

    Raises:
        UsageError: neither text nor data is given, or both; sequences longer than the model has positions, or than asked.
        TextError, TokenizerError, DataError, StorageError: see there.
    """
    if bool(config.text) == (config.data is not None):
        both = f"; given are the text {' '.join(config.text)} and --data {config.data}" if config.text else ""
        raise UsageError(
            f"say what to train on: text (files, folders, hf://owner/name or builtin), or --data DIR, not both{both}"
        )
    if config.data is not None:
        data, tokenizer = opened_data(config, Path(config.data))
        tokenizer.save(directory.tokenizer)
        return require_enough_data(data, config), tokenizer
    try:
        corpus = readable_corpus(config.text, config.documents, config.text_field, config.encoding_errors)
    except TextError as error:
        if not (directory.data / MANIFEST).exists():
            raise
        data = PreparedData.open(directory.data)
        tokenizer = load_tokenizer(directory.tokenizer)
        data.check_tokenizer(tokenizer.fingerprint, tokenizer.vocab_size)
        log.warning(f"{error}; it is not needed any more: all of the text is prepared in {directory.data}")
        return require_enough_data(data, config), tokenizer
    describe(corpus)
    tokenizer = chosen_tokenizer(config, corpus, directory)
    data = prepare_with_progress(
        corpus, tokenizer, directory.data, seq_len=config.seq_len, workers=config.workers, seed=config.seed
    )
    return require_enough_data(data, config), tokenizer


def readable_corpus(
    text: tuple[str, ...],
    documents: Documents,
    text_field: str,
    encoding_errors: Literal["strict", "replace"],
) -> Corpus:
    """Text that can be read.

    Raises:
        UsageError: it is prepared data, which holds files that would pass for text.
        TextError: it cannot be read.
    """
    for source in filter(is_prepared, text):
        raise UsageError(f"{source}: is prepared data, not text; electra pretrain takes it as --data {source}")
    corpus = Corpus(text, documents, text_field, encoding_errors)
    corpus.check()
    return corpus


def require_enough_data(data: PreparedData, config: PretrainConfig) -> PreparedData:
    """The data; a run that could not fill a batch, or not be scored at its end for lack of held-out text, does not begin."""
    if len(data.train) < config.training.batch_size:
        raise UsageError(
            f"{', '.join(config.text) or config.data}: too little text: "
            f"{format_count(len(data.train), 'training example')} of up to {config.seq_len} tokens, "
            f"less than one batch of {config.training.batch_size:,}; "
            "add text, or lower --training.batch-size or --seq-len"
        )
    if not len(data.heldout):
        raise DataError(f"{data.path}: too little text to hold any out for evaluation; add text")
    if data.heldout.tokens < FEW_TOKENS:
        log.warning(
            f"only {data.heldout.tokens:,} tokens are held out: the held-out figures will be rough; more text helps"
        )
    return data


def opened_data(config: PretrainConfig, path: Path) -> tuple[PreparedData, Tokenizer]:
    """Data that `electra prepare` wrote, and its tokenizer (or the one given, if it is the same)."""
    data = PreparedData.open(path)
    tokenizer = load_tokenizer(config.tokenizer or data.tokenizer_path)
    data.check_tokenizer(tokenizer.fingerprint, tokenizer.vocab_size)
    if data.manifest.seq_len > config.model.max_positions:
        raise UsageError(
            f"{path}: prepared with sequences of {data.manifest.seq_len}, the model has {config.model.max_positions} "
            "positions; raise --model.max-positions or prepare again with a smaller --seq-len"
        )
    if data.manifest.seq_len != config.seq_len:
        raise UsageError(
            f"--seq-len is {config.seq_len}, but {path} was prepared with sequences of {data.manifest.seq_len}; "
            "leave --seq-len out, or prepare the text again"
        )
    log.info(
        f"data of {path}: {format_count(data.manifest.documents, 'document')}, {len(data.train):,} examples "
        f"(sequence length {data.manifest.seq_len}, that of the prepared data)"
    )
    report_vocabulary(data, str(path))
    return data, tokenizer


def describe(corpus: Corpus) -> None:
    """Say what text there is."""
    size = corpus.total_bytes()
    amount = "a data set of the hub" if size is None else f"{size / 1e6:,.1f} MB on disk"
    log.info(f"text: {', '.join(corpus.sources)} ({amount}, {format_count(len(corpus.describe()), 'source')})")
    if skipped := corpus.skipped():
        log.warning(f"left out, not text of a known kind: {format_count(len(skipped), 'file')}, {skipped[0]} for one")


def chosen_tokenizer(config: PretrainConfig, corpus: Corpus, directory: RunDirectory) -> Tokenizer:
    """The tokenizer given, that of --init, the one trained before for this run, or a new one."""
    given = config.tokenizer or (str(discriminator_directory(Path(config.init))) if config.init else None)
    if given is not None:
        tokenizer = load_tokenizer(given)
        log.info(
            f"tokenizer {given}, {tokenizer.vocab_size:,} entries"
            + ("" if config.tokenizer else " (it belongs to --init)")
        )
        tokenizer.save(directory.tokenizer)
        return tokenizer
    if (directory.tokenizer / "tokenizer.json").exists():
        log.info("the tokenizer trained before for this run is used again")
        return load_tokenizer(directory.tokenizer)
    tokenizer = train_with_progress(corpus, config.model.vocab_size, config.cased, config.keep_accents)
    tokenizer.save(directory.tokenizer)
    return tokenizer


def train_into(out: Path, corpus: Corpus, vocab_size: int, cased: bool, keep_accents: bool) -> None:
    """Train a tokenizer and save it in a directory of its own, where none but the very same may stand.

    Raises:
        TokenizerError: another tokenizer stands there, or other files do.
        RunError: another process works on it.
        StorageError: the directory cannot be written; this is seen before the text is read.
    """
    standing_tokenizer(out)  # a wrong place is named before anything is written there
    with exclusive(out, out / LOCK, log.warning):
        standing = standing_tokenizer(out)
        describe(corpus)
        tokenizer = train_with_progress(corpus, vocab_size, cased, keep_accents)
        if standing is None:
            tokenizer.save(out)
            log.info(f"tokenizer in {out} (electra prepare TEXT --tokenizer {out} --out DATA)")
        elif standing.fingerprint == tokenizer.fingerprint:
            log.info(f"the same tokenizer stands in {out} already")
        else:
            raise TokenizerError(f"{out}: holds another tokenizer; choose another --out, or delete this one")


def standing_tokenizer(directory: Path) -> Tokenizer | None:
    """The tokenizer in a directory that holds nothing else; None where the directory is new or empty."""
    if directory.exists() and not directory.is_dir():
        raise TokenizerError(f"{directory}: a file; a tokenizer needs a directory of its own")
    names = {path.name for path in directory.glob("*") if not path.name.startswith(".")}
    if others := sorted(names - set(FILES)):
        raise TokenizerError(
            f"{directory}: holds other files ({others[0]} for one); "
            "a tokenizer needs a directory of its own: choose a new or empty one"
        )
    return load_tokenizer(directory) if names else None


def train_with_progress(corpus: Corpus, vocab_size: int, cased: bool, keep_accents: bool) -> Tokenizer:
    """Train a tokenizer, showing how far it is."""
    with reading_progress("reading text for a vocabulary", corpus.total_bytes()) as show:
        tokenizer = train_tokenizer(corpus, vocab_size, cased, keep_accents, lambda read: show(read, ""))
    fewer = tokenizer.vocab_size < vocab_size
    log.info(
        f"trained a WordPiece vocabulary of {tokenizer.vocab_size:,} entries"
        + f" (the text has no more than that, {vocab_size:,} were asked for)" * fewer
    )
    return tokenizer


def prepare_with_progress(
    corpus: Corpus, tokenizer: Tokenizer, out: Path, *, seq_len: int, workers: int | None, seed: int
) -> PreparedData:
    """Prepare a corpus, showing how far it is, and say what came out and what was there before."""
    last: PrepareProgress | None = None

    def on_progress(now: PrepareProgress) -> None:
        nonlocal last
        last = now
        show(now.bytes_read, f"{now.tokens / 1e6:.1f} M tokens")

    with reading_progress("preparing", corpus.total_bytes()) as show:
        data = prepare(
            corpus,
            tokenizer,
            out,
            seq_len=seq_len,
            workers=workers,
            seed=seed,
            on_progress=on_progress,
        )
    if last is None:
        log.info(f"the text prepared before in {out} is used again")
    elif last.found_chunks:
        log.info(f"preparing went on: {last.found_chunks:,} of {last.chunks:,} parts of the text were done before")
    whence = "other documents" if data.manifest.heldout_from == "documents" else "the end of the only document"
    log.info(
        f"{format_count(data.manifest.documents, 'document')}, {len(data.train):,} examples of up to {seq_len} tokens, "
        f"{data.train.tokens / 1e6:.2f} M tokens ({len(data.heldout):,} examples of {whence} are held out)"
    )
    if hint := hint_at_short_documents(data, corpus):
        log.info(hint)
    report_vocabulary(data, ", ".join(corpus.sources))
    return data


def hint_at_short_documents(data: PreparedData, corpus: Corpus) -> str | None:
    """A hint where blank lines have cut .txt files into documents so short that they may be paragraphs; None elsewhere."""
    files = [name for name, size in corpus.describe() if size is not None and file_format(Path(name)) == ".txt"]
    mean = (data.train.tokens + data.heldout.tokens) / data.manifest.documents
    if corpus.documents != "blank-line" or not 0 < len(files) < data.manifest.documents or mean >= SHORT_DOCUMENT:
        return None
    return (
        f"documents have {mean:.0f} tokens on average, and in .txt files a blank line ends a document: if blank lines are "
        "between the paragraphs of one text, prepare with --documents file"
    )


def report_vocabulary(data: PreparedData, text: str) -> None:
    """Print how well the vocabulary spells prepared text; nothing of data prepared before this was counted."""
    if data.manifest.coverage is not None:
        report_coverage(
            data.manifest.coverage,
            text,
            "train one on it (leave --tokenizer out, or use electra tokenizer) or a larger one; with --init, take a model of "
            "this language",
        )
