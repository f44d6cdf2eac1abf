"""Texts of values and of files as messages show them: short, printable, and without passwords."""

import re
import reprlib
import unicodedata
from typing import Any
from urllib.parse import unquote

_BEGIN = r"([a-z][\w+.-]*:/*[^:/?#@\s]*(?::|%3a)|https?:/*(?=[^/?#\s]*@))"
_LOGIN = re.compile(_BEGIN + r"\S*(?=@)", re.IGNORECASE)
# After decoding, an @ behind the host belongs to no login.
_DECODED_LOGIN = re.compile(_BEGIN + r"[^/?#\s]*(?=@)", re.IGNORECASE)
_SECRET = re.compile(
    r"((?:pass(?:word|wd|phrase)?|pwd|token|secret|api_?key)\s*=\s*)[^&;\s'\"]+", re.IGNORECASE
)


def without_password(text: str) -> str:
    """Cover the passwords of all addresses in a text. If one is encoded, the text is decoded."""
    covered = plain = _SECRET.sub(r"\1***", _LOGIN.sub(r"\1***", text))
    while (decoded := unquote(plain)) != plain:
        plain = decoded
    masked = _SECRET.sub(r"\1***", _DECODED_LOGIN.sub(r"\1***", plain))
    return covered if masked == plain else masked


class _Repr(reprlib.Repr):
    """Short texts of values. Passwords are covered before a text is cut, while they can be recognised."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxstring = self.maxother = 100
        self.maxlist = self.maxtuple = self.maxdict = 12

    def repr_str(self, text: str, level: int) -> str:
        """Quote a text. A very long one is cut first, with an @ as if an address ended there."""
        return super().repr_str(without_password(text if len(text) <= 2000 else f"{text[:1000]}@"), level)


_REPR = _Repr()


def shown(value: Any) -> str:
    """Write a value as Python does, but a tuple as a list, shortened for a message."""
    text = _REPR.repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def owner_text(name: Any) -> str:
    """Write the name of an owner as one text, the same for each form in which files and tables hold it.

    Whole floats are whole numbers, and these their digits, without zeros in front. Text counts without spaces
    around it, in the normal form of Unicode.

    Example:
        >>> owner_text(7.0), owner_text("007"), owner_text(" b7")
        ('7', '7', 'b7')
    """
    if isinstance(name, float) and name.is_integer():
        return str(int(name))
    text = unicodedata.normalize("NFC", str(name)).strip()
    return text.lstrip("0") or "0" if text.isdecimal() else text


def in_nats(number: str) -> str:
    """Write a number of nats with its unit.

    Example:
        >>> in_nats("1"), in_nats("1.5")
        ('1 nat', '1.5 nats')
    """
    return f"{number} nat" if number == "1" else f"{number} nats"


def printable(text: str) -> str:
    """Escape line breaks and other characters that cannot be printed, so that a terminal shows nothing else."""
    escaped = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return "".join(escaped)
