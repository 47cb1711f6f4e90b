"""From what the user gave to prepared data and a tokenizer: text or data, a tokenizer given, taken over or trained."""

from pathlib import Path

from electra.console import decided, reading_progress, warned
from electra.data.prepare import prepare
from electra.data.shards import PreparedData
from electra.errors import DataError, UsageError
from electra.pretraining.config import PretrainConfig
from electra.pretraining.directory import RunDirectory
from electra.pretraining.initial import discriminator_directory
from electra.text.corpus import Corpus
from electra.text.tokenizer import Tokenizer, load_tokenizer
from electra.text.vocabulary import train_tokenizer


def prepared_text(config: PretrainConfig, directory: RunDirectory) -> tuple[PreparedData, Tokenizer]:
    """Prepared data and its tokenizer, made from text where they are not there; the run gets a copy of the tokenizer.

    Raises:
        UsageError: neither text nor data is given, or both; sequences longer than the model has positions.
        TextError, TokenizerError, DataError, StorageError: see there.
    """
    if bool(config.text) == (config.data is not None):
        raise UsageError(
            "say what to train on: text (files, folders, hf://owner/name or builtin), or --data DIR, not both"
        )
    if config.data is not None:
        data, tokenizer = opened_data(config, Path(config.data))
        tokenizer.save(directory.tokenizer)
        return with_heldout(data), tokenizer
    corpus = Corpus(config.text, config.documents, config.text_field, config.encoding_errors)
    corpus.check()
    describe(corpus)
    tokenizer = chosen_tokenizer(config, corpus, directory)
    data = prepare_with_progress(
        corpus, tokenizer, directory.data, seq_len=config.seq_len, workers=config.workers, seed=config.seed
    )
    return with_heldout(data), tokenizer


def with_heldout(data: PreparedData) -> PreparedData:
    """The data; a run without held-out text could not be scored at its end, so it does not begin."""
    if not len(data.heldout):
        raise DataError(f"{data.path}: too little text to hold any out for evaluation; add text")
    return data


def opened_data(config: PretrainConfig, path: Path) -> tuple[PreparedData, Tokenizer]:
    """Data that `electra prepare` wrote, and its tokenizer (or the one given, if it is the same)."""
    data = PreparedData.open(path)
    tokenizer = load_tokenizer(config.tokenizer or data.tokenizer_path)
    data.check_tokenizer(tokenizer.fingerprint)
    if data.manifest.seq_len > config.model.max_positions:
        raise UsageError(
            f"{path}: prepared with sequences of {data.manifest.seq_len}, the model has {config.model.max_positions} "
            "positions; raise --model.max-positions or prepare again with a smaller --seq-len"
        )
    decided(f"data of {path}: {len(data.train):,} examples of up to {data.manifest.seq_len} tokens")
    return data, tokenizer


def describe(corpus: Corpus) -> None:
    """Say what text there is."""
    size = corpus.total_bytes()
    amount = "a data set of the hub" if size is None else f"{size / 1e6:,.1f} MB on disk"
    decided(f"text: {', '.join(corpus.sources)}", f"{amount}, {len(corpus.describe()):,} sources")
    if skipped := corpus.skipped():
        warned(f"{len(skipped):,} files are not text of a known kind and are passed over, {skipped[0]} for one")


def chosen_tokenizer(config: PretrainConfig, corpus: Corpus, directory: RunDirectory) -> Tokenizer:
    """The tokenizer given, that of --init, the one trained before for this run, or a new one."""
    given = config.tokenizer or (str(discriminator_directory(Path(config.init))) if config.init else None)
    if given is not None:
        tokenizer = load_tokenizer(given)
        decided(
            f"tokenizer {given}, {tokenizer.vocab_size:,} entries", "" if config.tokenizer else "it belongs to --init"
        )
        tokenizer.save(directory.tokenizer)
        return tokenizer
    if (directory.tokenizer / "tokenizer.json").exists():
        return load_tokenizer(directory.tokenizer)
    tokenizer = train_with_progress(corpus, config.model.vocab_size, config.cased, config.keep_accents)
    tokenizer.save(directory.tokenizer)
    return tokenizer


def train_with_progress(corpus: Corpus, vocab_size: int, cased: bool, keep_accents: bool) -> Tokenizer:
    """Train a tokenizer, showing how far it is."""
    with reading_progress("reading text for a vocabulary", corpus.total_bytes()) as show:
        tokenizer = train_tokenizer(corpus, vocab_size, cased, keep_accents, lambda read: show(read, ""))
    few = f"the text has no more than that, {vocab_size:,} were asked for" if tokenizer.vocab_size < vocab_size else ""
    decided(f"trained a WordPiece vocabulary of {tokenizer.vocab_size:,} entries", few)
    return tokenizer


def prepare_with_progress(
    corpus: Corpus, tokenizer: Tokenizer, out: Path, *, seq_len: int, workers: int | None, seed: int
) -> PreparedData:
    """Prepare a corpus, showing how far it is, and say what came out."""
    with reading_progress("preparing", corpus.total_bytes()) as show:
        data = prepare(
            corpus,
            tokenizer,
            out,
            seq_len=seq_len,
            workers=workers,
            seed=seed,
            on_progress=lambda now: show(now.bytes_read, f"{now.tokens / 1e6:.1f} M tokens"),
        )
    whence = "other documents" if data.manifest.heldout_from == "documents" else "the end of the only document"
    decided(
        f"{len(data.train):,} examples of up to {seq_len} tokens, {data.train.tokens / 1e6:.2f} M tokens",
        f"{len(data.heldout):,} examples of {whence} are held out",
    )
    return data
