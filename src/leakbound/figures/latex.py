"""Plain text as LaTeX that any engine sets."""

import re
import unicodedata

_SPECIAL = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"–": "--", "—": "---", "“": "``", "”": "''", "‘": "`", "’": "'", "…": r"\ldots{}", "\u00a0": "~"},
}
_MATHEMATICAL = {
    **{"≤": r"\leq", "≥": r"\geq", "≠": r"\neq", "≈": r"\approx", "±": r"\pm", "−": "-", "×": r"\times"},
    **{
        "∞": r"\infty",
        "·": r"\cdot",
        "√": r"\surd",
        "→": r"\to",
        "‖": r"\|",
        "∝": r"\propto",
        "∇": r"\nabla",
    },
    **{"∈": r"\in", "∑": r"\sum", "⟨": r"\langle", "⟩": r"\rangle", "ℓ": r"\ell", "½": r"\tfrac{1}{2}"},
}
_GREEK = re.compile(r"GREEK (SMALL|CAPITAL) LETTER (\w+)")
_ACCENTS = {"\u0303": r"\tilde", "\u0302": r"\hat", "\u0304": r"\bar", "\u0307": r"\dot"}


def latex(text: str) -> str:
    r"""Escape commands of LaTeX, and write Greek letters, signs, indices and powers as mathematics.

    Args:
        text: Plain text, e.g. a caption.

    Returns:
        LaTeX, in ASCII but for letters of languages.

    Example:
        >>> print(latex("50 % of κ₁ ≤ 2·10⁻³ nats"))
        50 \% of $\kappa$$_{1}$ $\leq$ 2$\cdot$10$^{-}$$^{3}$ nats
    """
    written = ""
    for character in unicodedata.normalize("NFC", text):
        if character in _ACCENTS and written:
            written = f"{written[:-1]}${_ACCENTS[character]}{{{written[-1]}}}$"
        else:
            written += _written(character)
    return written


def _written(character: str) -> str:
    """Write one character."""
    if character in _SPECIAL:
        return _SPECIAL[character]
    if character in _MATHEMATICAL:
        return f"${_MATHEMATICAL[character]}$"
    if letter := _GREEK.fullmatch(unicodedata.name(character, "")):
        name = letter[2].lower()
        return f"$\\{name if letter[1] == 'SMALL' else name.capitalize()}$"
    kind, *codes = unicodedata.decomposition(character).split() or [""]
    if kind in ("<super>", "<sub>"):
        inner = "".join(chr(int(code, 16)) for code in codes).replace("−", "-")
        return f"${'^' if kind == '<super>' else '_'}{{{inner}}}$"
    return character
