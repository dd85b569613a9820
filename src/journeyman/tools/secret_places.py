"""Where secrets stand in the notations of single programs: each is a pattern with a group `value`.

It is tried on a text that holds one of its words. With a group `name` the value counts if its name says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple, TypeAlias

_Q: Final = r" {0,16}[\"']"
"""A quote. Patterns are tried on a text in which blanks stand for the backslashes before one."""
_WORD: Final = rf"(?:{_Q})?(?P<value>[^\s\"'`\\;|&<>,()]+)"
_QUOTED: Final = rf"{_Q}(?P<value>[^\s\"'\\]{{1,200}})(?= {{0,16}}[\"'])"
_MIXED: Final = r"(?=[^\s\"']{0,64}\d)(?=[^\s\"']{0,64}[A-Za-z])"

_SAID: Final = rf"[ \t]?[\"']?(?P<value>{_MIXED}[^\s\"',;]{{5,}})"


class Notation(NamedTuple):
    """A notation of secrets: the words of which a text holds one, in small letters, and its pattern."""

    words: tuple[str, ...]
    pattern: str
    signs: tuple[str, ...] = ()
    """The texts of which one is there as well; without words these alone."""
    is_exact: bool = False
    """True: capitals count. Else it is written in small letters, and tried on a text in small letters: that takes half
    the time of ignoring the case."""


_CODES: Final = ("one-time", "verification", "security", "confirmation", "login", "access", "2fa", "mfa")
_NOTATIONS: Final = (
    # headers
    Notation(
        ("authorization",),
        r"authorization\\{0,16}[\"']?[\s,:=]{1,8}f?\\{0,16}[\"']?(?:basic|bearer|token|apikey|[a-z][\w-]{1,30}"
        r"(?=[ \t]+[^\s\"'\\]*\d))"
        r"[ \t]+(?P<value>[\w.~+/=:-]{8,})",
    ),
    # shells
    Notation(("define",), rf"#define[ \t]+(?P<name>[a-z_]\w{{0,63}})[ \t]+{_WORD}"),
    Notation(("setenv", "set", "setx"), rf"set(?:env|x|[ \t]+-\w{{1,4}})[ \t]+(?P<name>[a-z_]\w{{0,63}})[ \t]+{_WORD}"),
    Notation(("env", "arg"), rf"(?:ENV|ARG)[ \t]+(?P<name>[A-Za-z_]\w{{0,63}})[ \t]+{_WORD}", is_exact=True),
    Notation(("secret",), rf"secret[ \t]+set[ \t]+\w+[ \t]+(?:--body|-b)[ \t=]+{_WORD}"),
    Notation(("literal",), rf"--from-literal[= ]{_Q}?(?P<name>[\w.-]{{1,64}})={_WORD}"),
    Notation(
        ("sudo",),
        r"echo[ \t]+(?:-n[ \t]+)?[\"']?(?P<value>[^\s\"'|$]+)[\"']?[ \t]*\|[ \t]*sudo[ \t]+(?:-\w+[ \t]+)*-\w*S",
        is_exact=True,
    ),
    Notation(("chpasswd",), r"\b[\w.-]{1,64}:(?P<value>[^\s\"'|$]{1,200})[\"']?[ \t]*\|[ \t]*(?:sudo[ \t]+)?chpasswd"),
    Notation(
        ("sqlcmd", "bcp", "mosquitto"),
        rf"\b(?:sqlcmd|bcp|mosquitto_[ps]ub)\b[^\n;|]{{0,200}}?[ \t]-P[ \t]?{_WORD}",
        is_exact=True,
    ),
    Notation(("lftp",), rf"lftp\b[^\n;|]{{0,200}}?[ \t]-u[ \t]?{_Q}?[\w.@-]+,{_WORD}"),
    Notation(
        ("mongodump", "mongorestore", "mongoimport", "mongoexport"),
        rf"mongo(?:dump|restore|import|export)\b[^\n;|]{{0,200}}?[ \t]-p[ \t]?{_WORD}",
    ),
    Notation(("keygen",), rf"ssh-keygen\b[^\n;|]{{0,200}}?[ \t]-[NP][ \t]?{_WORD}", is_exact=True),
    Notation(
        ("xfreerdp", "wlfreerdp", "rdesktop"),
        rf"\b(?:xfreerdp3?|wlfreerdp|rdesktop)\b[^\n;|]{{0,200}}?[ \t](?:/p:|-p[ \t]?){_WORD}",
    ),
    Notation(("redis",), rf"redis-cli\b[^\n;|]{{0,200}}?[ \t]auth[ \t]+(?:[\w.-]+[ \t]+(?=\S))?{_WORD}"),
    Notation(("net",), rf"net[ \t]+user[ \t]+[\w.-]+[ \t]+(?!/){_WORD}(?=[^\n]*/add|[ \t]*$)"),
    Notation(("securestring",), rf"convertto-securestring[ \t]+(?:-string[ \t]+)?{_QUOTED}"),
    Notation(
        ("sqlplus", "oracle", "expdp", "impdp"),
        r"\b(?:sqlplus(?:[ \t]+-\w+)*[ \t]+|expdp[ \t]+|impdp[ \t]+|jdbc:oracle:thin:)\w+/(?P<value>[^\s\"'@/]+)@",
    ),
    # files
    Notation(
        ("login",),
        r"\b(?:machine[ \t]+\S+|default)\s{1,16}login[ \t]+[^\s,]+\s{1,16}password[ \t]+(?P<value>[^\s\"']+)",
    ),
    Notation(("requirepass", "masterauth"), rf"\b(?:requirepass|masterauth)[ \t]+{_WORD}"),
    Notation(
        (),
        r":(?<=[\w*]:)(?:\d{4,5}|\*):(?:\*|[a-z_][\w-]{0,60}):(?:\*|[a-z_][\w.-]{0,60}):"
        r"(?P<value>[^\s:\"]{4,})(?= {0,16}(?:$|[\"\n]))",
        signs=(":",),
    ),
    Notation(
        (),
        r"(?<![\w.-])(?P<name>[\w.-]{1,64})[\"']?:[ \t]{1,4}[|>][+-]?[ \t]{0,4}\r?\n(?P<value>[ \t]+[^\n]+"
        r"(?:\n[ \t]+[^\n]+)*)",
        signs=(": |", ": >"),
    ),
    Notation(
        ("variable",),
        rf"variable[ \t]{{0,4}}{_Q}(?P<name>[\w-]{{1,64}}){_Q}[ \t]*\{{[^{{}}]{{0,400}}?\bdefault[ \t]*={_Q}"
        rf"(?P<value>[^\"\n]+)\"",
    ),
    Notation(("password",), r"password[ \t]+\d[ \t]+(?P<value>[^\s\"']{6,})"),
    Notation(("secret",), r"secret[ \t]+\d[ \t]+(?P<value>[^\s\"']{6,})"),
    Notation(
        (),
        r"\t(?:true|false) {0,8}\t[^\t\n]*\t(?:true|false) {0,8}\t\d+ {0,8}\t[^\t\n]+\t(?P<value>[^\s\"]+)",
        signs=("\ttrue", "\tfalse"),
    ),
    Notation(
        ("private",),
        r"private-lines:[ \t]*\d+ {0,8}\r?\n(?P<value>[a-z0-9+/=]+(?: {0,8}\r?\n[a-z0-9+/=]+)*)(?=[\s\"]|$)",
    ),
    Notation((), r":(?<=\w:)(?P<value>\$(?:1|2[abxy]?|5|6|y|apr1|argon2id)\$[./a-z0-9$=,+]{20,})", signs=(":$",)),
    Notation(("kty",), r"\"(?:d|p|q|dp|dq|qi|k) {0,16}\"\s{0,8}:\s{0,16}\"(?P<value>[\w-]{16,})"),
    # addresses
    Notation(("pwd",), r";[ \t]{0,4}pwd=\{?(?P<value>[^;\s\"'}]+)"),
    Notation(("http", "https"), r"https?://(?P<value>(?=[a-z_-]*\d)(?=\d*[a-z_-])[\w-]{20,})@"),
    Notation(("webhook",), r"webhook\.office\.com/webhookb2/(?P<value>[\w@/-]{20,})"),
    Notation(("zapier",), r"hooks\.zapier\.com/hooks/catch/(?P<value>[\w/]{6,})"),
    Notation(("ifttt",), r"maker\.ifttt\.com/\S{1,100}/key/(?P<value>[\w-]{10,})"),
    Notation(("code", "key"), r"[?&](?:code|key|client_assertion)=(?P<value>(?=[^&\s]{0,64}\d)[\w.~%/-]{20,})"),
    Notation(("assertion",), r"client_assertion=(?P<value>[\w.-]{20,})"),
    # databases
    Notation(
        ("identified",), rf"identified[ \t]+(?:with[ \t]+\S+[ \t]+)?by[ \t]+(?:password[ \t]+)?{_Q}(?P<value>[^\"'\n]+)"
    ),
    Notation(("password",), r"password(?:(?<=with password)|(?<=encrypted password))[ \t]+'(?P<value>[^'\n]+)'"),
    Notation(
        ("password",), r"set[ \t]+password[ \t]+(?:for[ \t]+\S+[ \t]*)?=[ \t]*(?:password\()?'(?P<value>[^'\n]+)'"
    ),
    # programs
    Notation(
        (),
        rf"\((?<=\w\()\s{{0,8}}{_Q}(?P<name>[a-z_][\w.-]{{1,63}}){_Q},[ \t\n]{{0,16}}{_Q}"
        rf"(?P<value>{_MIXED}[^\s\"']{{8,200}}){_Q}",
        signs=("(",),
    ),
    Notation(
        ("auth",),
        rf"auth\s{{0,4}}=\s{{0,4}}\(\s{{0,4}}{_Q}[^\"'\n]{{1,80}}{_Q},\s{{0,8}}{_Q}(?P<value>[^\"'\n\\]+)"
        rf"(?= {{0,16}}[\"'])",
    ),
    Notation((), r"\$\{(?P<name>[\w.-]{1,64}):-?(?P<value>[^{}$\s\"']{4,})\}", signs=("${",)),
    Notation(
        ("sk", "ghp", "gho", "ghu", "ghs", "github", "xoxb", "xoxp", "glpat", "npm", "hf", "aiza", "akia"),
        rf"{_Q}(?:sk-(?:ant-|proj-|or-v1-)?[\w-]{{0,8}}|gh[pousr]_|github_pat_|xox[abprs]-|glpat-|npm_|hf_|AIza|AKIA)"
        rf"{_Q}[\s\\+.]{{0,24}}[\"'](?P<value>[\w-]{{12,}})",
        signs=('-"', "-'", '_"', "_'", '- "', '_ "', "iza", "kia"),
        is_exact=True,
    ),
    # sentences
    Notation(
        ("password", "passwort", "passphrase", "passcode", "secret", "token", "api"),
        rf"\b(?:password|passwort|passphrase|passcode|secret|token|api key)[ \t]+"
        rf"(?:for|of|to|von|für)[ \t]+[^\s:]{{1,40}}(?:[ \t]+is|:)[ \t]+[\"'`]?"
        rf"(?P<value>{_MIXED}[^\s\"'`,;]{{5,}}[^\s\"'`,;.!?)])",
        signs=(" for ", " of ", " to ", " von ", " f\u00fcr "),
    ),
    Notation(
        ("password", "passphrase", "key"),
        rf"\b[\"'`]?(?P<value>{_MIXED}[^\s\"'`,;:=()]{{6,200}})[\"'`]?[ \t]+(?:as|is)[ \t]+"
        rf"(?:the|my|your|our)[ \t]+(?:password|passphrase|api key)",
        signs=("the pass", "my pass", "your pass", "our pass", "the api key", "my api key", "your api key"),
    ),
    Notation(
        ("passe", "contrase", "contrasena", "senha", "kennwort", "wachtwoord"),
        rf"(?:mot de passe|contrase(?:\u00f1|n)a|senha|kennwort|wachtwoord)[ \t]?[:=]{_SAID}",
    ),
    Notation(
        (),
        rf"(?:has\u0142o|\u043f\u0430\u0440\u043e\u043b\u044c)[ \t]?[:=]{_SAID}",
        signs=("has\u0142o", "\u043f\u0430\u0440\u043e\u043b\u044c"),
    ),
    Notation(
        ("code",),
        rf"code(?:{'|'.join(f'(?<={kind}[ -]code)' for kind in _CODES)})(?:[ \t]+is|:)[ \t]*(?P<value>\d{{4,8}})\b",
    ),
    Notation(("otp",), r"otp(?:[ \t]+is|:)[ \t]*(?P<value>\d{4,8})\b"),
    Notation(("pin",), r"\bPIN(?:[ \t]+is|:|=)[ \t]*(?P<value>\d{4,8})\b", is_exact=True),
)


_Patterns: TypeAlias = "list[tuple[Notation, re.Pattern[str]]]"


@cache
def _compile_notations(ignores_case: bool) -> tuple[dict[str, _Patterns], _Patterns]:
    """Return the notations with their patterns, by the words that call for them, and those that no word calls for. They
    are compiled when a text is looked through first."""
    by_word: dict[str, _Patterns] = {}
    by_sign: _Patterns = []
    for notation in _NOTATIONS:
        flag = re.IGNORECASE if ignores_case and not notation.is_exact else re.NOFLAG
        pair = notation, re.compile(notation.pattern, flag)
        for word in notation.words:
            by_word.setdefault(word, []).append(pair)
        if not notation.words:
            by_sign.append(pair)
    return by_word, by_sign


_NO_LETTERS: Final = bytes(each if 97 <= each <= 122 else 32 for each in range(256))


def words_in(lowered: str) -> frozenset[str]:
    """Return the words of a text in small letters. A pattern for them would take four times as long."""
    return frozenset(lowered.encode("ascii", "replace").translate(_NO_LETTERS).decode().split())


_ESCAPED: Final = re.compile(r"\\{1,16}[nrt\"']")
_MEANT: Final = str.maketrans("nrt", "\n\r\t")
_MEANINGS: Final = tuple((f"\\{each}", f" {each.translate(_MEANT)}") for each in "nrt\"'")


def shadow_of(text: str) -> str:
    """Return a text of the same length in which a line ends where JSON says so, and a quote is one."""
    if "\\" not in text:
        return text
    if "\\\\" not in text:  # as in most JSON: each escape is two characters, and a pattern takes six times as long
        for sign, meant in _MEANINGS:
            text = text.replace(sign, meant)
        return text
    return _ESCAPED.sub(lambda found: found[0][-1].translate(_MEANT).rjust(len(found[0])), text)


def places_by_notation(text: str, shadow: str, words: frozenset[str]) -> Iterator[tuple[str | None, int, int]]:
    """Give what the notations find in a text with this shadow and these words: its name, if it has one, where it begins
    and where it ends."""
    lowered = shadow.lower()
    # A capital may be one letter and two small ones: then a place in one text is none in the other.
    is_longer = len(lowered) != len(text)
    by_word, by_sign = _compile_notations(is_longer)
    called = {id(pair): pair for word in by_word.keys() & words for pair in by_word[word]}
    for notation, pattern in (*called.values(), *by_sign):
        if notation.signs and not any([sign in lowered for sign in notation.signs]):
            continue
        is_named = "name" in pattern.groupindex
        for each in pattern.finditer(shadow if notation.is_exact or is_longer else lowered):
            start, end = each.span("value")
            while end > start and text[end - 1] == "\\":  # it belongs to the quote behind it
                end -= 1
            yield text[slice(*each.span("name"))] if is_named else None, start, end


_HEADER: Final = re.compile(r"(?:^|(?<=\"))[\w'.-]{1,60}(?:[,;\t|][\w'.-]{1,60}){1,40}[ \r]{0,16}$", re.MULTILINE)
_NAMES_COLUMN: Final = re.compile("passw|secret|token|api_?key|credential", re.IGNORECASE)


def columns(text: str) -> Iterator[tuple[str, int, int]]:
    """Give the fields of a table whose first line names its columns: their name, where they begin and where they
    end."""
    text, end = shadow_of(text), 0
    for header in _HEADER.finditer(text):
        if header.start() < end or _NAMES_COLUMN.search(header[0]) is None:
            continue
        sign = next(each for each in header[0] if each in ",;\t|")
        # Inside of JSON the table ends with its text.
        last = text.find('"', header.end()) if text[header.start() - 1 : header.start()] == '"' else len(text)
        last = len(text) if last < 0 else last
        names = [each.strip("\"'\r ") for each in header[0].split(sign)]
        end = header.end() + 1
        while end < last:
            stop = text.find("\n", end)
            stop = last if stop < 0 else min(stop, last)
            fields = text[end:stop].split(sign)
            if len(fields) != len(names):
                break
            at = end
            for name, field in zip(names, fields, strict=True):
                bare = field.strip("\"'\r ")
                if bare:
                    start = at + field.index(bare)
                    yield name, start, start + len(bare)
                at += len(field) + len(sign)
            end = stop + 1
