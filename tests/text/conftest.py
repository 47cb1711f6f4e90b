from pathlib import Path

import pytest
from support.toy import TEXT

from electra.text.corpus import Corpus
from electra.text.tokenizer import Tokenizer
from electra.text.vocabulary import train_tokenizer


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT * 3, "utf-8")
    return Corpus((str(path),))


@pytest.fixture(params=["uncased", "accents", "cased"])
def trained(request: pytest.FixtureRequest, corpus: Corpus) -> Tokenizer:
    return train_tokenizer(corpus, 200, cased=request.param == "cased", keep_accents=request.param == "accents")
