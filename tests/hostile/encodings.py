"""Models as bytes of every encoding, declared rightly and wrongly, with what XML allows around elements; seeded."""

import random

import diffsim
from hostile.judge import Case
from hostile.texts import SOURCES

CODECS = (
    *("utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-7", "utf-8-sig", "latin-1", "cp1252", "cp437"),
    *("ascii", "shift_jis", "gb18030", "big5", "iso2022_jp", "euc_kr", "koi8-r", "cp037", "hz", "mac-roman"),
)
DECLARED = (
    *CODECS,
    "idna",
    "punycode",
    "base64",
    "rot13",
    "raw_unicode_escape",
    "undefined",
    "no such",
    "",
    "utf-8" * 50,
)
MARKS = (b"", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\x00\x00", b"\x00", b" \n", b"\x1f\x8b")
NOISE = (
    "<!-- -->",
    "<!--" * 500,
    "<!-- -- -->",
    "<![CDATA[<geom/>]]>",
    "<?xml version='1.0'?>",
    "<?php echo 1?>",
    "&lt;",
    "&amp;" * 100,
    "&#0;",
    "&#x10FFFF;",
    "&undefined;",
    "\u00e9\u4e2d\U0001f600",
    "\ufeff",
    "\u202e",
    "\x00",
    "]]>",
    "<a:geom xmlns:a='b'/>",
    "<geom xmlns='http://a'/>",
    "\t" * 10_000,
)
LAUGHS = "".join(f'<!ENTITY a{k + 1} "{f"&a{k};" * 10}">' for k in range(12))
PROLOGUES = (
    "",
    '<!DOCTYPE mujoco SYSTEM "file:///etc/passwd">',
    '<!DOCTYPE m [<!ENTITY a SYSTEM "file:///etc/passwd">]>',
    f'<!DOCTYPE m [<!ENTITY a0 "ha">{LAUGHS}]>',
    '<!DOCTYPE m [<!ENTITY % a SYSTEM "http://localhost:1/a">%a;]>',
    "<!DOCTYPE",
    '<?xml-stylesheet href="a"?>',
)


def encoded(seed: int) -> bytes:
    """The bytes of a model; half of them have one thing wrong at most."""
    rng = random.Random(seed)
    text, codec = rng.choice(SOURCES), rng.choice(CODECS)
    odd = rng.choices(("noise", "declared", "prologue", "mark"), k=rng.choice((0, 1, 1, 4)))
    for _ in range(odd.count("noise")):
        at = rng.choice([k for k, letter in enumerate(text) if letter in '<> "'])
        text = text[:at] + rng.choice(NOISE) + text[at:]
    declared = rng.choice(DECLARED) if "declared" in odd else codec
    version = rng.choice(("1.1", "9", "")) if odd.count("declared") > 1 else "1.0"
    prologue = rng.choice(PROLOGUES) if "prologue" in odd else ""
    mark = rng.choice(MARKS) if "mark" in odd else b""
    if rng.random() < 0.9:
        prologue = f'<?xml version="{version}" encoding="{declared}"?>' + prologue
    return mark + (prologue + text).encode(codec, errors="replace")


def case(seed: int) -> Case:
    """A model of an odd encoding, loaded."""
    data = encoded(seed)
    return lambda: diffsim.load(data)
