"""Data preparation with progress and log messages: text -> corpus -> tokenizer -> prepared data.

`electra tokenizer`, `electra prepare`, pre-training and studies call these functions.
"""

import logging
from pathlib import Path

from electra.console import reading_progress
from electra.data.deduplication import THRESHOLD, Method
from electra.data.manifest import is_prepared
from electra.data.prepare import PrepareProgress, prepare
from electra.data.shards import PreparedData
from electra.errors import TokenizerError, UsageError
from electra.external import format_count
from electra.storage import LOCK, lock_output
from electra.text.corpus import Corpus, Documents, Encoding
from electra.text.coverage import report_coverage
from electra.text.formats import get_text_suffix
from electra.text.subwords.training import TRAINERS, TokenizerConfig, train
from electra.text.tokenizer import FILES, Tokenizer, load_tokenizer

log = logging.getLogger(__name__)


SHORT_DOCUMENT = 100
"""Mean tokens per document below which blank lines may separate paragraphs instead of documents: Wikipedia articles have a few
hundred tokens, paragraphs of novels 60."""


def open_corpus(
    text: tuple[str, ...],
    documents: Documents,
    text_field: str,
    encoding_errors: Encoding,
) -> Corpus:
    """Open a corpus and check that all of it can be read.

    Raises:
        UsageError: a source is a directory of prepared data.
        TextError: a source cannot be read.
    """
    for source in filter(is_prepared, text):
        raise UsageError(
            "prepared-data", f"{source}: prepared data, expected text; use electra pretrain --data {source}"
        )
    corpus = Corpus(text, documents, text_field, encoding_errors)
    corpus.check()
    return corpus


def log_corpus(corpus: Corpus) -> None:
    """Log the sources, sizes and skipped files of a corpus."""
    size = corpus.total_bytes()
    amount = "a data set of the hub" if size is None else f"{size / 1e6:,.1f} MB on disk"
    log.info(
        f"text: {', '.join(corpus.sources)} ({amount}, {format_count(len(corpus.describe()), 'source')})",
        extra={"code": "text"},
    )
    if skipped := corpus.skipped():
        log.warning(
            f"skipped {format_count(len(skipped), 'file')} of unknown formats, such as {skipped[0]}",
            extra={"code": "skipped-files"},
        )


def save_trained_tokenizer(out: Path, corpus: Corpus, config: TokenizerConfig) -> None:
    """Train a tokenizer and save it in a separate directory; an equal tokenizer there is not changed.

    Raises:
        UsageError: an option is out of range or has no meaning for the model.
        TokenizerError: the directory contains another tokenizer or other files.
        RunError: another process writes the directory.
        StorageError: the directory cannot be written; checked before the text is read.
    """
    load_existing_tokenizer(out)  # checked first, so that nothing is written to a wrong directory
    with lock_output(out, out / LOCK):
        existing = load_existing_tokenizer(out)
        log_corpus(corpus)
        tokenizer = train_tokenizer_with_progress(corpus, config)
        if existing is None:
            tokenizer.save(out)
            log.info(
                f"tokenizer in {out} (electra prepare TEXT --tokenizer {out} --out DATA)",
                extra={"code": "trained-tokenizer"},
            )
        elif existing.fingerprint == tokenizer.fingerprint:
            log.info(f"{out} already contains the same tokenizer", extra={"code": "reused-tokenizer"})
        else:
            raise TokenizerError(
                "other-tokenizer", f"{out}: contains another tokenizer; choose another --out, or delete the directory"
            )


def load_existing_tokenizer(directory: Path) -> Tokenizer | None:
    """Load the tokenizer of a directory; None for a new or empty directory.

    Raises:
        TokenizerError: the path is a file, or the directory contains other files.
    """
    if directory.exists() and not directory.is_dir():
        raise TokenizerError("not-directory", f"{directory}: a file; a tokenizer needs a separate directory")
    names = {path.name for path in directory.glob("*") if not path.name.startswith(".")}
    if others := sorted(names - set(FILES)):
        raise TokenizerError(
            "other-files",
            f"{directory}: contains other files (such as {others[0]}); "
            "a tokenizer needs a separate directory: choose a new or empty one",
        )
    return load_tokenizer(directory) if names else None


