"""Where secrets stand in the notations of single programs: each rule is a pattern with a group `value`.

A rule is tried on a text that holds one of its words. With a group `name` the value counts if its name says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

_Q: Final = r" {0,16}[\"']"
"""A quote. Rules are tried on a text in which blanks stand for the backslashes before one."""
_WORD: Final = rf"(?:{_Q})?(?P<value>[^\s\"'`\\;|&<>,()]+)"
_QUOTED: Final = rf"{_Q}(?P<value>[^\s\"'\\]{{1,200}})(?= {{0,16}}[\"'])"
_MIXED: Final = r"(?=[^\s\"']{0,64}\d)(?=[^\s\"']{0,64}[A-Za-z])"

_SAID: Final = rf"[ \t]?[\"']?(?P<value>{_MIXED}[^\s\"',;]{{5,}})"


class Rule(NamedTuple):
    """A notation of secrets: the words of which a text holds one, in small letters, and its pattern."""

    words: tuple[str, ...]
    pattern: str
    signs: tuple[str, ...] = ()
    """The texts of which one is there as well; without words these alone."""
    is_exact: bool = False
    """True: capitals count. Else it is written in small letters, and tried on a text in small letters: that takes half
    the time of ignoring the case."""


_CODES: Final = ("one-time", "verification", "security", "confirmation", "login", "access", "2fa", "mfa")
_RULES: Final = (
    # headers
    Rule(
        ("authorization",),
        r"authorization\\{0,16}[\"']?[\s,:=]{1,8}f?\\{0,16}[\"']?(?:basic|bearer|token|apikey|[a-z][\w-]{1,30}"
        r"(?=[ \t]+[^\s\"'\\]*\d))"
        r"[ \t]+(?P<value>[\w.~+/=:-]{8,})",
    ),
    # shells
    Rule(("define",), rf"#define[ \t]+(?P<name>[a-z_]\w{{0,63}})[ \t]+{_WORD}"),
    Rule(("setenv", "set", "setx"), rf"set(?:env|x|[ \t]+-\w{{1,4}})[ \t]+(?P<name>[a-z_]\w{{0,63}})[ \t]+{_WORD}"),
    Rule(("env", "arg"), rf"(?:ENV|ARG)[ \t]+(?P<name>[A-Za-z_]\w{{0,63}})[ \t]+{_WORD}", is_exact=True),
    Rule(("secret",), rf"secret[ \t]+set[ \t]+\w+[ \t]+(?:--body|-b)[ \t=]+{_WORD}"),
    Rule(("literal",), rf"--from-literal[= ]{_Q}?(?P<name>[\w.-]{{1,64}})={_WORD}"),
    Rule(
        ("sudo",),
        r"echo[ \t]+(?:-n[ \t]+)?[\"']?(?P<value>[^\s\"'|$]+)[\"']?[ \t]*\|[ \t]*sudo[ \t]+(?:-\w+[ \t]+)*-\w*S",
        is_exact=True,
    ),
    Rule(("chpasswd",), r"\b[\w.-]{1,64}:(?P<value>[^\s\"'|$]{1,200})[\"']?[ \t]*\|[ \t]*(?:sudo[ \t]+)?chpasswd"),
    Rule(
        ("sqlcmd", "bcp", "mosquitto"),
        rf"\b(?:sqlcmd|bcp|mosquitto_[ps]ub)\b[^\n;|]{{0,200}}?[ \t]-P[ \t]?{_WORD}",
        is_exact=True,
    ),
    Rule(("lftp",), rf"lftp\b[^\n;|]{{0,200}}?[ \t]-u[ \t]?{_Q}?[\w.@-]+,{_WORD}"),
    Rule(
        ("mongodump", "mongorestore", "mongoimport", "mongoexport"),
        rf"mongo(?:dump|restore|import|export)\b[^\n;|]{{0,200}}?[ \t]-p[ \t]?{_WORD}",
    ),
    Rule(("keygen",), rf"ssh-keygen\b[^\n;|]{{0,200}}?[ \t]-[NP][ \t]?{_WORD}", is_exact=True),
    Rule(
        ("xfreerdp", "wlfreerdp", "rdesktop"),
        rf"\b(?:xfreerdp3?|wlfreerdp|rdesktop)\b[^\n;|]{{0,200}}?[ \t](?:/p:|-p[ \t]?){_WORD}",
    ),
    Rule(("redis",), rf"redis-cli\b[^\n;|]{{0,200}}?[ \t]auth[ \t]+(?:[\w.-]+[ \t]+(?=\S))?{_WORD}"),
    Rule(("net",), rf"net[ \t]+user[ \t]+[\w.-]+[ \t]+(?!/){_WORD}(?=[^\n]*/add|[ \t]*$)"),
    Rule(("securestring",), rf"convertto-securestring[ \t]+(?:-string[ \t]+)?{_QUOTED}"),
    Rule(
        ("sqlplus", "oracle", "expdp", "impdp"),
        r"\b(?:sqlplus(?:[ \t]+-\w+)*[ \t]+|expdp[ \t]+|impdp[ \t]+|jdbc:oracle:thin:)\w+/(?P<value>[^\s\"'@/]+)@",
    ),
    # files
    Rule(
        ("login",),
        r"\b(?:machine[ \t]+\S+|default)\s{1,16}login[ \t]+[^\s,]+\s{1,16}password[ \t]+(?P<value>[^\s\"']+)",
    ),
    Rule(("requirepass", "masterauth"), rf"\b(?:requirepass|masterauth)[ \t]+{_WORD}"),
    Rule(
        (),
        r":(?<=[\w*]:)(?:\d{4,5}|\*):(?:\*|[a-z_][\w-]{0,60}):(?:\*|[a-z_][\w.-]{0,60}):"
        r"(?P<value>[^\s:\"]{4,})(?= {0,16}(?:$|[\"\n]))",
        signs=(":",),
    ),
    Rule(
        (),
        r"(?<![\w.-])(?P<name>[\w.-]{1,64})[\"']?:[ \t]{1,4}[|>][+-]?[ \t]{0,4}\r?\n(?P<value>[ \t]+[^\n]+"
        r"(?:\n[ \t]+[^\n]+)*)",
        signs=(": |", ": >"),
    ),
    Rule(
        ("variable",),
        rf"variable[ \t]{{0,4}}{_Q}(?P<name>[\w-]{{1,64}}){_Q}[ \t]*\{{[^{{}}]{{0,400}}?\bdefault[ \t]*={_Q}"
        rf"(?P<value>[^\"\n]+)\"",
    ),
    Rule(("password",), r"password[ \t]+\d[ \t]+(?P<value>[^\s\"']{6,})"),
    Rule(("secret",), r"secret[ \t]+\d[ \t]+(?P<value>[^\s\"']{6,})"),
    Rule(
        (),
        r"\t(?:true|false) {0,8}\t[^\t\n]*\t(?:true|false) {0,8}\t\d+ {0,8}\t[^\t\n]+\t(?P<value>[^\s\"]+)",
        signs=("\ttrue", "\tfalse"),
    ),
    Rule(
        ("private",),
        r"private-lines:[ \t]*\d+ {0,8}\r?\n(?P<value>[a-z0-9+/=]+(?: {0,8}\r?\n[a-z0-9+/=]+)*)(?=[\s\"]|$)",
    ),
    Rule((), r":(?<=\w:)(?P<value>\$(?:1|2[abxy]?|5|6|y|apr1|argon2id)\$[./a-z0-9$=,+]{20,})", signs=(":$",)),
    Rule(("kty",), r"\"(?:d|p|q|dp|dq|qi|k) {0,16}\"\s{0,8}:\s{0,16}\"(?P<value>[\w-]{16,})"),
    # addresses
    Rule(("pwd",), r";[ \t]{0,4}pwd=\{?(?P<value>[^;\s\"'}]+)"),
    Rule(("http", "https"), r"https?://(?P<value>(?=[a-z_-]*\d)(?=\d*[a-z_-])[\w-]{20,})@"),
    Rule(("webhook",), r"webhook\.office\.com/webhookb2/(?P<value>[\w@/-]{20,})"),
    Rule(("zapier",), r"hooks\.zapier\.com/hooks/catch/(?P<value>[\w/]{6,})"),
    Rule(("ifttt",), r"maker\.ifttt\.com/\S{1,100}/key/(?P<value>[\w-]{10,})"),
    Rule(("code", "key"), r"[?&](?:code|key|client_assertion)=(?P<value>(?=[^&\s]{0,64}\d)[\w.~%/-]{20,})"),
    Rule(("assertion",), r"client_assertion=(?P<value>[\w.-]{20,})"),
    # databases
    Rule(
        ("identified",), rf"identified[ \t]+(?:with[ \t]+\S+[ \t]+)?by[ \t]+(?:password[ \t]+)?{_Q}(?P<value>[^\"'\n]+)"
    ),
    Rule(("password",), r"password(?:(?<=with password)|(?<=encrypted password))[ \t]+'(?P<value>[^'\n]+)'"),
    Rule(("password",), r"set[ \t]+password[ \t]+(?:for[ \t]+\S+[ \t]*)?=[ \t]*(?:password\()?'(?P<value>[^'\n]+)'"),
    # programs
    Rule(
        (),
        rf"\((?<=\w\()\s{{0,8}}{_Q}(?P<name>[a-z_][\w.-]{{1,63}}){_Q},[ \t\n]{{0,16}}{_Q}"
        rf"(?P<value>{_MIXED}[^\s\"']{{8,200}}){_Q}",
        signs=("(",),
    ),
    Rule(
        ("auth",),
        rf"auth\s{{0,4}}=\s{{0,4}}\(\s{{0,4}}{_Q}[^\"'\n]{{1,80}}{_Q},\s{{0,8}}{_Q}(?P<value>[^\"'\n\\]+)"
        rf"(?= {{0,16}}[\"'])",
    ),
    Rule((), r"\$\{(?P<name>[\w.-]{1,64}):-?(?P<value>[^{}$\s\"']{4,})\}", signs=("${",)),
    Rule(
        ("sk", "ghp", "gho", "ghu", "ghs", "github", "xoxb", "xoxp", "glpat", "npm", "hf", "aiza", "akia"),
        rf"{_Q}(?:sk-(?:ant-|proj-|or-v1-)?[\w-]{{0,8}}|gh[pousr]_|github_pat_|xox[abprs]-|glpat-|npm_|hf_|AIza|AKIA)"
        rf"{_Q}[\s\\+.]{{0,24}}[\"'](?P<value>[\w-]{{12,}})",
        signs=('-"', "-'", '_"', "_'", '- "', '_ "', "iza", "kia"),
        is_exact=True,
    ),
    # sentences
    Rule(
        ("password", "passwort", "passphrase", "passcode", "secret", "token", "api"),
        rf"\b(?:password|passwort|passphrase|passcode|secret|token|api key)[ \t]+"
        rf"(?:for|of|to|von|für)[ \t]+[^\s:]{{1,40}}(?:[ \t]+is|:)[ \t]+[\"'`]?"
        rf"(?P<value>{_MIXED}[^\s\"'`,;]{{5,}}[^\s\"'`,;.!?)])",
        signs=(" for ", " of ", " to ", " von ", " f\u00fcr "),
    ),
    Rule(
        ("password", "passphrase", "key"),
        rf"\b[\"'`]?(?P<value>{_MIXED}[^\s\"'`,;:=()]{{6,200}})[\"'`]?[ \t]+(?:as|is)[ \t]+"
        rf"(?:the|my|your|our)[ \t]+(?:password|passphrase|api key)",
        signs=("the pass", "my pass", "your pass", "our pass", "the api key", "my api key", "your api key"),
    ),
    Rule(
        ("passe", "contrase", "contrasena", "senha", "kennwort", "wachtwoord"),
        rf"(?:mot de passe|contrase(?:\u00f1|n)a|senha|kennwort|wachtwoord)[ \t]?[:=]{_SAID}",
    ),
    Rule(
        (),
        rf"(?:has\u0142o|\u043f\u0430\u0440\u043e\u043b\u044c)[ \t]?[:=]{_SAID}",
        signs=("has\u0142o", "\u043f\u0430\u0440\u043e\u043b\u044c"),
    ),
    Rule(
        ("code",),
        rf"code(?:{'|'.join(f'(?<={kind}[ -]code)' for kind in _CODES)})(?:[ \t]+is|:)[ \t]*(?P<value>\d{{4,8}})\b",
    ),
    Rule(("otp",), r"otp(?:[ \t]+is|:)[ \t]*(?P<value>\d{4,8})\b"),
    Rule(("pin",), r"\bPIN(?:[ \t]+is|:|=)[ \t]*(?P<value>\d{4,8})\b", is_exact=True),
)


class _Compiled(NamedTuple):
    """The rules with their patterns, by the words that call for them."""

    by_word: dict[str, list[tuple[Rule, re.Pattern[str]]]]
    by_sign: list[tuple[Rule, re.Pattern[str]]]


@cache
def _compiled(ignores_case: bool) -> _Compiled:
    """Return the rules with their patterns, which are compiled when a text is looked through first."""
    made = _Compiled({}, [])
    for rule in _RULES:
        exact = re.NOFLAG if rule.is_exact or not ignores_case else re.IGNORECASE
        pair = rule, re.compile(rule.pattern, exact)
        for word in rule.words:
            made.by_word.setdefault(word, []).append(pair)
        if not rule.words:
            made.by_sign.append(pair)
    return made


WORDS: Final = re.compile("[a-z]+")
"""The words of a text in small letters."""
_ESCAPED: Final = re.compile(r"\\{1,16}[nrt\"']")
_MEANT: Final = {"n": "\n", "r": "\r", "t": "\t"}


def _blank(found: re.Match[str]) -> str:
    last = found[0][-1]
    return " " * (len(found[0]) - 1) + _MEANT.get(last, last)


def shadow_of(text: str) -> str:
    """Return a text of the same length in which a line ends where JSON says so, and a quote is one."""
    return _ESCAPED.sub(_blank, text) if "\\" in text else text


def places_by_rules(text: str, words: frozenset[str]) -> Iterator[tuple[str | None, int, int]]:
    """Give what the rules find in a text with these words: its name, if it has one, where it begins and where it
    ends."""
    plain = shadow_of(text)
    lowered = plain.lower()
    # A capital may be one letter and two small ones: then a place in one text is none in the other.
    is_longer = len(lowered) != len(text)
    compiled = _compiled(is_longer)
    called = {id(pair): pair for word in compiled.by_word.keys() & words for pair in compiled.by_word[word]}
    for rule, pattern in (*called.values(), *compiled.by_sign):
        if rule.signs and not any([sign in lowered for sign in rule.signs]):
            continue
        is_named = "name" in pattern.groupindex
        for each in pattern.finditer(plain if rule.is_exact or is_longer else lowered):
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
