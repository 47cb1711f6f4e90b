"""Strings that tokenizers get wrong, and a text to train one on."""

NASTY = [
    "Hello, World! It's 3.14 o'clock... isn't it?",
    "Crème brûlée à la Übergröße, İstanbul, ﬁne, ＡＢＣ, Ångström, e\u0301 o\u0308",
    "中文字符和English混合，日本語のテキスト。한국어 문장",
    "emoji 😀👩‍👩‍👧🇩🇪 and ‮reversed‬ text",
    "tab\there\u00a0nbsp\u2003em\u200bzero\ufeffbom\x00nul\x07bell\x1b[0m\ufffdreplaced\u00adsoft",
    "a" * 99 + " " + "b" * 201 + " " + "supercalifragilisticexpialidocious" * 2,
    "the [ MASK ] and [UNUSED] (SEP) [ [MASK",
    "", "   ", "!", "##ing ##", "\u0300", "x\u0301\u0302\u0303", "ＷＩＤＥ", "ﷺ ½ ² ™ №",
    "http://example.org/a_b?c=d&e=%20#f user@host.org C:\\path\\to $5 €6 £7 ¥8",
]  # fmt: skip
TEXT = """The quick brown fox jumps over the lazy dog. The dog sleeps, the fox runs; it is a quick one.

Größe und Übermut: the word naïve has an accent, as has the café. Running, runner, runs, ran.

Lowering the lowest of the lower lows is slower than slowing the slowest.
"""