def train_tokenizer_with_progress(corpus: Corpus, config: TokenizerConfig) -> Tokenizer:
    """Train a tokenizer and show progress."""
    with reading_progress("reading text for a vocabulary", corpus.total_bytes()) as show:
        tokenizer = train(corpus, config, lambda read: show(read, ""))
    fewer = tokenizer.vocab_size < config.size
    log.info(
        f"trained a {TRAINERS[config.model].title} vocabulary of {tokenizer.vocab_size:,} tokens"
        + f" (requested {config.size:,}, but the text has no more)" * fewer,
        extra={"code": "vocabulary"},
    )
    return tokenizer


def prepare_with_progress(
    corpus: Corpus,
    tokenizer: Tokenizer,
    out: Path,
    *,
    seq_len: int,
    workers: int | None,
    seed: int,
    deduplicate: Method = "none",
    dedup_threshold: float = THRESHOLD,
) -> PreparedData:
    """Prepare a corpus, show progress, and log the numbers of documents, examples and tokens."""
    last: PrepareProgress | None = None

    def on_progress(progress: PrepareProgress) -> None:
        nonlocal last
        last = progress
        doing = "searching for duplicates" if progress.searching else f"{progress.tokens / 1e6:.1f} M tokens"
        show(progress.bytes_read, doing)

    with reading_progress("preparing", corpus.total_bytes()) as show:
        data = prepare(
            corpus,
            tokenizer,
            out,
            seq_len=seq_len,
            workers=workers,
            seed=seed,
            deduplicate=deduplicate,
            dedup_threshold=dedup_threshold,
            on_progress=on_progress,
        )
    if last is None:
        log.info(f"{out} already contains this text prepared; it is reused", extra={"code": "reused-data"})
    elif last.found_chunks:
        log.info(
            f"resumed preparation: {last.found_chunks:,} of {last.chunks:,} chunks were finished before",
            extra={"code": "resumed-preparation"},
        )
    source = "other documents" if data.manifest.heldout_from == "documents" else "the end of the only document"
    log.info(
        f"{format_count(data.manifest.documents, 'document')}, {len(data.train):,} examples of up to {seq_len} tokens, "
        f"{data.train.tokens / 1e6:.2f} M tokens ({len(data.heldout):,} examples of {source} are held out)",
        extra={"code": "examples"},
    )
    if hint := suggest_documents_file(data, corpus):
        log.info(hint, extra={"code": "short-documents"})
    log_coverage(data, ", ".join(corpus.sources))
    return data


def suggest_documents_file(data: PreparedData, corpus: Corpus) -> str | None:
    """Suggest --documents file if the documents of .txt files are so short that they may be paragraphs; None otherwise."""
    files = [name for name, size in corpus.describe() if size is not None and get_text_suffix(Path(name)) == ".txt"]
    mean = (data.train.tokens + data.heldout.tokens) / data.manifest.documents
    if corpus.documents != "blank-line" or not 0 < len(files) < data.manifest.documents or mean >= SHORT_DOCUMENT:
        return None
    return (
        f"documents have {mean:.0f} tokens on average, and in .txt files a blank line ends a document: if blank lines are "
        "between the paragraphs of one text, prepare with --documents file"
    )


def log_coverage(data: PreparedData, text: str) -> None:
    """Log how well the vocabulary covers prepared text, if its manifest has the counts."""
    if data.manifest.coverage is not None:
        report_coverage(
            data.manifest.coverage,
            text,
            "train one on it (leave --tokenizer out, or use electra tokenizer) or a larger one; with --init, take a model of "
            "this language",
        )
